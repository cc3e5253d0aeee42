"""FindCoordinator: which broker coordinates a group or a transactional id. From 4 on for many at a time (KIP-699)."""

from dataclasses import dataclass, field
from typing import Annotated


@dataclass(slots=True, kw_only=True)
class FindCoordinatorRequest:
    key: Annotated[str, "string 0-3"] = ""
    key_type: Annotated[int, "int8 1+"] = 0
    coordinator_keys: Annotated[list[str], "[]string 4+"] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Coordinator:
    key: Annotated[str, "string 4+"] = ""
    node_id: Annotated[int, "int32 4+"] = 0
    host: Annotated[str, "string 4+"] = ""
    port: Annotated[int, "int32 4+"] = 0
    error_code: Annotated[int, "int16 4+"] = 0
    error_message: Annotated[str | None, "string 4+ null 4+"] = ""


@dataclass(slots=True, kw_only=True)
class FindCoordinatorResponse:
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    error_code: Annotated[int, "int16 0-3"] = 0
    error_message: Annotated[str | None, "string 1-3 null 1-3"] = ""
    node_id: Annotated[int, "int32 0-3"] = 0
    host: Annotated[str, "string 0-3"] = ""
    port: Annotated[int, "int32 0-3"] = 0
    coordinators: Annotated[list[Coordinator], "[] 4+"] = field(default_factory=list)
