"""Records as JSON objects, one a line: what `barnabas consume` prints and `barnabas produce` reads.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "key": "k", "value": {"base64": "AP8="}, "headers": [["name", "value"]]}

Bytes that are UTF-8 are text, others an object with their base64, and null is null. Headers are pairs in order, because
a name may come twice.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple

from barnabas.model import TopicPartition
from barnabas.records.record import Header, Record

BASE64 = "base64"
_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1

# The place that a record came from is no part of the record; it is passed over, so that output can be input.
_PASSED_OVER = {"topic", "offset"}
_FIELDS = {"key", "value", "headers", "partition", "timestamp"}


class BadRecordError(Exception):
    """A line is not a record; the sentence says why."""


class InputRecord(NamedTuple):
    """A record that a line asks for; a tuple, because one is made for every line."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def format_record(partition: TopicPartition, record: Record) -> str:
    """Return a record as a line, without its end."""
    row = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": bytes_as_json(record.key),
        "value": bytes_as_json(record.value),
        "headers": [[bytes_as_json(name), bytes_as_json(value)] for name, value in record.headers],
    }
    return json.dumps(row, ensure_ascii=False)


def bytes_as_json(data: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as text where they are UTF-8, and in base64 otherwise."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(data).decode()}


def parse_record(line: bytes) -> InputRecord:
    """Read a line; raises BadRecordError."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise BadRecordError(f"this is not JSON: {error}") from None
    except RecursionError:
        raise BadRecordError("this JSON is nested too deeply") from None
    if not isinstance(row, dict):
        raise BadRecordError("a JSON object is needed")
    unknown = sorted(row.keys() - _FIELDS - _PASSED_OVER)
    if unknown:
        raise BadRecordError(f"{unknown[0]!r} is no field of a record; there are {', '.join(sorted(_FIELDS))}")
    if "value" not in row:
        raise BadRecordError("there is no 'value'; write null for none")
    return InputRecord(
        value=_bytes("value", row["value"]),
        key=_bytes("key", row.get("key")),
        headers=_headers(row.get("headers")),
        partition=_number("partition", row.get("partition"), _INT32_MAX),
        timestamp=_number("timestamp", row.get("timestamp"), _INT64_MAX),
    )


def _bytes(name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise BadRecordError(f"{name!r} has half of a surrogate pair, which is no text") from None
    if isinstance(value, dict) and value.keys() == {BASE64} and isinstance(value[BASE64], str):
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadRecordError(f"{name!r} is not base64: {error}") from None
    raise BadRecordError(f'{name!r} is text, null or {{"base64": "..."}}')


def _headers(value: Any) -> tuple[Header, ...]:
    if value is None:
        return ()
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise BadRecordError("'headers' is an object or a list of pairs")
    headers = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise BadRecordError("a header is a pair of name and value")
        name = _bytes("the name of a header", pair[0])
        if name is None:
            raise BadRecordError("the name of a header can not be null")
        headers.append((name, _bytes("the value of a header", pair[1])))
    return tuple(headers)


def _number(name: str, value: Any, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadRecordError(f"{name!r} is a number from 0 to {most}")
    return value
