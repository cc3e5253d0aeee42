"""Message sets of magic 0 and 1: read where they are, refused when damaged, and converted for a producer."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.records import legacy
from barnabas.records.batch import CorruptRecordError, check_crc, check_header, read_header
from barnabas.records.codecs import Codec, DecompressionLimitError
from barnabas.records.legacy import (
    LegacyMessage,
    check_message,
    convert_to_v2,
    iterate_messages,
    message_header,
)
from barnabas.records.record import Record, batch_records, check_body, records_body
from tests.records.message_sets import Message, build_message, build_message_set, compress_for
from tests.records.strategies import Mutation, mutated, mutations, nullable_bytes

LIMIT = 1 << 20
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
WRAPPING = OLD_CODECS[1:]
MESSAGES: list[Message] = [(40, 1000, b"k", b"v"), (41, 900, None, b"w"), (43, 1100, b"", None)]


def expected(magic: int, codec: Codec, messages: list[Message] = MESSAGES) -> list[LegacyMessage]:
    time_type = -1 if magic == 0 else 0
    return [
        LegacyMessage(offset, magic, -1 if magic == 0 else timestamp, time_type, key, value, codec)
        for offset, timestamp, key, value in messages
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_messages_have_absolute_offsets(magic: int, codec: Codec) -> None:
    data = build_message_set(magic, MESSAGES, codec=codec)
    assert list(iterate_messages(data, LIMIT)) == expected(magic, codec)
    assert list(iterate_messages(memoryview(data), LIMIT)) == expected(magic, codec)


def test_wrappers_are_given_as_they_are_when_not_deep() -> None:
    plain = build_message_set(1, MESSAGES)
    wrapped = build_message_set(1, MESSAGES, codec=Codec.GZIP)
    messages = list(iterate_messages(plain + wrapped, LIMIT, deep=False))
    assert [(message.offset, message.codec) for message in messages] == [(40, 0), (41, 0), (43, 0), (43, 1)]


def test_a_wrappers_log_append_time_holds_for_its_messages() -> None:
    data = build_message_set(1, MESSAGES, codec=Codec.GZIP, log_append_time=7777)
    assert [(m.timestamp, m.timestamp_type) for m in iterate_messages(data, LIMIT)] == [(7777, 1)] * 3


def test_relative_offsets_count_back_from_the_wrapper() -> None:
    data = build_message_set(1, MESSAGES, codec=Codec.GZIP, wrapper_offset=1003)
    assert [message.offset for message in iterate_messages(data, LIMIT)] == [1000, 1001, 1003]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_truncated_last_message_is_left_out(magic: int, codec: Codec) -> None:
    whole = build_message_set(magic, MESSAGES, codec=codec)
    last = build_message(magic, 44, 0, b"key", b"value")
    for size in range(len(last)):
        assert list(iterate_messages(whole + last[:size], LIMIT)) == expected(magic, codec)
    assert len(list(iterate_messages(whole + last, LIMIT))) == 4
    assert list(iterate_messages(b"", LIMIT)) == []


def test_headers_for_a_walk() -> None:
    data = b"##" + build_message(1, 7, 1234, b"k", b"v", attributes=8) + build_message(0, 8, -1, b"k", None)
    first = message_header(data, 2)
    assert (first.offset, first.magic, first.attributes, first.timestamp) == (7, 1, 8, 1234)
    assert (first.codec, first.timestamp_type) == (0, 1)
    second = message_header(data, 2 + first.size)
    assert (second.offset, second.magic, second.timestamp, second.timestamp_type) == (8, 0, -1, -1)
    assert 2 + first.size + second.size == len(data)
    assert check_message(data, 2) == first


def test_headers_that_are_cut_off() -> None:
    data = build_message(1, 7, 1234, b"k", b"v")
    for size in range(26):
        with pytest.raises(CorruptRecordError, match=rf"takes (18|26) bytes, but only {size} are left"):
            message_header(data[:size], 0)
    with pytest.raises(CorruptRecordError, match=f"takes {len(data)} bytes, but only {len(data) - 1} are left"):
        check_message(data[:-1], 0)


def damaged(layout: str, position: int, value: int, *, magic: int = 1) -> bytes:
    """A message with one field changed, and the checksum made right again unless that is the field."""
    data = bytearray(build_message(magic, 7, 1234, b"key", b"value"))
    struct.pack_into(layout, data, position, value)
    if position > 12:
        struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "position", "words"),
    [
        (damaged(">i", 8, 21), 8, "magic 1 is at least 22, but 21 was found"),
        (damaged(">i", 8, 13, magic=0), 8, "magic 0 is at least 14, but 13 was found"),
        (damaged(">i", 8, 0), 8, "but 0 was found"),
        (damaged(">i", 8, -1), 8, "but -1 was found"),
        (damaged(">I", 12, 5), 12, "The checksum of the message is 0x[0-9a-f]{8}, but its header says 0x00000005"),
        (damaged(">b", 16, 2), 16, "magic of a message is 0 or 1, but 2 was found"),
        (damaged(">b", 16, -1), 16, "but -1 was found"),
        (damaged(">b", 17, 4), 17, "codec of a message is 0 to 3, but 4 was found"),
        (damaged(">b", 17, 7), 17, "but 7 was found"),
        (damaged(">i", 26, -2), 26, "key of the message has -1 to 12 bytes, but its length is -2"),
        (damaged(">i", 26, 13), 26, "key of the message has -1 to 12 bytes, but its length is 13"),
        (damaged(">i", 26, 9), 39, "message ends before the length of its value"),
        (damaged(">i", 33, -2), 33, "value of the message has -1 to 5 bytes, but its length is -2"),
        (damaged(">i", 33, 6), 33, "value of the message has -1 to 5 bytes, but its length is 6"),
        (damaged(">i", 33, 4), 0, "takes 42 bytes, but its value ends after 41"),
        (damaged(">i", 33, -1), 0, "takes 42 bytes, but its value ends after 37"),
    ],
)
def test_bad_messages_are_named(data: bytes, position: int, words: str) -> None:
    before = build_message(1, 6, 0, None, b"before")
    with pytest.raises(CorruptRecordError, match=words) as caught:
        check_message(before + data, len(before))
    assert caught.value.position == len(before) + position
    with pytest.raises(CorruptRecordError, match=words):
        list(iterate_messages(before + data, LIMIT))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", WRAPPING)
def test_bad_wrappers_are_refused(magic: int, codec: Codec) -> None:
    plain = build_message(magic, 0, 5, b"k", b"v")

    def wrap(inner: bytes) -> bytes:
        return build_message(magic, 0, 5, None, compress_for(magic, codec, inner), attributes=codec)

    def refusal(data: bytes) -> str:
        before = build_message(magic, 0, 5, None, b"before")
        with pytest.raises(CorruptRecordError) as caught:
            list(iterate_messages(before + data, LIMIT))
        assert caught.value.position >= len(before)
        return caught.value.reason

    assert len(list(iterate_messages(wrap(plain), LIMIT))) == 1
    assert "one is compressed again" in refusal(wrap(plain + wrap(plain)))
    assert f"but {1 - magic} was found" in refusal(wrap(build_message(1 - magic, 0, 5, b"k", b"v")))
    assert f"but {1 - magic} was found" in refusal(wrap(plain + build_message(1 - magic, 0, 5, b"k", b"v")))
    assert "magic of a message is 0 or 1, but 9" in refusal(wrap(plain[:16] + b"\x09" + plain[17:]))
    assert "The checksum of the message" in refusal(wrap(plain[:-1] + b"!"))
    assert "inside a compressed message" in refusal(wrap(plain + plain[:-1]))
    assert "inside a compressed message" in refusal(wrap(plain + b"x"))
    assert "at least one message, but none was found" in refusal(wrap(b""))
    assert "its value is null" in refusal(build_message(magic, 0, 5, None, None, attributes=codec))
    assert f"{codec.name.lower()} " in refusal(build_message(magic, 0, 5, None, b"\xffgarbage", attributes=codec))


def test_zstd_came_after_these_formats() -> None:
    data = build_message_set(1, MESSAGES, codec=Codec.ZSTD)
    with pytest.raises(CorruptRecordError, match="codec of a message is 0 to 3, but 4 was found"):
        list(iterate_messages(data, LIMIT))


@pytest.mark.parametrize("codec", WRAPPING)
def test_the_limit_is_for_all_wrappers_together(codec: Codec) -> None:
    data = build_message_set(1, [(0, 5, None, bytes(60_000))], codec=codec)
    assert len(list(iterate_messages(data, 100_000))) == 1
    with pytest.raises(CorruptRecordError, match="bytes allowed") as caught:
        list(iterate_messages(data + data, 100_000))
    assert isinstance(caught.value.__cause__, DecompressionLimitError)
    with pytest.raises(CorruptRecordError, match="bytes allowed"):
        convert_to_v2(data + data, 100_000)


def converted(data: bytes) -> list[tuple[Codec, list[Record]]]:
    """The batches that a set becomes, each checked as an append checks it."""
    batches = bytes(convert_to_v2(data, LIMIT))
    result = []
    position = 0
    while position < len(batches):
        header = read_header(batches, position)
        check_header(header, position)
        check_crc(batches, position, header)
        check_body(records_body(batches, header, position), header, position, dense=True)
        records = batch_records(batches, header, position)
        assert header.max_timestamp == max(record.timestamp for record in records)
        result.append((Codec(header.codec), records))
        position += header.size
    return result


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_producers_set_becomes_one_batch(magic: int, codec: Codec) -> None:
    data = build_message_set(magic, MESSAGES, codec=codec)
    records = [
        Record(offset, -1 if magic == 0 else timestamp, key, value)
        for offset, (_, timestamp, key, value) in enumerate(MESSAGES)
    ]
    assert converted(data) == [(codec, records)]
    # Offsets in a producer's set mean nothing: all may be 0, wrapper and all.
    zeros: list[Message] = [(0, *message[1:]) for message in MESSAGES]
    assert converted(build_message_set(magic, zeros, codec=codec)) == [(codec, records)]


def test_each_run_of_a_codec_becomes_a_batch() -> None:
    data = b"".join(
        build_message_set(magic, [(0, 5, None, value)], codec=codec)
        for magic, codec, value in [
            (0, Codec.NONE, b"a"),
            (1, Codec.NONE, b"b"),
            (1, Codec.GZIP, b"c"),
            (1, Codec.GZIP, b"d"),
            (1, Codec.LZ4, b"e"),
            (1, Codec.NONE, b"f"),
        ]
    )
    assert [
        (codec, [(record.offset, record.timestamp, record.value) for record in records])
        for codec, records in converted(data)
    ] == [
        (Codec.NONE, [(0, -1, b"a"), (1, 5, b"b")]),
        (Codec.GZIP, [(2, 5, b"c"), (3, 5, b"d")]),
        (Codec.LZ4, [(4, 5, b"e")]),
        (Codec.NONE, [(5, 5, b"f")]),
    ]


def test_many_messages_are_converted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "_CONVERT_COUNT", 7)
    messages: list[Message] = [(number, 1000 - number, None, b"%d" % number) for number in range(50)]
    ((_, records),) = converted(build_message_set(1, messages, codec=Codec.SNAPPY))
    assert records == [Record(*message) for message in messages]


def test_a_set_without_a_whole_message_gives_no_batch() -> None:
    assert convert_to_v2(b"", LIMIT) == b""
    assert convert_to_v2(build_message(1, 0, 0, None, b"v")[:-1], LIMIT) == b""


@pytest.mark.parametrize("times", [[-2], [-(2**63)], [-1, 2**63 - 1]])
def test_times_that_no_batch_can_hold_are_refused(times: list[int]) -> None:
    data = build_message_set(1, [(0, timestamp, None, b"v") for timestamp in times])
    with pytest.raises(CorruptRecordError, match=f"but {times[-1]} was found"):
        convert_to_v2(data, LIMIT)
    assert [message.timestamp for message in iterate_messages(data, LIMIT)] == times


message_lists: st.SearchStrategy[list[Message]] = st.lists(
    st.tuples(st.just(0), st.integers(-1, 2**62), nullable_bytes, nullable_bytes), min_size=1, max_size=6
)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
@given(messages=message_lists)
def test_any_set_is_converted(magic: int, codec: Codec, messages: list[Message]) -> None:
    records = [
        Record(offset, -1 if magic == 0 else timestamp, key, value)
        for offset, (_, timestamp, key, value) in enumerate(messages)
    ]
    assert converted(build_message_set(magic, messages, codec=codec)) == [(codec, records)]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", OLD_CODECS)
@given(messages=message_lists, changes=mutations)
def test_damage_is_refused_or_trimmed(
    magic: int, codec: Codec, messages: list[Message], changes: list[Mutation]
) -> None:
    data = mutated(build_message_set(magic, messages, codec=codec), changes)
    try:
        convert_to_v2(data, 100_000)
    except CorruptRecordError as error:
        assert error.reason.endswith(".")
        assert 0 <= error.position <= len(data)
