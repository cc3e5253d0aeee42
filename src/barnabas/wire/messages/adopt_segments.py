"""AdoptSegments, an API of our own: segments that were written beside the logs of a topic become part of them."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class AdoptSegmentsRequest:
    load_id: Annotated[str, "string"] = ""
    topic: Annotated[str, "string"] = ""
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)
    check_crcs: Annotated[bool, "bool"] = True


@structure
class AdoptedSegmentsPartition:
    partition_index: Annotated[int, "int32"] = 0
    base_offset: Annotated[int, "int64"] = 0
    end_offset: Annotated[int, "int64"] = 0


@structure
class AdoptSegmentsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = None
    partitions: Annotated[list[AdoptedSegmentsPartition], "[]"] = field(default_factory=list)
