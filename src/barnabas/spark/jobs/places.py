"""Where a job begins or ends in a topic, as people say it, and which offsets that is.

earliest, latest                the ends of every partition
1000                            this offset in every partition, or the nearest that a partition has
{"0": 1000, "1": -2}            an offset for each partition; -2 is earliest and -1 is latest
@1769860800000                  the first record at or after a time, in milliseconds since 1970
2026-01-31T12:00                the same as a date and time, in UTC unless it names a zone
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from barnabas.client.client import Client
from barnabas.client.offsets import EARLIEST, LATEST, IsolationLevel, offsets_at
from barnabas.model import TopicPartition
from barnabas.spark.errors import OptionError
from barnabas.spark.source.offset_limits import AtTime, Named, OffsetLimit, SpecificOffsets, parse_offsets
from barnabas.spark.source.offsets import Assigned, check_in_range, resolve_limit

PLACES = 'earliest, latest, an offset, offsets like {"0": 1000}, or a time like 2026-01-31T12:00 or @1769860800000'
_MILLISECONDS = re.compile(r"@(\d{1,18})", re.ASCII)
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


def parse_place(option: str, text: str, topic: str) -> OffsetLimit | int:
    """Read a place; a number is the offset in every partition. Raises OptionError."""
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return Named(word.lower())
    if word.startswith("{"):
        return parse_offsets(option, _with_topic(word, topic))
    if _NUMBER.fullmatch(word):
        return int(word)
    milliseconds = _MILLISECONDS.fullmatch(word)
    if milliseconds is not None:
        return AtTime(option=option, timestamp_ms=int(milliseconds[1]))
    try:
        moment = datetime.fromisoformat(word)
    except ValueError:
        raise OptionError(option, f"has to be {PLACES}, but {text!r} was given") from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return AtTime(option=option, timestamp_ms=max(0, round(moment.timestamp() * 1000)))


def resolve_place(
    client: Client, assigned: Assigned, place: OffsetLimit | int, isolation: IsolationLevel
) -> dict[int, int]:
    """Return the offset that a place is in each partition of a topic; raises OptionError or DataLossError."""
    if isinstance(place, int):
        first = offsets_at(client, assigned.partitions, EARLIEST, isolation)
        last = offsets_at(client, assigned.partitions, LATEST, isolation)
        return by_number({each: min(max(place, first[each]), last[each]) for each in assigned.partitions})
    offsets = resolve_limit(client, assigned.partitions, place, isolation)
    if isinstance(place, SpecificOffsets):
        offsets = check_in_range(client, place, offsets, isolation, fail_on_data_loss=True)
    return by_number(offsets)


def by_number(offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    """Return the offsets of the partitions of one topic by their numbers."""
    return {partition.partition: offset for partition, offset in sorted(offsets.items())}


def offsets_option(topic: str, offsets: Mapping[int, int]) -> str:
    """Return offsets as the options of the source have them."""
    return json.dumps({topic: {str(number): offset for number, offset in sorted(offsets.items())}})


def _with_topic(text: str, topic: str) -> str:
    """Return offsets by partition as offsets by topic and partition; anything else as it is."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    is_short = isinstance(value, dict) and value and all(name.isdecimal() for name in value)
    return json.dumps({topic: value}) if is_short else text
