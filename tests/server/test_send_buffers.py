"""Send buffers are used again, and only a few are kept."""

from barnabas.server.send_buffers import CHUNK_BYTES, KEPT, SendBuffers


def test_a_buffer_that_was_given_back_is_used_again() -> None:
    buffers = SendBuffers()
    first = buffers.take()
    assert len(first) == CHUNK_BYTES
    second = buffers.take()
    assert second is not first
    buffers.give(first)
    assert buffers.take() is first


def test_only_a_few_buffers_are_kept() -> None:
    buffers = SendBuffers()
    taken = [buffers.take() for _ in range(KEPT + 3)]
    for buffer in taken:
        buffers.give(buffer)
    again = [buffers.take() for _ in range(KEPT + 3)]
    assert sum(any(one is other for other in taken) for one in again) == KEPT
