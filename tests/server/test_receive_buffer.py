"""The receive buffer against plain bytes: whatever comes in whatever pieces is what is there to be handled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.server.receive_buffer import OWN_BYTES_MIN, READ_BYTES_MAX, ReceiveBuffer, SharedBuffer


class Client:
    """A connection that receives bytes and remembers what is not handled."""

    def __init__(self, shared: SharedBuffer) -> None:
        self.buffer = ReceiveBuffer(shared)
        self.expected = b""

    def receive(self, data: bytes, needed: int) -> None:
        while data:
            room = self.buffer.room(needed)
            count = min(len(room), len(data))
            assert count > 0, "there is always room for more"
            room[:count] = data[:count]
            self.buffer.filled += count
            self.expected += data[:count]
            data = data[count:]

    def handle(self, count: int) -> None:
        count = min(count, len(self.expected))
        self.buffer.start += count
        self.expected = self.expected[count:]
        self.buffer.handled()

    def check(self) -> None:
        assert bytes(self.buffer.view[self.buffer.start : self.buffer.filled]) == self.expected


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 200_000), st.integers(0, 200_000), st.booleans()), max_size=30
)


@given(STEPS)
def test_several_connections_share_a_buffer_and_none_loses_a_byte(steps: list[tuple[int, int, int, bool]]) -> None:
    shared = SharedBuffer(128 << 10)
    clients = [Client(shared) for _ in range(3)]
    for number, (which, received, handled, is_evicted) in enumerate(steps):
        client = clients[which]
        client.receive(bytes([number % 251]) * received, needed=4 + handled)
        for one in clients:
            one.check()
        client.handle(handled)
        if is_evicted:
            client.buffer.evict()
        for one in clients:
            one.check()


def test_a_full_buffer_of_frames_that_wait_leaves_room_for_more() -> None:
    shared = SharedBuffer(128 << 10)
    client = Client(shared)
    client.receive(b"a" * (128 << 10), needed=4)
    client.receive(b"b" * 1000, needed=4)
    client.check()


def test_memory_grows_with_what_came_and_not_with_what_was_announced() -> None:
    shared = SharedBuffer(128 << 10)
    client = Client(shared)
    client.receive(b"a" * 100, needed=100 << 20)
    assert len(client.buffer.room(100 << 20)) <= 2 * OWN_BYTES_MIN
    client.check()


def test_memory_is_given_back_when_everything_was_handled() -> None:
    shared = SharedBuffer(128 << 10)
    client = Client(shared)
    client.receive(b"a" * (1 << 20), needed=2 << 20)
    assert client.buffer.view is not shared.view
    client.handle(1 << 20)
    assert client.buffer.view is shared.view
    assert shared.owner is None


def test_not_more_is_received_at_a_time_than_is_handled_in_a_turn() -> None:
    assert len(ReceiveBuffer(SharedBuffer(8 << 20)).room(4)) == READ_BYTES_MAX


@pytest.mark.parametrize("size", [1, 1000])
def test_a_half_frame_is_moved_aside_for_another_connection_only(size: int) -> None:
    shared = SharedBuffer(128 << 10)
    first, second = Client(shared), Client(shared)
    first.receive(b"x" * size, needed=2000)
    assert shared.owner is first.buffer
    second.receive(b"y", needed=4)
    assert shared.owner is second.buffer
    first.check()
    assert first.buffer.view is not shared.view
