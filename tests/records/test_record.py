"""The records of one batch: absolute offsets and times, every codec, and damage in the section."""

import struct

import pytest
from hypothesis import given

from barnabas.records import batch
from barnabas.records.batch import BatchHeader, CorruptRecordError, read_header, restamp_crc
from barnabas.records.builder import build_batch, seal_batch
from barnabas.records.codecs import Codec, DecompressionLimitError
from barnabas.records.record import Record, batch_records, check_body, records_body
from tests.records.strategies import Mutation, NewRecord, mutated, mutations, new_records

NEW: list[NewRecord] = [
    (1000, b"k", b"v", ((b"h", b"1"), (b"h", None))),
    (990, None, b"w", ()),
    (1010, b"", None, ((b"", b""),)),
]
EXPECTED = [
    Record(50, 1000, b"k", b"v", ((b"h", b"1"), (b"h", None))),
    Record(51, 990, None, b"w", ()),
    Record(52, 1010, b"", None, ((b"", b""),)),
]


@pytest.mark.parametrize("codec", list(Codec))
def test_offsets_and_times_are_absolute(codec: Codec) -> None:
    data = build_batch(NEW, base_offset=50, codec=codec)
    header = read_header(data)
    assert batch_records(data, header) == EXPECTED
    assert batch_records(b"...." + data + b"behind", header, 4) == EXPECTED
    assert batch_records(memoryview(data), header) == EXPECTED


@pytest.mark.parametrize("codec", list(Codec))
@given(records=new_records)
def test_any_records_come_back(codec: Codec, records: list[NewRecord]) -> None:
    data = build_batch(records, base_offset=7, codec=codec)
    header = read_header(data)
    batch.check_header(header, 0)
    batch.check_crc(data, 0, header)
    check_body(records_body(data, header), header, dense=bool(records))
    assert batch_records(data, header) == [Record(7 + delta, *record) for delta, record in enumerate(records)]


def test_log_append_time_is_the_time_of_every_record() -> None:
    data = build_batch(NEW, base_offset=50, log_append_time=5000)
    assert [record.timestamp for record in batch_records(data, read_header(data))] == [5000, 5000, 5000]


def test_with_a_delete_horizon_deltas_count_from_it() -> None:
    data = build_batch(NEW)
    struct.pack_into(">h", data, batch.ATTRIBUTES_POSITION, batch.DELETE_HORIZON)
    struct.pack_into(">q", data, batch.BASE_TIMESTAMP_POSITION, 2000)
    assert [record.timestamp for record in batch_records(data, read_header(data))] == [2000, 1990, 2010]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_that_lost_all_its_records(codec: Codec) -> None:
    """The cleaner keeps the header alone, whatever its codec says."""
    header = read_header(build_batch(NEW, codec=codec))._replace(count=0)
    data = seal_batch(header, b"")
    assert len(data) == batch.HEADER_SIZE
    assert batch_records(data, read_header(data)) == []


def test_a_batch_that_is_cut_off_is_refused() -> None:
    data = build_batch(NEW)
    with pytest.raises(CorruptRecordError, match=f"takes {len(data)} bytes, but only {len(data) - 1} are left"):
        batch_records(data[:-1], read_header(data))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_expands_past_the_limit_is_refused(codec: Codec) -> None:
    data = build_batch([(0, None, bytes(100_000), ())], codec=codec)
    header = read_header(data)
    assert len(batch_records(data, header, limit=100_100)) == 1
    with pytest.raises(CorruptRecordError, match="more than the 100000 bytes allowed") as caught:
        batch_records(b"#" + data, header, 1, limit=100_000)
    assert isinstance(caught.value.__cause__, DecompressionLimitError)
    assert caught.value.position == 1 + batch.HEADER_SIZE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_section_that_is_not_of_its_codec_is_refused(codec: Codec) -> None:
    data = build_batch(NEW)
    struct.pack_into(">h", data, batch.ATTRIBUTES_POSITION, codec)
    with pytest.raises(CorruptRecordError, match="at byte 61"):
        batch_records(data, read_header(data))


def changed(data: bytearray, **fields: int) -> tuple[bytearray, BatchHeader]:
    header = read_header(data)._replace(**fields)
    return data, header


def test_faults_have_the_position_of_the_record() -> None:
    data = build_batch(NEW)
    first_size = 1 + data[batch.HEADER_SIZE] // 2
    with pytest.raises(CorruptRecordError, match="is missing: the records end before the count is reached"):
        batch_records(*changed(data, count=4))
    with pytest.raises(CorruptRecordError, match="is the last of the count, but bytes follow it"):
        batch_records(*changed(data, count=2))
    data[batch.HEADER_SIZE + first_size] = 1
    with pytest.raises(CorruptRecordError, match="of 3 records has a length of fewer than 0 bytes") as caught:
        batch_records(data, read_header(data))
    assert caught.value.position == batch.HEADER_SIZE + first_size


def test_faults_inside_compression_have_the_position_of_the_section() -> None:
    data, header = changed(build_batch(NEW, codec=Codec.LZ4), count=2)
    with pytest.raises(CorruptRecordError, match="decompressed bytes of 2 records is the last of the count") as caught:
        batch_records(b"##" + data, header, 2)
    assert caught.value.position == 2 + batch.HEADER_SIZE


def test_holes_are_a_fault_only_in_a_producers_batch() -> None:
    data = build_batch([EXPECTED[0], EXPECTED[2]], base_offset=50)
    header = read_header(data)
    body = records_body(data, header)
    check_body(body, header)
    with pytest.raises(CorruptRecordError, match="count does not agree with the last offset delta"):
        check_body(body, header, dense=True)


@pytest.mark.parametrize("codec", list(Codec))
@given(records=new_records, changes=mutations)
def test_damage_is_refused_or_decodes(codec: Codec, records: list[NewRecord], changes: list[Mutation]) -> None:
    """Even with a checksum that was made right again, nothing but CorruptRecordError comes out of damaged bytes."""
    data = bytearray(mutated(build_batch(records, codec=codec), changes))
    try:
        header = read_header(data)
        batch.check_header(header, 0)
        if header.size <= len(data):
            restamp_crc(data, 0, header.size)
            header = read_header(data)
        batch.check_crc(data, 0, header)
        decoded = batch_records(data, header, limit=100_000)
    except CorruptRecordError as error:
        assert error.reason.endswith(".")
        assert 0 <= error.position <= len(data)
        return
    assert len(decoded) == header.count
