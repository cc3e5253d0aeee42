"""How far a stream has come, as Spark writes it into its checkpoint, and what lies between two such places.

    {"orders": {"id": "6ba7b810-...", "0": 23, "1": 42}}          a place; Spark's own source has no ids
    {..., "$initial": true}                                       where a new query begins
    {..., "$began": {"orders": {"id": ..., "0": 20, "1": 40}}}    the end of a query's first batch, with its beginning

Rule 1: Spark compares places as text, so that topics and partitions have one order.
Rule 2: Spark does not keep where a query began: it asks again if the first batch has to be run again, and `latest` is
another place by then. So the end of the first batch carries its beginning, which wins over what is asked again. No
topic can have a name with a $ in it.
Rule 3: a topic that was deleted and created again has another id, and none of its offsets is one that was read before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from barnabas.model import ZERO_TOPIC_ID, TopicPartition
from barnabas.spark.errors import PipelineError
from barnabas.spark.source.planning import OffsetRange

_ID = "id"
_INITIAL = "$initial"
_BEGAN = "$began"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOffset:
    """The next offset of each partition, and the ids of their topics."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)
    is_initial: bool = False
    began: "StreamOffset | None" = None

    def topic_id(self, topic: str) -> UUID:
        """Return the id of a topic; the zero id where it is not known."""
        return self.topic_ids.get(topic, ZERO_TOPIC_ID)

    def is_same_place(self, other: "StreamOffset") -> bool:
        """Tell whether nothing lies between the two, whatever else they carry."""
        return dict(self.offsets) == dict(other.offsets) and dict(self.topic_ids) == dict(other.topic_ids)


def to_json(offset: StreamOffset) -> dict[str, Any]:
    """Return what Spark writes as JSON."""
    topics: dict[str, Any] = {}
    for partition in sorted(offset.offsets):
        topic = topics.setdefault(partition.topic, {})
        if not topic and offset.topic_id(partition.topic) != ZERO_TOPIC_ID:
            topic[_ID] = str(offset.topic_id(partition.topic))
        topic[str(partition.partition)] = offset.offsets[partition]
    if offset.is_initial:
        topics[_INITIAL] = True
    if offset.began is not None:
        topics[_BEGAN] = to_json(offset.began)
    return topics


def from_json(value: Mapping[str, Any]) -> StreamOffset:
    """Read what `to_json` or Spark's own Kafka source wrote; raises PipelineError."""
    offsets: dict[TopicPartition, int] = {}
    topic_ids: dict[str, UUID] = {}
    try:
        for topic, partitions in value.items():
            if topic in (_INITIAL, _BEGAN):
                continue
            for partition, offset in partitions.items():
                if partition == _ID:
                    topic_ids[topic] = UUID(offset)
                else:
                    offsets[TopicPartition(topic, int(partition))] = int(offset)
        began = from_json(value[_BEGAN]) if _BEGAN in value else None
    except (AttributeError, TypeError, ValueError):
        raise PipelineError(f"the checkpoint has offsets that are not of this source: {value!r}") from None
    return StreamOffset(offsets=offsets, topic_ids=topic_ids, is_initial=_INITIAL in value, began=began)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What lies between two places: where each partition of the later one begins, and a clause for each loss."""

    starts: Mapping[TopicPartition, int]
    losses: tuple[str, ...]


def appeared(start: StreamOffset, end: StreamOffset) -> list[TopicPartition]:
    """Return the partitions that are new at the end, or belong to another topic of the same name."""
    return [
        partition
        for partition in sorted(end.offsets)
        if partition not in start.offsets or _is_recreated(partition.topic, start, end)
    ]


def progress_between(start: StreamOffset, end: StreamOffset, earliest: Mapping[TopicPartition, int]) -> Progress:
    """Compare two places. `earliest` has the first offsets of those that `appeared`, as far as they are there."""
    losses: list[str] = []
    starts: dict[TopicPartition, int] = {}
    recreated = sorted({each.topic for each in end.offsets if _is_recreated(each.topic, start, end)})
    losses += [f"topic {topic!r} was deleted and created again since it was read" for topic in recreated]
    gone = sorted(set(start.offsets) - set(end.offsets))
    losses += [f"{partition}, which was read to offset {start.offsets[partition]}, is gone" for partition in gone]
    for partition in sorted(end.offsets):
        if partition in start.offsets and partition.topic not in recreated:
            starts[partition] = start.offsets[partition]
            if end.offsets[partition] < starts[partition]:
                losses.append(
                    f"{partition} ends at offset {end.offsets[partition]}, but was read to {starts[partition]} before"
                )
        else:
            starts[partition] = earliest.get(partition, 0)
            if starts[partition] > 0:
                losses.append(f"{partition} is new, but begins at offset {starts[partition]} instead of 0")
    return Progress(starts=starts, losses=tuple(losses))


def ranges_between(starts: Mapping[TopicPartition, int], end: StreamOffset) -> list[OffsetRange]:
    """Return what a batch reads of each partition."""
    return [
        OffsetRange(
            partition=partition,
            topic_id=end.topic_id(partition.topic),
            start_offset=starts[partition],
            end_offset=end.offsets[partition],
        )
        for partition in sorted(end.offsets)
    ]


def _is_recreated(topic: str, start: StreamOffset, end: StreamOffset) -> bool:
    before, after = start.topic_id(topic), end.topic_id(topic)
    return ZERO_TOPIC_ID not in (before, after) and before != after
