"""The validator on a leader: what is refused, with which answer, and what is stamped into a batch."""

import random
import tracemalloc
from typing import Any

import pytest
from hypothesis import given

from barnabas.config import LONG_MAX, LogConfig
from barnabas.records.batch import BatchHeader, read_header
from barnabas.records.builder import build_batch
from barnabas.records.codecs import CODEC_NAMES, Codec, compress
from barnabas.records.kernel import encode_records
from barnabas.records.record import Record
from barnabas.storage.validator import (
    LeaderStamp,
    validate_for_leader,
)
from barnabas.wire.errors import ApiError, ErrorCode
from tests.records.message_sets import build_message, build_message_set
from tests.records.strategies import Mutation, mutated, mutations
from tests.storage.builders import (
    NOW_MS,
    batch_of,
    marker_of,
    records_in,
    refused,
    sent_by,
    with_body,
    with_fields,
)

NEXT_OFFSET = 100
LEADER_EPOCH = 7
CODECS = list(Codec)
COMPRESSION_TYPES = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]

Validated = tuple[memoryview, list[BatchHeader]]


def as_leader(data: bytes | bytearray | memoryview, *, is_client: bool = True, **settings: Any) -> Validated:
    """Validate as a leader whose log ends at NEXT_OFFSET."""
    leader = LeaderStamp(NEXT_OFFSET, LEADER_EPOCH, NOW_MS, is_client)
    return validate_for_leader(data, LogConfig(**settings), leader)


def is_nothing(validated: Validated) -> bool:
    """Whether nothing is appended."""
    data, headers = validated
    return len(data) == 0 and headers == []


def rows(*keys: bytes | None, timestamp_deltas: tuple[int, ...] = ()) -> bytes:
    """The records section with these keys."""
    deltas = timestamp_deltas or (0,) * len(keys)
    section = encode_records([(deltas[place], place, key, b"value", ()) for place, key in enumerate(keys)])
    return bytes(section)


# Offsets and what else is stamped.


def test_a_batch_gets_offsets_and_epoch_and_keeps_its_checksum() -> None:
    sent = batch_of(3)
    data, [header] = as_leader(sent)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (NEXT_OFFSET, 102, LEADER_EPOCH)
    assert read_header(data) == header
    assert [record.offset for record in records_in(data)] == [100, 101, 102]
    assert bytes(data[16:]) == bytes(batch_of(3)[16:])


def test_batches_of_one_append_follow_each_other() -> None:
    data, headers = as_leader(batch_of(3) + batch_of(1) + batch_of(2))
    assert [header.base_offset for header in headers] == [100, 103, 104]
    assert [record.offset for record in records_in(data)] == list(range(100, 106))


def test_writable_bytes_are_stamped_in_place() -> None:
    sent = batch_of(3)
    data, _ = as_leader(sent)
    assert read_header(sent).base_offset == NEXT_OFFSET
    assert data.obj is sent


def test_a_slice_of_a_larger_request_is_stamped_in_place() -> None:
    request = b"before" + batch_of(3) + b"after"
    buffer = bytearray(request)
    as_leader(memoryview(buffer)[6:-5])
    assert read_header(buffer, 6).base_offset == NEXT_OFFSET
    assert buffer[:6] == b"before"
    assert buffer[-5:] == b"after"


@pytest.mark.parametrize("wrap", [bytes, lambda data: memoryview(bytes(data))], ids=["bytes", "view"])
def test_bytes_that_can_not_be_written_stay_untouched(wrap: Any) -> None:
    sent = wrap(batch_of(3, base_offset=5))
    before = bytes(sent)
    data, _ = as_leader(sent)
    assert bytes(sent) == before
    assert read_header(data).base_offset == NEXT_OFFSET


# Lengths, magic, checksum.


def test_an_empty_set_appends_nothing() -> None:
    assert is_nothing(as_leader(b""))


def test_an_incomplete_last_batch_is_cut_off_wherever_it_ends() -> None:
    whole, second = batch_of(2), batch_of(3)
    for size in range(len(second)):
        data, headers = as_leader(whole + second[:size])
        assert [header.count for header in headers] == [2]
        assert len(data) == len(whole)


def test_a_set_without_a_complete_batch_appends_nothing() -> None:
    whole = batch_of(2)
    for size in range(len(whole)):
        assert is_nothing(as_leader(whole[:size]))


