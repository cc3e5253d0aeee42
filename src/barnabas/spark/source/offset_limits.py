"""Where a query begins or ends, as its options say it: a name, a time, or offsets of partitions as JSON.

    earliest, latest                                    Named
    {"orders": {"0": 23, "1": -2}}                      SpecificOffsets; -2 is earliest, -1 is latest
    1700000000000                                       AtTime, in milliseconds
    {"orders": {"0": 1700000000000}}                    AtTimes

Text comes in and plain values go out; what a cluster says to them is found out in `offsets`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from barnabas.client.offsets import EARLIEST, LATEST
from barnabas.model import TopicPartition
from barnabas.spark.errors import OptionError

_INT64_MAX = (1 << 63) - 1
_EXAMPLE = '{"orders": {"0": 23, "1": -2}}'
_ASSIGN_EXAMPLE = '{"orders": [0, 1]}'


class Named(Enum):
    """The ends of a partition."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecificOffsets:
    """An offset for every partition; EARLIEST and LATEST of `client.offsets` are among them."""

    option: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The first records at or after one time."""

    option: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTimes:
    """The same with a time for every partition."""

    option: str
    timestamps_ms: Mapping[TopicPartition, int]


OffsetLimit = Named | SpecificOffsets | AtTime | AtTimes


def parse_offsets(option: str, text: str) -> Named | SpecificOffsets:
    """Read `earliest`, `latest` or offsets of partitions; raises OptionError."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return Named(word)
    if not word.startswith("{"):
        raise OptionError(option, f"is 'earliest', 'latest' or JSON like {_EXAMPLE}, but {text!r} was given")
    offsets = _parse_partitions(option, text)
    for partition, offset in offsets.items():
        if offset < EARLIEST:
            reason = f"has the offset {offset} for {partition}: it is a number from 0 on, -1 (latest) or -2 (earliest)"
            raise OptionError(option, reason)
    return SpecificOffsets(option=option, offsets=offsets)


def parse_time(option: str, text: str) -> AtTime:
    """Read one time in milliseconds; raises OptionError."""
    word = text.strip()
    if not (word.isascii() and word.isdecimal() and int(word) <= _INT64_MAX):
        raise OptionError(option, f"is a time in milliseconds since 1970, but {text!r} was given")
    return AtTime(option=option, timestamp_ms=int(word))


def parse_times(option: str, text: str) -> AtTimes:
    """Read times of partitions; raises OptionError."""
    timestamps = _parse_partitions(option, text)
    for partition, timestamp in timestamps.items():
        if timestamp < 0:
            raise OptionError(option, f"has the time {timestamp} for {partition}, which is before 1970")
    return AtTimes(option=option, timestamps_ms=timestamps)


def parse_assignment(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Read `{"orders": [0, 1]}`; raises OptionError."""
    topics = _parse_json(option, text, _ASSIGN_EXAMPLE)
    partitions: set[TopicPartition] = set()
    for topic, numbers in topics.items():
        if not isinstance(numbers, list) or not all(_is_number(number) and number >= 0 for number in numbers):
            raise OptionError(option, f"has {json.dumps(numbers)} for topic {topic!r}: a list like [0, 1] is needed")
        partitions.update(TopicPartition(topic, number) for number in numbers)
    if not partitions:
        raise OptionError(option, f"names no partition: JSON like {_ASSIGN_EXAMPLE} is needed")
    return tuple(sorted(partitions))


def check_order(start: OffsetLimit, end: OffsetLimit) -> None:
    """Refuse times and offsets of which the end is before the beginning; raises OptionError."""
    if isinstance(start, AtTime) and isinstance(end, AtTime) and start.timestamp_ms > end.timestamp_ms:
        raise OptionError(start.option, f"is {start.timestamp_ms}, which is after '{end.option}', {end.timestamp_ms}")
    if isinstance(start, AtTimes) and isinstance(end, AtTimes):
        _check_order(start.option, start.timestamps_ms, end.option, end.timestamps_ms)
    if isinstance(start, SpecificOffsets) and isinstance(end, SpecificOffsets):
        # Others, which are below 0, are the beginning and the end of a partition.
        ends = {partition: offset for partition, offset in end.offsets.items() if offset >= 0}
        _check_order(start.option, start.offsets, end.option, ends)


def _check_order(
    option: str, firsts: Mapping[TopicPartition, int], end_option: str, lasts: Mapping[TopicPartition, int]
) -> None:
    for partition, first in firsts.items():
        last = lasts.get(partition, first)
        if first > last:
            raise OptionError(option, f"is {first} for {partition}, which is after '{end_option}', {last}")


def check_batch_limits(start: OffsetLimit, end: OffsetLimit) -> None:
    """Refuse a batch query that begins at the end or ends at the beginning; raises OptionError."""
    if start == Named.LATEST:
        raise OptionError("startingOffsets", "is 'latest', but a batch query has nothing to read from there on")
    if end == Named.EARLIEST:
        raise OptionError("endingOffsets", "is 'earliest', but a batch query has nothing to read up to there")
    if isinstance(start, SpecificOffsets):
        _check_without(start, LATEST, "-1 (latest)", "begin at the end of")
    if isinstance(end, SpecificOffsets):
        _check_without(end, EARLIEST, "-2 (earliest)", "end at the beginning of")
    check_order(start, end)


def _check_without(limit: SpecificOffsets, refused: int, name: str, what: str) -> None:
    for partition, offset in limit.offsets.items():
        if offset == refused:
            raise OptionError(limit.option, f"has {name} for {partition}, but a batch query can not {what} a partition")


def _parse_partitions(option: str, text: str) -> dict[TopicPartition, int]:
    topics = _parse_json(option, text, _EXAMPLE)
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise OptionError(
                option, f"has {json.dumps(partitions)} for topic {topic!r}: JSON like {_EXAMPLE} is needed"
            )
        for partition, number in partitions.items():
            if not (partition.isascii() and partition.isdecimal()):
                raise OptionError(option, f"has {partition!r} as a partition of topic {topic!r}: a number is needed")
            if not _is_number(number) or abs(number) > _INT64_MAX:
                raise OptionError(option, f"has {json.dumps(number)} for {topic}-{partition}: a whole number is needed")
            numbers[TopicPartition(topic, int(partition))] = number
    return numbers


def _parse_json(option: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(option, f"is not JSON like {example}: {error}") from None
    if not isinstance(value, dict):
        raise OptionError(option, f"is JSON, but not like {example}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
