"""Batches that are built here: fields, holes, limits, and transaction markers."""

import pytest

from barnabas.records.batch import BatchHeader, CorruptRecordError, check_crc, check_header, read_header
from barnabas.records.builder import (
    OwnBatch,
    build_batch,
    end_transaction_marker,
    read_marker,
    read_usual_marker,
    seal_batch,
    seal_own_batch,
)
from barnabas.records.codecs import Codec
from barnabas.records.record import Record, batch_records


def checked(data: bytearray) -> BatchHeader:
    header = read_header(data)
    check_header(header, 0)
    check_crc(data, 0, header)
    assert header.size == len(data)
    return header


def test_fields_of_a_plain_batch() -> None:
    header = checked(build_batch([(1000, b"k", b"v", ()), (1500, None, None, ()), (900, None, b"", ())]))
    assert header[:4] == (0, header.size - 12, -1, 2)
    assert header[5:] == (0, 2, 1000, 1500, -1, -1, -1, 3)


def test_fields_that_are_given() -> None:
    header = checked(
        build_batch(
            [(1000, b"k", b"v", ())],
            base_offset=2**40,
            leader_epoch=3,
            codec=Codec.ZSTD,
            level=1,
            producer_id=77,
            producer_epoch=5,
            base_sequence=9,
            transactional=True,
        )
    )
    assert (header.base_offset, header.leader_epoch, header.codec) == (2**40, 3, Codec.ZSTD)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 9)
    assert header.is_transactional
    assert not header.is_control


def test_log_append_time_is_the_maximum_timestamp() -> None:
    header = checked(build_batch([(1000, b"k", b"v", ()), (9000, b"k", b"v", ())], log_append_time=5000))
    assert header.is_log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (1000, 5000)


def test_no_records() -> None:
    header = checked(build_batch([], base_offset=5, codec=Codec.GZIP))
    assert (header.count, header.last_offset_delta, header.size) == (0, 0, 61)
    assert (header.base_timestamp, header.max_timestamp) == (-1, -1)


def test_records_keep_their_offsets() -> None:
    records = [Record(12, 1, None, b"a"), Record(15, 2, None, b"b"), Record(2**31 + 9, 3, None, b"c")]
    data = build_batch(records, base_offset=10)
    header = checked(data)
    assert (header.last_offset_delta, header.last_offset, header.count) == (2**31 - 1, 2**31 + 9, 3)
    assert batch_records(data, header) == records


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ([9], "at least 10, but 9 was found"),
        ([12, 12], "at least 13, but 12 was found"),
        ([12, 11], "at least 13, but 11 was found"),
        ([10 + 2**31], "at most 2147483647, but 2147483648 was found"),
    ],
)
def test_offsets_that_do_not_fit_a_batch(offsets: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_batch([Record(offset, 0, None, None) for offset in offsets], base_offset=10)


def test_timestamps_that_are_too_far_apart() -> None:
    with pytest.raises(ValueError, match="too far from -5 for one batch"):
        build_batch([(-5, None, None, ()), (2**63 - 1, None, None, ())])


def test_sealing_takes_encoded_records_as_they_are() -> None:
    data = build_batch([(1000, b"k", b"v", ())])
    header = read_header(data)
    assert seal_batch(header._replace(crc=0, batch_length=0), data[61:]) == data


@pytest.mark.parametrize("commit", [True, False])
def test_markers_come_back(commit: bool) -> None:
    data = end_transaction_marker(
        commit=commit,
        timestamp=123,
        producer_id=9,
        producer_epoch=2,
        coordinator_epoch=33,
        base_offset=70,
        leader_epoch=4,
    )
    header = checked(data)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
    assert (header.base_offset, header.leader_epoch) == (70, 4)
    (record,) = batch_records(data, header)
    assert record.key == (b"\0\0\0\1" if commit else b"\0\0\0\0")
    assert record.value == b"\0\0\0\0\0\x21"
    assert read_marker(record) == read_usual_marker(data) == (commit, 33)


def test_a_marker_of_another_form_is_read_record_by_record() -> None:
    data = end_transaction_marker(commit=True, timestamp=1, producer_id=9, producer_epoch=2, coordinator_epoch=3)
    for position, byte in ((61, 34), (66, 1), (69, 2), (70, 14), (77, 2)):
        other = bytearray(data)
        other[position] = byte
        assert read_usual_marker(other) is None
    assert read_usual_marker(data[:-1]) is None


@pytest.mark.parametrize("producer", [(-1, -1), (7, 3)])
def test_an_own_batch_is_what_the_builder_builds(producer: tuple[int, int]) -> None:
    rows = [(b"key", b"value"), (b"", None), (b"k" * 200, b"v" * 20_000)] * 30
    transactional = producer[0] >= 0
    own = OwnBatch(rows, 1234, 16 if transactional else 0, *producer)
    data, header = seal_own_batch(own, 77, 5)
    expected = build_batch(
        [(1234, key, value, ()) for key, value in rows],
        producer_id=producer[0],
        producer_epoch=producer[1],
        transactional=transactional,
    )
    stamped = checked(bytearray(data))
    assert stamped == header == checked(expected)._replace(base_offset=77, leader_epoch=5)
    assert data[16:] == expected[16:]


def test_markers_of_a_later_version_are_read() -> None:
    assert read_marker(Record(0, 0, b"\0\1\0\1more", b"\0\1\0\0\0\7more")) == (True, 7)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (None, b"\0\0\0\0\0\1", "key of a marker has at least 4 bytes: None"),
        (b"\0\0\0", b"\0\0\0\0\0\1", "key of a marker"),
        (b"\0\0\0\1", None, "value of a marker has at least 6 bytes: None"),
        (b"\0\0\0\1", b"\0\0\0\0\0", "value of a marker"),
        (b"\0\0\0\2", b"\0\0\0\0\0\1", "0 \\(abort\\) or 1 \\(commit\\), but 2 was found"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\1", "0 or later, but -1 was found"),
    ],
)
def test_bad_markers_are_refused(key: bytes | None, value: bytes | None, words: str) -> None:
    with pytest.raises(CorruptRecordError, match=words):
        read_marker(Record(0, 0, key, value))