@pytest.mark.parametrize("length", [-(2**31), -100, -13, -12, -1, 0, 1, 13, 14, 48])
def test_a_length_that_no_batch_has_is_corrupt(length: int) -> None:
    batch = with_fields(batch_of(), batch_length=length)
    with refused(ErrorCode.CORRUPT_MESSAGE):
        as_leader(batch)
    with refused(ErrorCode.CORRUPT_MESSAGE):
        as_leader(batch_of() + batch)


@pytest.mark.parametrize("length", [49, 55])
def test_a_length_that_cuts_the_batch_short_is_corrupt(length: int) -> None:
    with refused(ErrorCode.CORRUPT_MESSAGE, "checksum"):
        as_leader(with_fields(batch_of(), batch_length=length))


def test_a_length_past_the_end_is_an_incomplete_batch_and_takes_no_memory() -> None:
    batch = with_fields(batch_of(), batch_length=2**31 - 1)
    tracemalloc.start()
    try:
        assert is_nothing(as_leader(batch))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("magic", [3, 100, 127, -1, -128])
def test_an_unknown_magic_is_corrupt(magic: int) -> None:
    with refused(ErrorCode.CORRUPT_MESSAGE, "magic"):
        as_leader(with_fields(batch_of(), magic=magic))


@pytest.mark.parametrize("place", [17, 20, 21, 23, 30, 60, 61, 70, -1])
def test_a_changed_byte_is_a_wrong_checksum(place: int) -> None:
    batch = batch_of(3)
    batch[place] ^= 0x40
    with refused(ErrorCode.CORRUPT_MESSAGE):
        as_leader(batch)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    with refused(ErrorCode.INVALID_RECORD, "codec"):
        as_leader(with_fields(batch_of(), attributes=codec))


def test_nothing_of_an_append_with_a_bad_second_batch_is_kept() -> None:
    with refused(ErrorCode.CORRUPT_MESSAGE, "checksum"):
        as_leader(batch_of() + with_fields(batch_of(), crc=1))


# Counts and records.


@pytest.mark.parametrize(
    "fields",
    [
        {"count": 2},
        {"count": 0},
        {"count": 4},
        {"count": -1},
        {"last_offset_delta": 3},
        {"last_offset_delta": 1},
        {"last_offset_delta": -1},
        {"last_offset_delta": 2**31 - 1},
        {"count": 4, "last_offset_delta": 3},
        {"count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
    ],
)
def test_counts_that_disagree_are_refused(fields: dict[str, int]) -> None:
    """The checksum is right, so the client means it: an error that makes it try again would make it try for ever."""
    with refused(ErrorCode.INVALID_RECORD):
        as_leader(with_fields(batch_of(3), **fields))


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_without_records_is_refused(codec: Codec) -> None:
    with refused(ErrorCode.INVALID_RECORD):
        as_leader(build_batch([], codec=codec))


#  length 7: attributes 0, timestamp delta 0, offset delta 0, key length -1 (01), value length 0, headers 0
ONE_RECORD = bytes.fromhex("0c 00 00 00 01 00 00")


def test_the_record_that_the_damaged_ones_are_made_of_is_fine() -> None:
    _, [header] = as_leader(with_body(batch_of(), ONE_RECORD))
    assert header.count == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("0e 00 00 00 01 00 00", "past the end"),
        ("fe ff ff ff 0f 00 00 00 01 00 00", "past the end"),
        ("0d 00 00 00 01 00 00", "fewer than 0"),
        ("00", "field that runs past"),
        ("80 80 80 80 80 00", "varint"),
        ("ff ff ff ff ff 0f", "varint"),
        ("16 00 80 80 80 80 80 80 80 80 80 80 01", "varint"),
        ("14 00 00 80 80 80 80 80 00 00 00", "varint"),
        ("0c 00 00 00 02 00 00", "past the end of the record"),
        ("0c 00 00 00 03 00 00", "key length"),
        ("0c 00 00 00 01 03 00", "value length"),
        ("0c 00 00 00 01 02 00", "past the end of the record"),
        ("0c 00 00 00 01 00 01", "negative header count"),
        ("0c 00 00 00 01 00 02", "past the end of the record"),
        ("14 00 00 00 01 00 fe ff ff ff 0f", "past the end of the record"),
        ("10 00 00 00 01 00 02 01 00", "negative key length"),
        ("10 00 00 00 01 00 02 00 03", "value length below -1"),
        ("0e 00 00 00 01 00 00 00", "does not fill"),
        ("0c 00 00 02 01 00 00", "offset delta"),
        ("0c 00 00 01 01 00 00", "offset delta"),
        ("0c 00 00 00 01 00 00 00", "bytes follow"),
        ("0c 00 00 00 01 00 00 0c 00 00 02 01 00 00", "bytes follow"),
        ("", "missing"),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_bad_record_under_a_right_checksum_is_invalid(codec: Codec, body: str, words: str) -> None:
    section = compress(codec, bytes.fromhex(body))
    with refused(ErrorCode.INVALID_RECORD, words):
        as_leader(with_body(batch_of(), section, attributes=int(codec)))


def test_offset_deltas_with_a_hole_are_invalid() -> None:
    batch = build_batch([Record(0, NOW_MS, b"a", b"", ()), Record(2, NOW_MS, b"b", b"", ())])
    with refused(ErrorCode.INVALID_RECORD):
        as_leader(batch)
    with refused(ErrorCode.INVALID_RECORD):
        as_leader(with_fields(batch, count=2, last_offset_delta=1))


def test_offset_deltas_that_repeat_are_invalid() -> None:
    section = encode_records([(0, 0, b"a", b"", ()), (0, 0, b"b", b"", ())])
    with refused(ErrorCode.INVALID_RECORD, "offset delta"):
        as_leader(with_body(batch_of(2), bytes(section)))


@given(mutations)
def test_whatever_happens_to_the_bytes_the_answer_is_an_api_error_or_a_valid_append(changes: list[Mutation]) -> None:
    sent = bytes(batch_of(3) + sent_by(1, 0, 2, codec=Codec.LZ4))
    try:
        data, headers = as_leader(mutated(sent, changes))
    except ApiError as error:
        assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    else:
        assert len(records_in(data)) == sum(header.count for header in headers)


@given(mutations)
def test_records_that_went_bad_before_they_were_summed_up_are_refused_or_valid(changes: list[Mutation]) -> None:
    body = mutated(bytes(batch_of(3)[61:]), changes)
    try:
        data, [header] = as_leader(with_body(batch_of(3), body), message_timestamp_after_max_ms=LONG_MAX)
    except ApiError as error:
        assert error.code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)
    else:
        assert len(records_in(data)) == header.count == 3


