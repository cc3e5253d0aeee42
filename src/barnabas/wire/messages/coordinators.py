"""FindCoordinator: which broker coordinates a group or a transactional id. From 4 on for many at a time (KIP-699)."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class FindCoordinatorRequest:
    key: Annotated[str, "string 0-3"] = ""
    key_type: Annotated[int, "int8 1+"] = 0
    coordinator_keys: Annotated[list[str], "[]string 4+"] = field(default_factory=list)


@structure
class Coordinator:
    key: Annotated[str, "string 4+"] = ""
    node_id: Annotated[int, "int32 4+"] = 0
    host: Annotated[str, "string 4+"] = ""
    port: Annotated[int, "int32 4+"] = 0
    error_code: Annotated[int, "int16 4+"] = 0
    error_message: Annotated[str | None, "string 4+ null 4+"] = ""


@structure
class FindCoordinatorResponse:
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    error_code: Annotated[int, "int16 0-3"] = 0
    error_message: Annotated[str | None, "string 1-3 null 1-3"] = ""
    node_id: Annotated[int, "int32 0-3"] = 0
    host: Annotated[str, "string 0-3"] = ""
    port: Annotated[int, "int32 0-3"] = 0
    coordinators: Annotated[list[Coordinator], "[] 4+"] = field(default_factory=list)
