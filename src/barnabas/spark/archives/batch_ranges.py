"""Which offsets a batch of the archiving query has, and whether the archive has them already. Pure functions.

Spark writes the end of a batch into its checkpoint before it runs it, and the batch begins where the one before ended:

    _barnabas/checkpoint/offsets/7       v1, a line of Spark's, and the place as `source.stream_offsets` has it

Rule 1: the commits say what the archive has. A batch that they have is passed over, one that goes on where they end is
written, and anything else is refused.
"""

import json
from collections.abc import Mapping
from uuid import UUID

from barnabas.model import ZERO_TOPIC_ID, TopicPartition
from barnabas.spark.archives.manifest import CHECKPOINT, FOLDER, OffsetRange
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.source.stream_offsets import StreamOffset, from_json, progress_between


def read_place(text: str, where: str) -> StreamOffset:
    """Read the end of a batch from Spark's checkpoint; raises PipelineError."""
    lines = text.strip().splitlines()
    if len(lines) < 3 or lines[0] != "v1":
        raise PipelineError(f"{where} is not written by a version of Spark that is known here")
    try:
        return from_json(json.loads(lines[-1]))
    except ValueError:
        raise PipelineError(f"{where} has no offsets in it") from None


def start_of_batch(before: StreamOffset | None, end: StreamOffset, topic: str, ends: Mapping[int, int]) -> StreamOffset:
    """Return where a batch begins.

    Args:
        before: The end of the batch before; None for the first.
        end: Its own end.
        topic: The topic of the archive.
        ends: Where the archive ends, which is where a first batch begins if its end does not say so (before Spark 4.2).
    """
    start = end.began if before is None else before
    if start is None:
        return StreamOffset(offsets={TopicPartition(topic, number): offset for number, offset in ends.items()})
    return start


def ranges_of_batch(
    start: StreamOffset, end: StreamOffset, topic: str, topic_id: str, earliest: Mapping[int, int]
) -> list[OffsetRange]:
    """Return the offsets of a batch by partition, those without any left out; nothing is counted yet.

    Args:
        start: Where it begins.
        end: Where it ends.
        topic: The topic of the archive.
        topic_id: The id that the topic had when the archive was made.
        earliest: First offsets that are there, for queries that may pass over lost ones; empty for all others.

    Raises:
        DataLossError: The topic is another one by now.
    """
    if end.topic_id(topic) not in (ZERO_TOPIC_ID, UUID(topic_id)):
        raise DataLossError(f"topic {topic!r} was deleted and created again since it was archived")
    starts = progress_between(start, end, {}).starts
    ranges = []
    for partition, offset in sorted(end.offsets.items()):
        first = min(max(starts[partition], earliest.get(partition.partition, 0)), offset)
        if first < offset:
            ranges.append(OffsetRange(partition=partition.partition, start=first, end=offset, records=0))
    return ranges


def is_archived(ends: Mapping[int, int], ranges: list[OffsetRange], *, may_have_gaps: bool = False) -> bool:
    """Tell whether the archive has a batch already; raises PipelineError when it neither has it nor goes on with it."""
    if all(ends.get(each.partition, 0) >= each.end for each in ranges):
        return True
    for each in ranges:
        end = ends.get(each.partition, 0)
        if end != each.start and not (may_have_gaps and end < each.start):
            raise PipelineError(
                f"the archive has partition {each.partition} up to offset {end}, but its checkpoint goes on at "
                f"{each.start}: delete the folder {CHECKPOINT}, and the job goes on from what {FOLDER}/commits has"
            )
    return False


def starting_offsets(topic: str, partitions: int, ends: Mapping[int, int]) -> str:
    """Return where a query without a checkpoint goes on, as the option `startingOffsets` has it."""
    return json.dumps({topic: {str(number): ends.get(number, 0) for number in range(partitions)}})


def count_offsets(starts: Mapping[int, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets there are from one place to another."""
    return sum(max(0, end - starts.get(partition.partition, 0)) for partition, end in ends.items())
