"""Formats of a printed record."""

import pytest

from barnabas.cli.record_format import record_formatter
from barnabas.model import TopicPartition
from barnabas.records.record import Record

RECORD = Record(7, 1_700_000_000_123, b"k", b"v\xff\x1b[31m", ((b"a", b"1"), (b"b", None)))
EMPTY = Record(8, -1, None, None)


def formatted(text: str, record: Record = RECORD, *, is_terminal: bool = False) -> bytes:
    return record_formatter(text, null="NULL", is_terminal=is_terminal)(TopicPartition("t", 3), record)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("value", b"v\xff\x1b[31m\n"),
        ("key-value", b"k\tv\xff\x1b[31m\n"),
        ("{topic}-{partition}@{offset} {timestamp}", b"t-3@7 1700000000123\n"),
        ("{time}", b"2023-11-14T22:13:20.123Z\n"),
        ("{headers}", b"a=1,b=NULL\n"),
        (r"{key}\t\n\\\0{{x}}\x", b"k\t\n\\\0{x}\\x\n"),
        ("ключ {key}", "ключ k\n".encode()),
    ],
)
def test_a_line_has_what_the_format_says(text: str, line: bytes) -> None:
    assert formatted(text) == line


def test_null_is_shown_as_asked() -> None:
    assert formatted("key-value", EMPTY) == b"NULL\tNULL\n"
    assert formatted("{time} {timestamp}{headers}", EMPTY) == b"-1 -1\n"
    assert formatted("{time}", EMPTY._replace(timestamp=2**62)) == b"%d\n" % 2**62


def test_json_is_one_object() -> None:
    assert formatted("json").startswith(b'{"topic": "t", "partition": 3, "offset": 7, ')


def test_a_terminal_is_not_given_what_it_would_obey() -> None:
    assert formatted("value", is_terminal=True) == b"v\\xff\\x1b[31m\n"
    assert formatted("value", EMPTY._replace(value="é\t\u202e".encode()), is_terminal=True) == "é\t\\u202e\n".encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{colour}", "{colour} is no field of a record; there are topic, partition"),
        ("{}", "{} is no field"),
        ("{value", "a single { means nothing"),
        ("value}", "a single } means nothing"),
        ("xml", "a format is value, key-value, json, or text with fields like {value}, but 'xml' was given"),
        ("", "a format is"),
    ],
)
def test_a_bad_format_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        formatted(text)
    assert reason in str(refused.value)
