"""Views of fetched bytes: cut ends, early beginnings, aborted transactions, old messages."""

import pytest

from barnabas.client.fetched import AbortedTransaction, FetchedPartition, whole_batches
from barnabas.model import TopicPartition
from barnabas.records.batch import MAGIC_POSITION, CorruptRecordError
from barnabas.records.builder import build_batch, end_transaction_marker
from barnabas.records.codecs import Codec
from tests.records.message_sets import build_message_set


def batch(base_offset: int, *values: bytes, producer_id: int = -1, codec: Codec = Codec.NONE) -> bytes:
    """A batch; with a producer id it is transactional."""
    return bytes(
        build_batch(
            [(1_000, None, value, ()) for value in values],
            base_offset=base_offset,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
    )


def marker(base_offset: int, producer_id: int, *, commit: bool) -> bytes:
    return bytes(
        end_transaction_marker(
            commit=commit,
            timestamp=1,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            base_offset=base_offset,
        )
    )


def fetched(data: bytes, fetch_offset: int = 0, *aborted: tuple[int, int], check_crcs: bool = True) -> FetchedPartition:
    return FetchedPartition(
        partition=TopicPartition("t", 0),
        fetch_offset=fetch_offset,
        high_watermark=100,
        last_stable_offset=100,
        log_start_offset=0,
        data=memoryview(data),
        aborted=tuple(AbortedTransaction(*each) for each in aborted),
        check_crcs=check_crcs,
    )


def values(partition: FetchedPartition) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in partition.records()]


def test_what_lies_before_the_fetch_offset_is_not_shown() -> None:
    partition = fetched(batch(10, b"a", b"b", b"c") + batch(13, b"d", codec=Codec.ZSTD), 11)
    assert values(partition) == [(11, b"b"), (12, b"c"), (13, b"d")]
    assert partition.next_offset == 14
    assert [found.last_offset for found in partition.batches()] == [12, 13]


def test_every_cut_of_the_last_batch_leaves_it_out() -> None:
    first, second = batch(0, b"a"), batch(1, b"b")
    for size in range(len(second)):
        partition = fetched(first + second[:size])
        assert values(partition) == [(0, b"a")]
        assert partition.next_offset == 1


def test_nothing_moves_nothing() -> None:
    partition = fetched(b"", 7)
    assert (values(partition), partition.next_offset) == ([], 7)


def test_aborted_transactions_are_left_out_and_markers_move_on() -> None:
    data = b"".join(
        [
            batch(0, b"plain"),
            batch(1, b"aborted 7", producer_id=7),
            batch(2, b"kept 8", producer_id=8),
            batch(3, b"aborted 7 too", producer_id=7),
            marker(4, 7, commit=False),
            batch(5, b"kept 7", producer_id=7),
            marker(6, 8, commit=True),
            marker(7, 7, commit=True),
            batch(8, b"aborted 8", producer_id=8),
            marker(9, 8, commit=False),
        ]
    )
    partition = fetched(data, 0, (8, 8), (7, 1))
    assert values(partition) == [(0, b"plain"), (2, b"kept 8"), (5, b"kept 7")]
    assert partition.next_offset == 10
    assert len(values(fetched(data))) == 6, "a consumer of everything is told of no aborted transaction"


def test_a_transaction_that_began_before_the_answer_is_left_out() -> None:
    data = batch(5, b"aborted", producer_id=7) + marker(6, 7, commit=False) + batch(7, b"kept", producer_id=7)
    assert values(fetched(data, 5, (7, 2))) == [(7, b"kept")]


def test_a_wrong_checksum_is_an_error_unless_nobody_looks() -> None:
    data = bytearray(batch(0, b"abc"))
    data[-2] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        values(fetched(bytes(data)))
    assert len(list(fetched(bytes(data), check_crcs=False).batches())) == 1


@pytest.mark.parametrize("length", [-1, 0, 13])
def test_a_length_that_no_batch_has_is_an_error(length: int) -> None:
    data = bytearray(batch(0, b"abc"))
    data[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecordError, match="at least"):
        list(whole_batches(memoryview(data)))


def test_a_batch_that_is_shorter_than_its_header_is_an_error() -> None:
    data = bytearray(batch(0, b"abc"))
    data[8:12] = (30).to_bytes(4, "big")
    assert data[MAGIC_POSITION] == 2
    with pytest.raises(CorruptRecordError, match="takes 61 bytes"):
        list(whole_batches(memoryview(data)))


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_segments_are_read(magic: int) -> None:
    data = build_message_set(magic, [(0, 5_000, b"k", b"v"), (1, 5_001, None, b"w")])
    partition = fetched(data, 1)
    assert values(partition) == [(1, b"w")]
    assert partition.next_offset == 2
    assert [found.header for found in partition.batches()] == [None]
