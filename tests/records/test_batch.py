"""The header of a v2 batch: fields at their places, faults with position and values."""

import struct

import pytest

from barnabas.records import batch
from barnabas.records.batch import BatchHeader, CorruptRecordError
from barnabas.records.builder import build_batch


def header_with(**fields: int) -> BatchHeader:
    good = batch.read_header(build_batch([(1000, b"k", b"v", ()), (1001, None, None, ())], base_offset=50))
    return good._replace(**fields)


def test_fields_are_where_the_diagram_says() -> None:
    data = bytearray(batch.HEADER.pack(1, 2, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13))
    for position, layout, value in [
        (batch.BASE_OFFSET_POSITION, ">q", 1),
        (batch.LENGTH_POSITION, ">i", 2),
        (batch.LEADER_EPOCH_POSITION, ">i", 3),
        (batch.MAGIC_POSITION, ">b", 2),
        (batch.CRC_POSITION, ">I", 5),
        (batch.ATTRIBUTES_POSITION, ">h", 6),
        (batch.LAST_OFFSET_DELTA_POSITION, ">i", 7),
        (batch.BASE_TIMESTAMP_POSITION, ">q", 8),
        (batch.MAX_TIMESTAMP_POSITION, ">q", 9),
        (batch.PRODUCER_ID_POSITION, ">q", 10),
        (batch.PRODUCER_EPOCH_POSITION, ">h", 11),
        (batch.BASE_SEQUENCE_POSITION, ">i", 12),
        (batch.COUNT_POSITION, ">i", 13),
    ]:
        assert struct.unpack_from(layout, data, position) == (value,)
    assert batch.read_header(b"junk" + data, 4) == (1, 2, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13)


def test_derived_values() -> None:
    header = header_with(attributes=4 | 8 | 16 | 32 | 64)
    assert header.size == header.batch_length + 12
    assert (header.last_offset, header.next_offset) == (51, 52)
    assert header.codec == 4
    assert header.is_log_append_time
    assert header.is_transactional
    assert header.is_control
    assert header.has_delete_horizon
    plain = header_with(attributes=0)
    assert not plain.is_log_append_time
    assert not plain.is_transactional
    assert not plain.is_control
    assert not plain.has_delete_horizon


@pytest.mark.parametrize(
    ("base_sequence", "delta", "last_sequence"),
    [(-1, 5, -1), (0, 0, 0), (7, 3, 10), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 10, 7)],
)
def test_sequences_wrap_to_zero(base_sequence: int, delta: int, last_sequence: int) -> None:
    assert header_with(base_sequence=base_sequence, last_offset_delta=delta).last_sequence == last_sequence


def test_a_header_that_is_cut_off_is_refused() -> None:
    with pytest.raises(CorruptRecordError, match=r"takes 61 bytes, but only 60 are left\. \(at byte 3\)") as caught:
        batch.read_header(bytes(63), 3)
    assert caught.value.position == 3


@pytest.mark.parametrize(
    ("fields", "position", "words"),
    [
        ({"magic": 1}, 16, "magic of a record batch is 2, but 1 was found"),
        ({"magic": -3}, 16, "but -3 was found"),
        ({"batch_length": 48}, 8, "at least 49, but 48 was found"),
        ({"batch_length": 0}, 8, "but 0 was found"),
        ({"batch_length": -1}, 8, "but -1 was found"),
        ({"attributes": 5}, 21, "codec of a batch is 0 to 4, but 5 was found"),
        ({"attributes": 7}, 21, "but 7 was found"),
        ({"last_offset_delta": -1}, 23, "0 or more, but -1 was found"),
        ({"count": -1}, 57, "is 0 to 2, but -1 was found"),
        ({"count": 3}, 57, "is 0 to 2, but 3 was found"),
    ],
)
def test_values_that_no_writer_gives_are_refused(fields: dict[str, int], position: int, words: str) -> None:
    with pytest.raises(CorruptRecordError, match=words) as caught:
        batch.check_header(header_with(**fields), 1000)
    assert caught.value.position == 1000 + position


def test_compacted_batches_may_have_fewer_records_than_offsets() -> None:
    batch.check_header(header_with(count=0), 0)
    batch.check_header(header_with(count=1), 0)
    batch.check_header(header_with(count=1, last_offset_delta=2**31 - 1), 0)


def test_every_flipped_bit_behind_the_crc_is_noticed() -> None:
    good = build_batch([(1000, b"key", b"value", ((b"h", b"v"),))])
    header = batch.read_header(good)
    batch.check_crc(good, 0, header)
    for position in range(batch.ATTRIBUTES_POSITION, len(good)):
        bad = bytearray(good)
        bad[position] ^= 0x10
        with pytest.raises(CorruptRecordError, match="The checksum of the batch is 0x") as caught:
            batch.check_crc(b"##" + bad, 2, batch.read_header(bad))
        assert caught.value.position == 2 + batch.CRC_POSITION


def test_a_batch_that_is_cut_off_has_no_checksum() -> None:
    good = build_batch([(1000, b"key", b"value", ())])
    with pytest.raises(CorruptRecordError, match=f"takes {len(good)} bytes, but only {len(good) - 1} are left"):
        batch.check_crc(good[:-1], 0, batch.read_header(good))


def test_stamping_keeps_the_checksum_right() -> None:
    data = bytearray(b"....") + build_batch([(1000, b"key", b"value", ())])
    before = batch.read_header(data, 4)
    batch.stamp(data, 4, batch.read_header(data, 4)._replace(base_offset=123456789012, leader_epoch=42))
    after = batch.read_header(data, 4)
    assert after == before._replace(base_offset=123456789012, leader_epoch=42)
    batch.check_crc(data, 4, after)


def test_the_checksum_is_made_anew_after_a_change() -> None:
    data = bytearray(b"....") + build_batch([(1000, b"key", b"value", ())])
    struct.pack_into(">q", data, 4 + batch.MAX_TIMESTAMP_POSITION, 5)
    with pytest.raises(CorruptRecordError):
        batch.check_crc(data, 4, batch.read_header(data, 4))
    batch.restamp_crc(data, 4, len(data) - 4)
    batch.check_crc(memoryview(data), 4, batch.read_header(data, 4))
