"""ListGroups, DescribeGroups, DeleteGroups, ConsumerGroupDescribe: groups as an operator sees them."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import ZERO_UUID, structure


@structure
class ListGroupsRequest:
    states_filter: Annotated[list[str], "[]string 4+"] = field(default_factory=list)
    types_filter: Annotated[list[str], "[]string 5+"] = field(default_factory=list)


@structure
class ListedGroup:
    group_id: Annotated[str, "string"] = ""
    protocol_type: Annotated[str, "string"] = ""
    group_state: Annotated[str, "string 4+"] = ""
    group_type: Annotated[str, "string 5+"] = ""


@structure
class ListGroupsResponse:
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    error_code: Annotated[int, "int16"] = 0
    groups: Annotated[list[ListedGroup], "[]"] = field(default_factory=list)


@structure
class DescribeGroupsRequest:
    groups: Annotated[list[str], "[]string"] = field(default_factory=list)
    include_authorized_operations: Annotated[bool, "bool 3+"] = False


@structure
class DescribedGroupMember:
    member_id: Annotated[str, "string"] = ""
    group_instance_id: Annotated[str | None, "string 4+ null 4+"] = None
    client_id: Annotated[str, "string"] = ""
    client_host: Annotated[str, "string"] = ""
    member_metadata: Annotated[bytes, "bytes"] = b""
    member_assignment: Annotated[bytes, "bytes"] = b""


@structure
class DescribedGroup:
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 6+ null 6+"] = None
    group_id: Annotated[str, "string"] = ""
    group_state: Annotated[str, "string"] = ""
    protocol_type: Annotated[str, "string"] = ""
    protocol_data: Annotated[str, "string"] = ""
    members: Annotated[list[DescribedGroupMember], "[]"] = field(default_factory=list)
    authorized_operations: Annotated[int, "int32 3+"] = -2147483648


@structure
class DescribeGroupsResponse:
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    groups: Annotated[list[DescribedGroup], "[]"] = field(default_factory=list)


@structure
class DeleteGroupsRequest:
    groups_names: Annotated[list[str], "[]string"] = field(default_factory=list)


@structure
class DeletableGroupResult:
    group_id: Annotated[str, "string"] = ""
    error_code: Annotated[int, "int16"] = 0


@structure
class DeleteGroupsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    results: Annotated[list[DeletableGroupResult], "[]"] = field(default_factory=list)


@structure
class ConsumerGroupDescribeRequest:
    group_ids: Annotated[list[str], "[]string"] = field(default_factory=list)
    include_authorized_operations: Annotated[bool, "bool"] = False


@structure
class TopicPartitions:
    topic_id: Annotated[bytes, "uuid"] = ZERO_UUID
    topic_name: Annotated[str, "string"] = ""
    partitions: Annotated[list[int], "[]int32"] = field(default_factory=list)


@structure
class Assignment:
    topic_partitions: Annotated[list[TopicPartitions], "[]"] = field(default_factory=list)


@structure
class Member:
    member_id: Annotated[str, "string"] = ""
    instance_id: Annotated[str | None, "string 0+ null 0+"] = None
    rack_id: Annotated[str | None, "string 0+ null 0+"] = None
    member_epoch: Annotated[int, "int32"] = 0
    client_id: Annotated[str, "string"] = ""
    client_host: Annotated[str, "string"] = ""
    subscribed_topic_names: Annotated[list[str], "[]string"] = field(default_factory=list)
    subscribed_topic_regex: Annotated[str | None, "string 0+ null 0+"] = None
    assignment: Annotated[Assignment, "struct"] = field(default_factory=Assignment)
    target_assignment: Annotated[Assignment, "struct"] = field(default_factory=Assignment)
    member_type: Annotated[int, "int8 1+"] = -1


@structure
class DescribedConsumerGroup:
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = None
    group_id: Annotated[str, "string"] = ""
    group_state: Annotated[str, "string"] = ""
    group_epoch: Annotated[int, "int32"] = 0
    assignment_epoch: Annotated[int, "int32"] = 0
    assignor_name: Annotated[str, "string"] = ""
    members: Annotated[list[Member], "[]"] = field(default_factory=list)
    authorized_operations: Annotated[int, "int32"] = -2147483648


@structure
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    groups: Annotated[list[DescribedConsumerGroup], "[]"] = field(default_factory=list)