# Producers and control batches.


def test_a_control_batch_of_a_client_is_invalid() -> None:
    with refused(ErrorCode.INVALID_RECORD, "control"):
        as_leader(marker_of(1, commit=True))
    with refused(ErrorCode.INVALID_RECORD, "control"):
        as_leader(batch_of(control=True))


def test_a_coordinator_may_write_control_batches_and_batches_without_sequence_numbers() -> None:
    _, [header] = as_leader(marker_of(1, commit=True), is_client=False)
    assert header.is_control
    as_leader(batch_of(producer_id=1, producer_epoch=0, transactional=True), is_client=False)


@pytest.mark.parametrize(
    "fields",
    [
        {"transactional": True},
        {"producer_id": 1},
        {"producer_id": 1, "producer_epoch": 0},
        {"producer_id": 1, "base_sequence": 0},
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": -2},
        {"producer_id": 0, "producer_epoch": -1, "base_sequence": 0},
        {"producer_id": -1, "producer_epoch": 0, "base_sequence": 0, "transactional": True},
    ],
)
def test_half_of_what_a_producer_must_say_is_invalid(fields: dict[str, Any]) -> None:
    with refused(ErrorCode.INVALID_RECORD):
        as_leader(batch_of(**fields))


def test_a_producer_that_says_all_it_must_is_taken() -> None:
    _, [header] = as_leader(sent_by(0, 0, 3, transactional=True))
    assert (header.producer_id, header.last_sequence) == (0, 2)


# Compacted topics.


@pytest.mark.parametrize("policy", [("compact",), ("delete", "compact")])
def test_a_record_without_a_key_is_invalid_where_the_topic_is_compacted(policy: tuple[str, ...]) -> None:
    batch = with_body(batch_of(2), rows(b"key", None))
    with refused(ErrorCode.INVALID_RECORD, "1 records have no key"):
        as_leader(batch, cleanup_policy=policy)
    as_leader(batch)


def test_an_empty_key_is_a_key() -> None:
    as_leader(with_body(batch_of(2), rows(b"", b"")), cleanup_policy=("compact",))


# Timestamps.


