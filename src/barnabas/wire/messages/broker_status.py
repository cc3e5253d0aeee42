"""DescribeBrokerStatus, an API of our own: what a broker is doing, how its disks are, and how far recovery has come."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class DescribeBrokerStatusRequest:
    include_loading: Annotated[bool, "bool"] = True


@structure
class StatusLogDirectory:
    path: Annotated[str, "string"] = ""
    state: Annotated[str, "string"] = ""
    reason: Annotated[str | None, "string 0+ null 0+"] = None
    log_count: Annotated[int, "int32"] = 0
    log_bytes: Annotated[int, "int64"] = 0
    total_bytes: Annotated[int, "int64"] = 0
    free_bytes: Annotated[int, "int64"] = 0


@structure
class StatusLoadingLog:
    topic: Annotated[str, "string"] = ""
    partition_index: Annotated[int, "int32"] = 0
    done_bytes: Annotated[int, "int64"] = 0
    total_bytes: Annotated[int, "int64"] = 0


@structure
class DescribeBrokerStatusResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = None
    node_id: Annotated[int, "int32"] = 0
    cluster_id: Annotated[str, "string"] = ""
    version: Annotated[str, "string"] = ""
    state: Annotated[str, "string"] = ""
    uptime_ms: Annotated[int, "int64"] = 0
    topic_count: Annotated[int, "int32"] = 0
    partition_count: Annotated[int, "int32"] = 0
    request_count: Annotated[int, "int64"] = 0
    recovery_logs_done: Annotated[int, "int32"] = 0
    recovery_logs_total: Annotated[int, "int32"] = 0
    recovery_bytes_done: Annotated[int, "int64"] = 0
    recovery_bytes_total: Annotated[int, "int64"] = 0
    log_directories: Annotated[list[StatusLogDirectory], "[]"] = field(default_factory=list)
    loading: Annotated[list[StatusLoadingLog], "[]"] = field(default_factory=list)
