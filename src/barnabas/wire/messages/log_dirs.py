"""AlterReplicaLogDirs and DescribeLogDirs: which directory a replica lies in, and how much."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class AlterReplicaLogDirTopic:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class AlterReplicaLogDir:
    path: Annotated[str, "string"] = ""
    topics: Annotated[list[AlterReplicaLogDirTopic], "[]"] = field(default_factory=list)


@structure
class AlterReplicaLogDirsRequest:
    dirs: Annotated[list[AlterReplicaLogDir], "[]"] = field(default_factory=list)


@structure
class AlterReplicaLogDirPartitionResult:
    partition_index: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0


@structure
class AlterReplicaLogDirTopicResult:
    topic_name: Annotated[str, "string"] = ""
    partitions: Annotated[list[AlterReplicaLogDirPartitionResult], "[]"] = field(default_factory=list)


@structure
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    results: Annotated[list[AlterReplicaLogDirTopicResult], "[]"] = field(default_factory=list)


@structure
class DescribableLogDirTopic:
    topic: Annotated[str, "string"] = ""
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class DescribeLogDirsRequest:
    topics: Annotated[list[DescribableLogDirTopic] | None, "[] 0+ null 0+"] = field(default_factory=list)


@structure
class DescribeLogDirsPartition:
    partition_index: Annotated[int, "int32"] = 0
    partition_size: Annotated[int, "int64"] = 0
    offset_lag: Annotated[int, "int64"] = 0
    is_future_key: Annotated[bool, "bool"] = False


@structure
class DescribeLogDirsTopic:
    name: Annotated[str, "string"] = ""
    partitions: Annotated[list[DescribeLogDirsPartition], "[]"] = field(default_factory=list)


@structure
class DescribeLogDirsResult:
    error_code: Annotated[int, "int16"] = 0
    log_dir: Annotated[str, "string"] = ""
    topics: Annotated[list[DescribeLogDirsTopic], "[]"] = field(default_factory=list)
    total_bytes: Annotated[int, "int64 4+"] = -1
    usable_bytes: Annotated[int, "int64 4+"] = -1
    is_cordoned: Annotated[bool, "bool 5+"] = False


@structure
class DescribeLogDirsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16 3+"] = 0
    results: Annotated[list[DescribeLogDirsResult], "[]"] = field(default_factory=list)
