"""ApiVersions: what a broker can do. The header of its answer has no tagged fields, so that any client can read it."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class ApiVersionsRequest:
    client_software_name: Annotated[str, "string 3+"] = ""
    client_software_version: Annotated[str, "string 3+"] = ""


@structure
class ApiVersion:
    api_key: Annotated[int, "int16"] = 0
    min_version: Annotated[int, "int16"] = 0
    max_version: Annotated[int, "int16"] = 0


@structure
class SupportedFeatureKey:
    name: Annotated[str, "string 3+"] = ""
    min_version: Annotated[int, "int16 3+"] = 0
    max_version: Annotated[int, "int16 3+"] = 0


@structure
class FinalizedFeatureKey:
    name: Annotated[str, "string 3+"] = ""
    max_version_level: Annotated[int, "int16 3+"] = 0
    min_version_level: Annotated[int, "int16 3+"] = 0


@structure
class ApiVersionsResponse:
    error_code: Annotated[int, "int16"] = 0
    api_keys: Annotated[list[ApiVersion], "[]"] = field(default_factory=list)
    throttle_time_ms: Annotated[int, "int32 1+"] = 0
    supported_features: Annotated[list[SupportedFeatureKey], "[] 3+ tag 0"] = field(default_factory=list)
    finalized_features_epoch: Annotated[int, "int64 3+ tag 1"] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], "[] 3+ tag 2"] = field(default_factory=list)
    zk_migration_ready: Annotated[bool, "bool 3+ tag 3"] = False