@pytest.mark.parametrize(
    ("timestamp", "is_allowed"),
    [
        (NOW_MS + 1000, True),
        (NOW_MS + 1001, False),
        (NOW_MS - 2000, True),
        (NOW_MS - 2001, False),
        (0, False),
        (2**63 - 1, False),
        (-1, True),
        (-2, False),
        (-(2**63), False),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_create_time_keeps_timestamps_near_the_clock(codec: Codec, timestamp: int, is_allowed: bool) -> None:
    batch = build_batch([(timestamp, b"key", b"", ())], codec=codec)
    limits: dict[str, Any] = {"message_timestamp_after_max_ms": 1000, "message_timestamp_before_max_ms": 2000}
    if is_allowed:
        data, _ = as_leader(batch, **limits)
        assert [record.timestamp for record in records_in(data)] == [timestamp]
    else:
        with refused(ErrorCode.INVALID_TIMESTAMP, str(timestamp)):
            as_leader(batch, **limits)


@pytest.mark.parametrize("other", [NOW_MS + 3_600_001, NOW_MS - 2001])
def test_every_record_is_looked_at_and_not_only_the_first(other: int) -> None:
    batch = build_batch([(NOW_MS, b"a", b"", ()), (other, b"b", b"", ()), (NOW_MS, b"c", b"", ())])
    with refused(ErrorCode.INVALID_TIMESTAMP):
        as_leader(batch, message_timestamp_before_max_ms=2000)


def test_by_default_the_past_is_allowed_and_more_than_an_hour_ahead_is_not() -> None:
    as_leader(batch_of(timestamp=0))
    as_leader(batch_of(timestamp=NOW_MS + 3_600_000))
    with refused(ErrorCode.INVALID_TIMESTAMP, "after.max.ms"):
        as_leader(batch_of(timestamp=NOW_MS + 3_600_001))


def test_a_header_can_not_hide_a_late_record() -> None:
    batch = with_fields(batch_of(timestamp=NOW_MS + 3_600_001), max_timestamp=NOW_MS)
    with refused(ErrorCode.INVALID_TIMESTAMP):
        as_leader(batch)


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (2**62, 2**62), (-(2**63), -1)])
def test_a_time_that_does_not_fit_into_64_bits_is_refused_even_without_limits(base: int, delta: int) -> None:
    batch = with_body(batch_of(), rows(b"key", timestamp_deltas=(delta,)), base_timestamp=base)
    with refused(ErrorCode.INVALID_TIMESTAMP):
        as_leader(batch, message_timestamp_after_max_ms=LONG_MAX, message_timestamp_before_max_ms=LONG_MAX)


def test_the_broker_s_mark_on_a_batch_of_a_client_is_refused() -> None:
    with refused(ErrorCode.INVALID_TIMESTAMP):
        as_leader(batch_of(log_append_time=NOW_MS))


@pytest.mark.parametrize("wrong", [0, -1, NOW_MS + 1, 2**62])
def test_a_wrong_max_timestamp_in_the_header_is_corrected(wrong: int) -> None:
    data, [header] = as_leader(with_fields(batch_of(3), max_timestamp=wrong))
    assert header.max_timestamp == NOW_MS + 2
    assert read_header(data) == header._replace(crc=read_header(data).crc)
    assert records_in(data) == records_in(as_leader(batch_of(3))[0])


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_is_stamped_and_summed_up(codec: Codec) -> None:
    sent = batch_of(3, timestamp=1000, codec=codec)
    data, [header] = as_leader(sent, message_timestamp_type="LogAppendTime")
    stored = read_header(data)
    assert stored.is_log_append_time
    assert header.is_log_append_time
    assert stored.max_timestamp == header.max_timestamp == NOW_MS
    assert stored.base_timestamp == 1000
    assert stored.codec == codec
    assert [record.timestamp for record in records_in(data)] == [NOW_MS] * 3


def test_log_append_time_takes_any_timestamp() -> None:
    body = rows(b"key", timestamp_deltas=(2**62,))
    batch = with_body(batch_of(log_append_time=5), body, base_timestamp=2**62)
    data, _ = as_leader(batch, message_timestamp_type="LogAppendTime")
    assert records_in(data)[0].timestamp == NOW_MS


# Sizes.


def test_max_message_bytes_is_the_largest_batch() -> None:
    batch = batch_of(3, size=100)
    as_leader(bytes(batch), max_message_bytes=len(batch))
    with refused(ErrorCode.MESSAGE_TOO_LARGE, str(len(batch))):
        as_leader(batch, max_message_bytes=len(batch) - 1)


