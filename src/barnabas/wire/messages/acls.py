"""DescribeAcls, CreateAcls, DeleteAcls: who may do what."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class DescribeAclsRequest:
    resource_type_filter: Annotated[int, "int8"] = 0
    resource_name_filter: Annotated[str | None, "string 0+ null 0+"] = ""
    pattern_type_filter: Annotated[int, "int8 1+"] = 3
    principal_filter: Annotated[str | None, "string 0+ null 0+"] = ""
    host_filter: Annotated[str | None, "string 0+ null 0+"] = ""
    operation: Annotated[int, "int8"] = 0
    permission_type: Annotated[int, "int8"] = 0


@structure
class AclDescription:
    principal: Annotated[str, "string"] = ""
    host: Annotated[str, "string"] = ""
    operation: Annotated[int, "int8"] = 0
    permission_type: Annotated[int, "int8"] = 0


@structure
class DescribeAclsResource:
    resource_type: Annotated[int, "int8"] = 0
    resource_name: Annotated[str, "string"] = ""
    pattern_type: Annotated[int, "int8 1+"] = 3
    acls: Annotated[list[AclDescription], "[]"] = field(default_factory=list)


@structure
class DescribeAclsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = ""
    resources: Annotated[list[DescribeAclsResource], "[]"] = field(default_factory=list)


@structure
class AclCreation:
    resource_type: Annotated[int, "int8"] = 0
    resource_name: Annotated[str, "string"] = ""
    resource_pattern_type: Annotated[int, "int8 1+"] = 3
    principal: Annotated[str, "string"] = ""
    host: Annotated[str, "string"] = ""
    operation: Annotated[int, "int8"] = 0
    permission_type: Annotated[int, "int8"] = 0


@structure
class CreateAclsRequest:
    creations: Annotated[list[AclCreation], "[]"] = field(default_factory=list)


@structure
class AclCreationResult:
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = ""


@structure
class CreateAclsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    results: Annotated[list[AclCreationResult], "[]"] = field(default_factory=list)


@structure
class DeleteAclsFilter:
    resource_type_filter: Annotated[int, "int8"] = 0
    resource_name_filter: Annotated[str | None, "string 0+ null 0+"] = ""
    pattern_type_filter: Annotated[int, "int8 1+"] = 3
    principal_filter: Annotated[str | None, "string 0+ null 0+"] = ""
    host_filter: Annotated[str | None, "string 0+ null 0+"] = ""
    operation: Annotated[int, "int8"] = 0
    permission_type: Annotated[int, "int8"] = 0


@structure
class DeleteAclsRequest:
    filters: Annotated[list[DeleteAclsFilter], "[]"] = field(default_factory=list)


@structure
class DeleteAclsMatchingAcl:
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = ""
    resource_type: Annotated[int, "int8"] = 0
    resource_name: Annotated[str, "string"] = ""
    pattern_type: Annotated[int, "int8 1+"] = 3
    principal: Annotated[str, "string"] = ""
    host: Annotated[str, "string"] = ""
    operation: Annotated[int, "int8"] = 0
    permission_type: Annotated[int, "int8"] = 0


@structure
class DeleteAclsFilterResult:
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = ""
    matching_acls: Annotated[list[DeleteAclsMatchingAcl], "[]"] = field(default_factory=list)


@structure
class DeleteAclsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    filter_results: Annotated[list[DeleteAclsFilterResult], "[]"] = field(default_factory=list)
