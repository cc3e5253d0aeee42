"""Records as JSON: there and back, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.record_json import BadRecordError, InputRecord, format_record, parse_record
from barnabas.model import TopicPartition
from barnabas.records.record import Record

maybe_bytes = st.none() | st.binary(max_size=20)


@given(maybe_bytes, maybe_bytes, st.lists(st.tuples(st.binary(max_size=5), maybe_bytes)))
def test_what_is_printed_can_be_read(
    key: bytes | None, value: bytes | None, headers: list[tuple[bytes, bytes | None]]
) -> None:
    record = Record(5, 1_700_000_000_000, key, value, tuple(headers))
    line = format_record(TopicPartition("t", 2), record)
    assert "\n" not in line
    assert parse_record(line.encode()) == InputRecord(
        key=key, value=value, headers=tuple(headers), partition=2, timestamp=1_700_000_000_000
    )


def test_text_is_text_and_other_bytes_are_base64() -> None:
    record = Record(5, 6, "ключ".encode(), b"\x00\xff", ((b"h", None),))
    assert json.loads(format_record(TopicPartition("t", 0), record)) == {
        "topic": "t",
        "partition": 0,
        "offset": 5,
        "timestamp": 6,
        "key": "ключ",
        "value": {"base64": "AP8="},
        "headers": [["h", None]],
    }


def test_only_the_value_is_needed() -> None:
    assert parse_record(b'{"value": "v"}') == InputRecord(value=b"v")
    assert parse_record(b'{"value": null, "key": "k"}') == InputRecord(value=None, key=b"k")
    assert parse_record(b'{"value": "", "headers": {"a": "1", "b": null}}').headers == ((b"a", b"1"), (b"b", None))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello", "this is not JSON"),
        (b'{"value": "\xff"}', "this is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'["value"]', "a JSON object is needed"),
        (b'{"key": "k"}', "there is no 'value'"),
        (b'{"value": "v", "kye": "k"}', "'kye' is no field of a record"),
        (b'{"value": 5}', "'value' is text, null or"),
        (b'{"value": {"base64": "A"}}', "'value' is not base64"),
        (b'{"value": {"base64": "\xc3\xa9"}}', "'value' is not base64"),
        (b'{"value": {"base64": "AP8=", "x": 1}}', "'value' is text, null or"),
        (b'{"value": "\\ud800"}', "half of a surrogate pair"),
        (b'{"value": "v", "partition": -1}', "'partition' is a number from 0 to"),
        (b'{"value": "v", "partition": true}', "'partition' is a number"),
        (b'{"value": "v", "timestamp": 9223372036854775808}', "'timestamp' is a number"),
        (b'{"value": "v", "headers": "h"}', "'headers' is an object or a list of pairs"),
        (b'{"value": "v", "headers": ["h"]}', "a pair of name and value"),
        (b'{"value": "v", "headers": [[null, "v"]]}', "can not be null"),
    ],
)
def test_a_bad_line_is_refused_with_the_reason(line: bytes, reason: str) -> None:
    with pytest.raises(BadRecordError) as refused:
        parse_record(line)
    assert reason in str(refused.value)