def test_max_message_bytes_counts_each_batch_by_itself() -> None:
    batch = batch_of(3, size=100)
    _, headers = as_leader(batch + batch, max_message_bytes=len(batch))
    assert len(headers) == 2
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        as_leader(batch + batch_of(3, size=101), max_message_bytes=len(batch))


def test_a_batch_that_is_too_large_before_it_is_compressed_is_refused() -> None:
    batch = batch_of(3, size=1000)
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        as_leader(batch, max_message_bytes=1000, compression_type="gzip")
    small = batch_of(1)
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        as_leader(small + batch, max_message_bytes=1000, compression_type="gzip")


def test_a_batch_that_is_too_large_after_its_codec_changed_is_refused() -> None:
    batch = batch_of(3, size=1000, codec=Codec.GZIP)
    assert len(batch) < 1000
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        as_leader(batch, max_message_bytes=1000, compression_type="uncompressed")


# Codecs.


@pytest.mark.parametrize("compression_type", COMPRESSION_TYPES)
@pytest.mark.parametrize("codec", CODECS)
def test_the_topic_s_codec_wins_and_the_records_stay(codec: Codec, compression_type: str) -> None:
    records = [(NOW_MS + place, b"k%d" % place, bytes(place), ((b"h", b"x"),)) for place in range(50)]
    sent = build_batch(records, codec=codec, producer_id=4, producer_epoch=2, base_sequence=9)
    data, [header] = as_leader(bytes(sent), compression_type=compression_type)
    assert header.codec == read_header(data).codec == CODEC_NAMES[compression_type]
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, 9)
    assert records_in(data) == [
        Record(NEXT_OFFSET + place, *record[:3], tuple(record[3])) for place, record in enumerate(records)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_the_producer_s_codec_is_kept_byte_by_byte(codec: Codec) -> None:
    sent = batch_of(20, codec=codec)
    data, [header] = as_leader(bytes(sent))
    assert header.codec == codec
    assert bytes(data[16:]) == bytes(sent[16:])


def test_batches_with_different_codecs_all_get_the_topic_s() -> None:
    sent = batch_of(2, codec=Codec.GZIP) + batch_of(3) + batch_of(1, codec=Codec.ZSTD) + batch_of(4)[:-1]
    data, headers = as_leader(sent, compression_type="zstd", message_timestamp_type="LogAppendTime")
    assert [header.codec for header in headers] == [Codec.ZSTD] * 3
    assert [record.offset for record in records_in(data)] == list(range(100, 106))
    assert {record.timestamp for record in records_in(data)} == {NOW_MS}


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (with_fields(batch_of(3), crc=1), ErrorCode.CORRUPT_MESSAGE),
        (with_fields(batch_of(3), magic=1), ErrorCode.CORRUPT_MESSAGE),
        (with_fields(batch_of(3), attributes=7), ErrorCode.INVALID_RECORD),
        (with_fields(batch_of(3), batch_length=20)[:32], ErrorCode.CORRUPT_MESSAGE),
        (with_fields(batch_of(3), count=2**31 - 1), ErrorCode.INVALID_RECORD),
    ],
    ids=["checksum", "magic", "codec", "short", "count"],
)
def test_a_bad_batch_behind_one_whose_codec_changes_is_refused(bad: bytearray, code: ErrorCode) -> None:
    with refused(code):
        as_leader(batch_of() + bad, compression_type="gzip")


def test_markers_are_not_compressed() -> None:
    sent = marker_of(1, commit=False)
    data, [header] = as_leader(bytes(sent), is_client=False, compression_type="gzip")
    assert header.codec == Codec.NONE
    assert bytes(data[16:]) == bytes(sent[16:])


@pytest.mark.parametrize("codec", CODECS[1:])
def test_garbage_in_place_of_compressed_records_is_invalid(codec: Codec) -> None:
    garbage = random.Random(3).randbytes(200)
    with refused(ErrorCode.INVALID_RECORD):
        as_leader(with_body(batch_of(), garbage, attributes=int(codec)))
    with refused(ErrorCode.INVALID_RECORD):
        as_leader(with_body(batch_of(), b"", attributes=int(codec)))


