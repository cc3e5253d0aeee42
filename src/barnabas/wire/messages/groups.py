"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: what the members of a classic group say to its coordinator."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class JoinGroupRequestProtocol:
    name: Annotated[str, "string"] = ""
    metadata: Annotated[bytes, "bytes"] = b""


@structure
class JoinGroupRequest:
    group_id: Annotated[str, "string"] = ""
    session_timeout_ms: Annotated[int, "int32"] = 0
    rebalance_timeout_ms: Annotated[int, "int32 1+"] = -1
    member_id: Annotated[str, "string"] = ""
    group_instance_id: Annotated[str | None, "string 5+ null 5+"] = None
    protocol_type: Annotated[str, "string"] = ""
    protocols: Annotated[list[JoinGroupRequestProtocol], "[]"] = field(default_factory=list)
    reason: Annotated[str | None, "string 8+ null 8+"] = None


@structure
class JoinGroupResponseMember:
    member_id: Annotated[str, "string"] = ""
    group_instance_id: Annotated[str | None, "string 5+ null 5+"] = None
    metadata: Annotated[bytes, "bytes"] = b""


@structure
class JoinGroupResponse:
    throttle_time_ms: Annotated[int, "int32 2+"] = 0
    error_code: Annotated[int, "int16"] = 0
    generation_id: Annotated[int, "int32"] = -1
    protocol_type: Annotated[str | None, "string 7+ null 7+"] = None
    protocol_name: Annotated[str | None, "string 0+ null 7+"] = ""
    leader: Annotated[str, "string"] = ""
    skip_assignment: Annotated[bool, "bool 9+"] = False
    member_id: Annotated[str, "string"] = ""
    members: Annotated[list[JoinGroupResponseMember], "[]"] = field(default_factory=list)


@structure
class SyncGroupRequestAssignment:
    member_id: Annotated[str, "string"] = ""
    assignment: Annotated[bytes, "bytes"] = b""


@structure
class SyncGroupRequest:
    group_id: Annotated[str, "string"] = ""
    generation_id: Annotated[int, "int32"] = 0
    member_id: Annotated[str, "string"] = ""
    group_instance_id: Annotated[str | None, "string 3+ null 3+"] = None
    protocol_type: Annotated[str | None, "string 5+ null 5+"] = None
    protocol_name: Annotated[str | None, "string 5+ null 5+"] = None
    assignments: Annotated[list[SyncGroupRequestAssignment], "[]"] = field(default_factory=list)


@structure
class SyncGroupResponse:
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    error_code: Annotated[int, "int16"] = 0
    protocol_type: Annotated[str | None, "string 5+ null 5+"] = None
    protocol_name: Annotated[str | None, "string 5+ null 5+"] = None
    assignment: Annotated[bytes, "bytes"] = b""


@structure
class HeartbeatRequest:
    group_id: Annotated[str, "string"] = ""
    generation_id: Annotated[int, "int32"] = 0
    member_id: Annotated[str, "string"] = ""
    group_instance_id: Annotated[str | None, "string 3+ null 3+"] = None


@structure
class HeartbeatResponse:
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    error_code: Annotated[int, "int16"] = 0


@structure
class MemberIdentity:
    member_id: Annotated[str, "string 3+"] = ""
    group_instance_id: Annotated[str | None, "string 3+ null 3+"] = None
    reason: Annotated[str | None, "string 5+ null 5+"] = None


@structure
class LeaveGroupRequest:
    group_id: Annotated[str, "string"] = ""
    member_id: Annotated[str, "string 0-2"] = ""
    members: Annotated[list[MemberIdentity], "[] 3+"] = field(default_factory=list)


@structure
class MemberResponse:
    member_id: Annotated[str, "string 3+"] = ""
    group_instance_id: Annotated[str | None, "string 3+ null 3+"] = ""
    error_code: Annotated[int, "int16 3+"] = 0


@structure
class LeaveGroupResponse:
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    error_code: Annotated[int, "int16"] = 0
    members: Annotated[list[MemberResponse], "[] 3+"] = field(default_factory=list)
