"""What kafka-python and aiokafka write is read here, and what is written here they read, in every format and codec.

kafka-python needs packages of its own for snappy, lz4 and zstd, so it stands for the formats; aiokafka has all codecs.
"""

import importlib
import warnings
from typing import Any

import pytest
from hypothesis import given

from barnabas.records.batch import check_crc, check_header, read_header
from barnabas.records.builder import build_batch, end_transaction_marker
from barnabas.records.codecs import Codec
from barnabas.records.legacy import convert_to_v2, iterate_messages
from barnabas.records.record import Header, Record, batch_records, check_body, records_body
from tests.records.message_sets import build_message_set
from tests.records.strategies import NewRecord, new_records

LIMIT = 1 << 20
LIBRARIES = [("kafka", codec) for codec in (Codec.NONE, Codec.GZIP)] + [("aiokafka", codec) for codec in Codec]
# Neither library has lz4 for magic 0, with its wrong checksum.
OLD_LIBRARIES = [
    (library, codec, magic)
    for library, codec in LIBRARIES
    for magic in (0, 1)
    if codec < Codec.LZ4 or (codec, magic) == (Codec.LZ4, 1)
]

RECORDS: list[NewRecord] = [
    (1_700_000_000_000, b"key", b"value", ((b"name", b"x"), (b"empty", b""), (b"null", None))),
    (1_700_000_000_005, None, b"only value", ()),
    (1_699_999_999_000, b"only key", None, ()),
    (1_700_000_100_000, b"", b"", ()),
    *((1_700_000_000_000 + number, b"k%d" % number, b"v" * number, ()) for number in range(200)),
]
EXPECTED = [Record(offset, *record) for offset, record in enumerate(RECORDS)]


def module(library: str, name: str) -> Any:
    with warnings.catch_warnings():
        # kafka-python reads its own files in a way that Python 3.11 calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(f"{library}.record.{name}")


def text_headers(headers: tuple[Header, ...]) -> list[tuple[str, bytes | None]]:
    return [(name.decode(), value) for name, value in headers]


def theirs_v2(library: str, codec: Codec, records: list[NewRecord], **fields: Any) -> bytes:
    builder = module(library, "default_records").DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=fields.get("transactional", False),
        producer_id=fields.get("producer_id", -1),
        producer_epoch=fields.get("producer_epoch", -1),
        base_sequence=fields.get("base_sequence", -1),
        batch_size=1 << 24,
    )
    for offset, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(offset, timestamp, key, value, text_headers(headers)) is not None
    return bytes(builder.build())


def read_by_them_v2(library: str, data: bytes) -> list[Record]:
    batch = module(library, "default_records").DefaultRecordBatch(data)
    assert batch.validate_crc()
    return [
        Record(
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            tuple((name.encode(), value) for name, value in record.headers),
        )
        for record in batch
    ]


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
def test_their_batches_are_read_here(library: str, codec: Codec) -> None:
    data = theirs_v2(
        library, codec, RECORDS, transactional=True, producer_id=77, producer_epoch=3, base_sequence=2**31 - 2
    )
    header = read_header(data)
    check_header(header, 0)
    check_crc(data, 0, header)
    check_body(records_body(data, header), header, dense=True)
    assert header.codec == codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 2**31 - 2)
    assert header.is_transactional
    assert header.max_timestamp == max(record[0] for record in RECORDS)
    assert batch_records(data, header) == EXPECTED


@pytest.mark.parametrize(("library", "codec"), LIBRARIES)
def test_our_batches_are_read_by_them(library: str, codec: Codec) -> None:
    data = bytes(build_batch(RECORDS, codec=codec, base_offset=1000))
    assert read_by_them_v2(library, data) == [record._replace(offset=1000 + record.offset) for record in EXPECTED]
    stamped = bytes(build_batch(RECORDS, codec=codec, log_append_time=5))
    assert {record.timestamp for record in read_by_them_v2(library, stamped)} == {5}
    holes = bytes(build_batch(EXPECTED[::3], codec=codec))
    assert read_by_them_v2(library, holes) == EXPECTED[::3]


@given(records=new_records.filter(bool))
def test_plain_batches_are_the_same_bytes(records: list[NewRecord]) -> None:
    ascii_records = [
        (timestamp, key, value, tuple((name.hex().encode(), field) for name, field in headers))
        for timestamp, key, value, headers in records
    ]
    theirs = bytearray(theirs_v2("kafka", Codec.NONE, ascii_records))
    ours = build_batch(ascii_records)
    # The leader epoch is the broker's, and producers differ about what they leave in it.
    theirs[12:16] = ours[12:16]
    assert theirs == ours


@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_read_by_kafka_python(commit: bool) -> None:
    data = end_transaction_marker(
        commit=commit, timestamp=5, producer_id=9, producer_epoch=1, coordinator_epoch=33, base_offset=12
    )
    batch = module("kafka", "default_records").DefaultRecordBatch(bytes(data))
    assert batch.is_control_batch
    (record,) = list(batch)
    assert (record.offset, record.commit, record.abort) == (12, commit, not commit)


def theirs_old(library: str, magic: int, codec: Codec) -> bytes:
    builder = module(library, "legacy_records").LegacyRecordBatchBuilder(
        magic=magic, compression_type=int(codec), batch_size=1 << 24
    )
    for offset, (timestamp, key, value, _) in enumerate(RECORDS):
        assert builder.append(offset, timestamp, key, value) is not None
    return bytes(builder.build())


@pytest.mark.parametrize(("library", "codec", "magic"), OLD_LIBRARIES)
def test_their_message_sets_are_converted_here(library: str, codec: Codec, magic: int) -> None:
    data = theirs_old(library, magic, codec)
    messages = list(iterate_messages(data, LIMIT))
    assert [(message.key, message.value) for message in messages] == [(key, value) for _, key, value, _ in RECORDS]
    batch = convert_to_v2(data, LIMIT)
    header = read_header(batch)
    assert header.size == len(batch)
    assert header.codec == codec
    assert batch_records(batch, header) == [
        record._replace(timestamp=record.timestamp if magic else -1, headers=()) for record in EXPECTED
    ]


@pytest.mark.parametrize(("library", "codec", "magic"), OLD_LIBRARIES)
def test_our_message_sets_are_read_by_them(library: str, codec: Codec, magic: int) -> None:
    """So that the sets that the other tests are made of are what they say."""
    messages = [(offset, timestamp, key, value) for offset, (timestamp, key, value, _) in enumerate(RECORDS, 500)]
    data = build_message_set(magic, messages, codec=codec)
    batches = module(library, "memory_records").MemoryRecords(data)
    found = []
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        found += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
    assert found == [(offset, timestamp if magic else None, key, value) for offset, timestamp, key, value in messages]
