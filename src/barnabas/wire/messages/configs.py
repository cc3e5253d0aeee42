"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: settings, read and changed."""

from dataclasses import field
from typing import Annotated

from barnabas.wire.schema import structure


@structure
class DescribeConfigsResource:
    resource_type: Annotated[int, "int8"] = 0
    resource_name: Annotated[str, "string"] = ""
    configuration_keys: Annotated[list[str] | None, "[]string 0+ null 0+"] = field(default_factory=list)


@structure
class DescribeConfigsRequest:
    resources: Annotated[list[DescribeConfigsResource], "[]"] = field(default_factory=list)
    include_synonyms: Annotated[bool, "bool 1+"] = False
    include_documentation: Annotated[bool, "bool 3+"] = False


@structure
class DescribeConfigsSynonym:
    name: Annotated[str, "string 1+"] = ""
    value: Annotated[str | None, "string 1+ null 0+"] = ""
    source: Annotated[int, "int8 1+"] = 0


@structure
class DescribeConfigsResourceResult:
    name: Annotated[str, "string"] = ""
    value: Annotated[str | None, "string 0+ null 0+"] = ""
    read_only: Annotated[bool, "bool"] = False
    config_source: Annotated[int, "int8 1+"] = -1
    is_default: Annotated[bool, "bool 0"] = False
    is_sensitive: Annotated[bool, "bool"] = False
    synonyms: Annotated[list[DescribeConfigsSynonym], "[] 1+"] = field(default_factory=list)
    config_type: Annotated[int, "int8 3+"] = 0
    documentation: Annotated[str | None, "string 3+ null 0+"] = ""


@structure
class DescribeConfigsResult:
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = ""
    resource_type: Annotated[int, "int8"] = 0
    resource_name: Annotated[str, "string"] = ""
    configs: Annotated[list[DescribeConfigsResourceResult], "[]"] = field(default_factory=list)


@structure
class DescribeConfigsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    results: Annotated[list[DescribeConfigsResult], "[]"] = field(default_factory=list)


@structure
class AlterableConfig:
    name: Annotated[str, "string"] = ""
    value: Annotated[str | None, "string 0+ null 0+"] = ""


@structure
class AlterConfigsResource:
    resource_type: Annotated[int, "int8"] = 0
    resource_name: Annotated[str, "string"] = ""
    configs: Annotated[list[AlterableConfig], "[]"] = field(default_factory=list)


@structure
class AlterConfigsRequest:
    resources: Annotated[list[AlterConfigsResource], "[]"] = field(default_factory=list)
    validate_only: Annotated[bool, "bool"] = False


@structure
class AlterConfigsResourceResponse:
    error_code: Annotated[int, "int16"] = 0
    error_message: Annotated[str | None, "string 0+ null 0+"] = ""
    resource_type: Annotated[int, "int8"] = 0
    resource_name: Annotated[str, "string"] = ""


@structure
class AlterConfigsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    responses: Annotated[list[AlterConfigsResourceResponse], "[]"] = field(default_factory=list)


@structure
class IncrementalAlterConfigsReqAlterableConfig:
    name: Annotated[str, "string"] = ""
    config_operation: Annotated[int, "int8"] = 0
    value: Annotated[str | None, "string 0+ null 0+"] = ""


@structure
class IncrementalAlterConfigsReqAlterConfigsResource:
    resource_type: Annotated[int, "int8"] = 0
    resource_name: Annotated[str, "string"] = ""
    configs: Annotated[list[IncrementalAlterConfigsReqAlterableConfig], "[]"] = field(default_factory=list)


@structure
class IncrementalAlterConfigsRequest:
    resources: Annotated[list[IncrementalAlterConfigsReqAlterConfigsResource], "[]"] = field(default_factory=list)
    validate_only: Annotated[bool, "bool"] = False


@structure
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    responses: Annotated[list[AlterConfigsResourceResponse], "[]"] = field(default_factory=list)


@structure
class ListConfigResourcesRequest:
    resource_types: Annotated[list[int], "[]int8 1+"] = field(default_factory=list)


@structure
class ConfigResource:
    resource_name: Annotated[str, "string"] = ""
    resource_type: Annotated[int, "int8 1+"] = 16


@structure
class ListConfigResourcesResponse:
    throttle_time_ms: Annotated[int, "int32"] = 0
    error_code: Annotated[int, "int16"] = 0
    config_resources: Annotated[list[ConfigResource], "[]"] = field(default_factory=list)