@pytest.mark.parametrize("codec", CODECS[1:])
def test_compressed_records_that_end_too_early_are_invalid(codec: Codec) -> None:
    section = bytes(batch_of(100, codec=codec)[61:])
    with refused(ErrorCode.INVALID_RECORD):
        as_leader(with_body(batch_of(100), section[: len(section) // 2], attributes=int(codec)))


@pytest.mark.parametrize("compression_type", ["producer", "uncompressed"])
@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_batch_that_expands_past_the_limit_is_too_large_and_takes_little_memory(
    codec: Codec, compression_type: str
) -> None:
    bomb = batch_of(1, size=64 << 20, codec=codec)
    tracemalloc.start()
    try:
        with refused(ErrorCode.MESSAGE_TOO_LARGE, "expands"):
            as_leader(
                bomb,
                max_message_bytes=len(bomb),
                decompressed_bytes_max=1 << 20,
                compression_type=compression_type,
            )
        # The largest allocation is the first attempt to decompress, which has room for the limit.
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


# Message sets of magic 0 and 1.

MESSAGES = [(0, NOW_MS, b"a", b"1"), (1, NOW_MS + 5, None, b"2"), (2, NOW_MS + 3, b"c", None)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_message_set_becomes_a_batch_with_its_codec(magic: int, codec: Codec) -> None:
    sent = build_message_set(magic, MESSAGES, codec=codec)
    data, [header] = as_leader(sent)
    assert (header.magic, header.codec, header.leader_epoch) == (2, codec, LEADER_EPOCH)
    assert header.max_timestamp == (NOW_MS + 5 if magic else -1)
    assert records_in(data) == [
        Record(NEXT_OFFSET + offset, timestamp if magic else -1, key, value, ())
        for offset, timestamp, key, value in MESSAGES
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("compression_type", COMPRESSION_TYPES)
def test_a_message_set_gets_the_topic_s_codec(magic: int, compression_type: str) -> None:
    data, [header] = as_leader(build_message_set(magic, MESSAGES), compression_type=compression_type)
    assert header.codec == CODEC_NAMES[compression_type]
    assert [record.value for record in records_in(data)] == [b"1", b"2", None]


def test_a_message_set_gets_log_append_time() -> None:
    data, _ = as_leader(build_message_set(0, MESSAGES), message_timestamp_type="LogAppendTime")
    assert [record.timestamp for record in records_in(data)] == [NOW_MS] * 3


def test_a_message_set_is_held_to_the_rules_of_the_topic() -> None:
    with refused(ErrorCode.INVALID_RECORD, "no key"):
        as_leader(build_message_set(1, MESSAGES), cleanup_policy=("compact",))
    with refused(ErrorCode.INVALID_TIMESTAMP):
        as_leader(build_message_set(1, [(0, NOW_MS + 3_600_001, b"a", b"")]))
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        as_leader(build_message_set(1, [(0, NOW_MS, b"a", bytes(1000))]), max_message_bytes=1000)


def test_an_incomplete_last_message_is_cut_off() -> None:
    sent = build_message_set(1, MESSAGES)
    first = len(build_message(1, *MESSAGES[0]))
    for size in range(first):
        assert as_leader(sent[:size])[1] == []
    for size in (first, first + 1, len(sent) - 1):
        assert [header.count for header in as_leader(sent[:size])[1]] == [1 if size < len(sent) - 1 else 2]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_message_is_corrupt(magic: int) -> None:
    sent = build_message_set(magic, MESSAGES)
    for place in (12, 15, 17, 22, 26, len(sent) - 1):
        damaged = bytearray(sent)
        damaged[place] ^= 0x10
        with refused(ErrorCode.CORRUPT_MESSAGE):
            as_leader(damaged)
    for size in (-1, 0, 13):
        with refused(ErrorCode.CORRUPT_MESSAGE):
            as_leader(sent[:8] + size.to_bytes(4, "big", signed=True) + sent[12:])


def test_a_batch_between_messages_is_corrupt() -> None:
    with refused(ErrorCode.CORRUPT_MESSAGE):
        as_leader(build_message(1, *MESSAGES[0]) + batch_of())
    with refused(ErrorCode.CORRUPT_MESSAGE):
        as_leader(batch_of() + build_message_set(1, MESSAGES))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_wrapper_that_expands_past_the_limit_is_too_large(codec: Codec) -> None:
    bomb = build_message_set(1, [(0, NOW_MS, b"a", bytes(16 << 20))], codec=codec)
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        as_leader(bomb, decompressed_bytes_max=1 << 20)


def test_garbage_in_a_wrapper_is_corrupt() -> None:
    with refused(ErrorCode.CORRUPT_MESSAGE):
        as_leader(build_message(1, 0, NOW_MS, None, b"no gzip at all", attributes=1))
