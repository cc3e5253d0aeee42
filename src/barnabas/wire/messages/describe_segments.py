"""DescribeSegments, an API of our own: the segments of a topic, and why each of them is still there."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class DescribeSegmentsRequest:
    topic: Annotated[str, "string"] = ""
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class DescribedSegment:
    base_offset: Annotated[int, "int64"] = 0
    end_offset: Annotated[int, "int64"] = 0
    size_bytes: Annotated[int, "int64"] = 0
    largest_timestamp: Annotated[int, "int64"] = -1
    created_ms: Annotated[int, "int64"] = -1
    modified_ms: Annotated[int, "int64"] = -1
    is_active: Annotated[bool, "bool"] = False
    goes: Annotated[bool, "bool"] = False
    reason: Annotated[str, "string"] = ""
    due_ms: Annotated[int, "int64"] = -1
    sentence: Annotated[str, "string"] = ""


@structure
class DescribedSegmentsPartition:
    partition_index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = None
    log_start_offset: Annotated[int, "int64"] = -1
    high_watermark: Annotated[int, "int64"] = -1
    log_end_offset: Annotated[int, "int64"] = -1
    first_dirty_offset: Annotated[int, "int64"] = -1
    cleaning: Annotated[str | None, "string 0+ null 0+"] = None
    segments: Annotated[list[DescribedSegment], "[]"] = field(default_factory=list)


@structure
class DescribeSegmentsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    partitions: Annotated[list[DescribedSegmentsPartition], "[]"] = field(default_factory=list)
