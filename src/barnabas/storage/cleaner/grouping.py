"""Which neighbouring segments are cleaned into one, so that a log that shrinks does not end as many small files.

Rule 1: the segments of a group, as they are, would fit into one: by bytes, by the size of each index, and by the
offsets that an index can tell apart. What is cleaned is smaller, as a rule.
Rule 2: every segment is in one group, and the order stays.
"""

from collections.abc import Sequence

from barnabas.storage.cleaner.job import SourceSegment
from barnabas.storage.segment import RELATIVE_OFFSET_MAX


def group_segments(
    segments: Sequence[SourceSegment], end_offset: int, segment_bytes: int, index_bytes: int
) -> list[list[SourceSegment]]:
    """Return the groups; `end_offset` is where the last segment ends."""
    groups: list[list[SourceSegment]] = []
    for index, segment in enumerate(segments):
        end = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if groups and _fits(groups[-1], segment, end, segment_bytes, index_bytes):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: list[SourceSegment], segment: SourceSegment, end: int, segment_bytes: int, index_bytes: int) -> bool:
    return (
        sum(one.size for one in group) + segment.size <= segment_bytes
        and sum(one.index_bytes for one in group) + segment.index_bytes <= index_bytes
        and sum(one.time_index_bytes for one in group) + segment.time_index_bytes <= index_bytes
        and end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
    )
