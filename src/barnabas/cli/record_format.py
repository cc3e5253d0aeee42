r"""How `barnabas consume` prints a record: `value`, `key-value`, `json`, or a line with fields in braces.

    {partition}:{offset} {time} {key}\t{value}

Rule 1: what is piped is the bytes of the record, unchanged. In a terminal, whatever is not printable is shown as an
escape, because a terminal would obey it.
"""

import re
from collections.abc import Callable

from barnabas.cli.record_json import format_record
from barnabas.cli.times import time_text
from barnabas.model import TopicPartition
from barnabas.records.record import Record

FIELDS = ("topic", "partition", "offset", "timestamp", "time", "key", "value", "headers")
NAMED = {"value": "{value}", "key-value": r"{key}\t{value}"}
JSON = "json"

_ESCAPES = {r"\t": b"\t", r"\n": b"\n", r"\r": b"\r", r"\0": b"\0", "\\\\": b"\\", "{{": b"{", "}}": b"}"}
_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<field>[^{}]*)\}|\\[tnr0\\]|[{}]|[^{}\\]+|\\")

FormatRecord = Callable[[TopicPartition, Record], bytes]
_Part = bytes | str


def parse_format(text: str) -> list[_Part]:
    """Return a format as bytes to print and names of fields; raises ValueError with a sentence."""
    text = NAMED.get(text, text)
    parts: list[_Part] = []
    for token in _TOKEN.finditer(text):
        word, field = token.group(), token.group("field")
        if field is not None:
            if field not in FIELDS:
                raise ValueError(f"{{{field}}} is no field of a record; there are {', '.join(FIELDS)}")
            parts.append(field)
        elif word in ("{", "}"):
            raise ValueError(f"a single {word} means nothing; write {word * 2} for one")
        else:
            parts.append(_ESCAPES.get(word, word.encode(errors="surrogateescape")))
    if not any(isinstance(part, str) for part in parts):
        named = ", ".join([*NAMED, JSON])
        raise ValueError(f"a format is {named}, or text with fields like {{value}}, but {text!r} was given")
    return parts


def record_formatter(text: str, *, null: str, is_terminal: bool) -> FormatRecord:
    """Return what makes a line, with its end, of a record; raises ValueError."""
    if text == JSON:
        return lambda partition, record: format_record(partition, record).encode() + b"\n"
    parts = parse_format(text)
    null_bytes = null.encode(errors="surrogateescape")
    if parts == ["value"] and not is_terminal:
        # What most people ask for, and the only form in which millions of records are worth a word of their own.
        return lambda partition, record: (null_bytes if record.value is None else record.value) + b"\n"
    fields = _fields(null_bytes)
    shown: Callable[[bytes], bytes] = _printable if is_terminal else bytes

    def format_one(partition: TopicPartition, record: Record) -> bytes:
        line = [part if isinstance(part, bytes) else shown(fields[part](partition, record)) for part in parts]
        return b"".join(line) + b"\n"

    return format_one


def _fields(null: bytes) -> dict[str, FormatRecord]:
    """Return, by the name of a field, what takes it out of a record."""

    def headers(partition: TopicPartition, record: Record) -> bytes:
        return b",".join(name + b"=" + (null if value is None else value) for name, value in record.headers)

    return {
        "topic": lambda partition, record: partition.topic.encode(),
        "partition": lambda partition, record: b"%d" % partition.partition,
        "offset": lambda partition, record: b"%d" % record.offset,
        "timestamp": lambda partition, record: b"%d" % record.timestamp,
        "time": lambda partition, record: time_text(record.timestamp).encode(),
        "key": lambda partition, record: null if record.key is None else record.key,
        "value": lambda partition, record: null if record.value is None else record.value,
        "headers": headers,
    }


def _printable(data: bytes) -> bytes:
    text = data.decode(errors="backslashreplace")
    return "".join(
        character if character.isprintable() or character == "\t" else character.encode("unicode_escape").decode()
        for character in text
    ).encode()
