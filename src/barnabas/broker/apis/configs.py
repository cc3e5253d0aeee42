"""DescribeConfigs: v1-4. AlterConfigs: v0-2. IncrementalAlterConfigs: v0-1. ListConfigResources: v0-1.

Resources: topics, and this broker (or with an empty name the defaults of all brokers). Every setting is described, with
its default, where its value comes from, and with `include_synonyms` every place that gives it one.

AlterConfigs replaces all overrides of a resource, IncrementalAlterConfigs sets (0), deletes (1), appends to (2) and
subtracts from (3) single ones; append and subtract are for lists. A setting that does not exist, or a value that is not
allowed, is INVALID_CONFIG and changes nothing of that resource.

Difference from Kafka: loggers, client metrics and groups (types 8, 16 and 32) are no resources here.
"""

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.broker.apis.gathering import Gathering
from barnabas.broker.dynamic_config import ALL_BROKERS, CHANGEABLE, TOPIC_SETTINGS, ConfigSource, ConfigValue
from barnabas.broker.request_channel import Request
from barnabas.broker.services import Services
from barnabas.broker_config import BROKER_SETTINGS
from barnabas.config import INT_MAX, Setting
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsReqAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.wire.messages.topics import CreatableTopicConfigs

TOPIC = 2
BROKER = 4
RESOURCE_NAMES = {TOPIC: "topic", BROKER: "broker"}

SET, DELETE, APPEND, SUBTRACT = range(4)

_BROKER_ROWS = {row.name: row for rows in BROKER_SETTINGS.values() for row in rows}

Overrides = Mapping[str, str]

# How DescribeConfigs numbers the types of values.
_TYPES = {bool: 1, str: 2, int: 5, float: 6, tuple: 7}
_TYPE_INT = 3


def _config_type(row: Setting) -> int:
    kind = type(row.default)
    if kind is int and int(row.allowed.words.rpartition(" ")[2]) <= INT_MAX:
        return _TYPE_INT
    return _TYPES[kind]


def handle_describe_configs(
    broker: Services, request: Request, body: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Answer each resource by itself."""
    answer = DescribeConfigsResponse()
    for resource in body.resources:
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            result.configs = _describe(broker, resource, body)
        except ApiError as error:
            result.error_code, result.error_message = int(error.code), error.message
        answer.results.append(result)
    return answer


def _describe(
    broker: Services, resource: DescribeConfigsResource, body: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    """Return the settings of a resource that are asked for, in the order of their names."""
    valued: list[tuple[Setting, list[ConfigValue], bool]] = []
    if resource.resource_type == TOPIC:
        overrides = _topic_overrides(broker, resource.resource_name)
        valued = [(row, broker.config.topic_values(row, overrides), False) for row in TOPIC_SETTINGS.values()]
    elif resource.resource_type == BROKER:
        node_id = _node_id(broker, resource.resource_name)
        for row in _BROKER_ROWS.values():
            values = broker.config.broker_values(row)
            if node_id == ALL_BROKERS:
                values = [one for one in values if one.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG]
            if values:
                valued.append((row, values, row.name not in CHANGEABLE))
    else:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"there are no settings of resources of type {resource.resource_type}"
        )
    keys = resource.configuration_keys
    return [
        _described(row, values, body, is_read_only=is_read_only)
        for row, values, is_read_only in sorted(valued, key=lambda one: one[0].name)
        if not keys or row.name in keys
    ]


def _described(
    row: Setting, values: list[ConfigValue], body: DescribeConfigsRequest, *, is_read_only: bool
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=row.name,
        value=values[0].value,
        read_only=is_read_only,
        config_source=values[0].source,
        is_default=values[0].source is ConfigSource.DEFAULT_CONFIG,
        config_type=_config_type(row),
        documentation=row.sentence if body.include_documentation else None,
    )
    if body.include_synonyms:
        result.synonyms = [DescribeConfigsSynonym(name=one.name, value=one.value, source=one.source) for one in values]
    return result


def created_topic_configs(broker: Services, overrides: Overrides) -> list[CreatableTopicConfigs]:
    """Return the settings of a topic that was just created, as CreateTopics answers them."""
    found = []
    for row in TOPIC_SETTINGS.values():
        value = broker.config.topic_values(row, overrides)[0]
        found.append(CreatableTopicConfigs(name=row.name, value=value.value, config_source=value.source))
    return found


def _topic_overrides(broker: Services, name: str) -> Overrides:
    image = broker.cache.topics.get(name)
    if image is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return image.config


def _node_id(broker: Services, name: str) -> int:
    """Return the broker that a resource names, or ALL_BROKERS for the one without a name."""
    if not name:
        return ALL_BROKERS
    if not name.isdecimal() or int(name) != broker.node_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}, not {name!r}")
    return broker.node_id


# Changes.

Change = Callable[[Overrides], dict[str, str]]
"""From the overrides that a resource has to those that it is to have; raises ApiError."""


def handle_alter_configs(broker: Services, request: Request, body: AlterConfigsRequest) -> Any:
    """Replace all overrides."""
    answer = AlterConfigsResponse()
    gathering = Gathering(request, answer)
    for resource in body.resources:
        given = {one.name: one.value for one in resource.configs}

        def replace(old: Overrides, given: dict[str, str | None] = given) -> dict[str, str]:
            missing = [name for name, value in given.items() if value is None]
            if missing:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{', '.join(missing)} has no value")
            return {name: value for name, value in given.items() if value is not None}

        _alter(broker, resource, replace, gathering, answer, validate_only=body.validate_only)
    return gathering.outcome()


def handle_incremental_alter_configs(broker: Services, request: Request, body: IncrementalAlterConfigsRequest) -> Any:
    """Change single overrides."""
    answer = IncrementalAlterConfigsResponse()
    gathering = Gathering(request, answer)
    for resource in body.resources:

        def change(old: Overrides, resource: Any = resource) -> dict[str, str]:
            return _incremental(broker, resource.resource_type, old, resource.configs)

        _alter(broker, resource, change, gathering, answer, validate_only=body.validate_only)
    return gathering.outcome()


def _alter(
    broker: Services, resource: Any, change: Change, gathering: Gathering, answer: Any, *, validate_only: bool
) -> None:
    result = AlterConfigsResourceResponse(
        error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    answer.responses.append(result)

    def take(changed: Any) -> None:
        if isinstance(changed, ApiError):
            result.error_code, result.error_message = int(changed.code), changed.message

    try:
        if resource.resource_type == TOPIC:
            name = resource.resource_name
            if validate_only:
                broker.config.check_topic_overrides(change(_topic_overrides(broker, name)))
            else:
                broker.controller.alter_topic_config(name, change, gathering.expect(take))
        elif resource.resource_type == BROKER:
            node_id = _node_id(broker, resource.resource_name)
            if validate_only:
                broker.config.check_broker_overrides(change(broker.config.overrides_of(node_id)))
            else:
                of = None if node_id == ALL_BROKERS else node_id
                broker.topic_changes.alter_broker_config(of, change, gathering.expect(take))
        else:
            message = f"there are no settings of resources of type {resource.resource_type}"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
    except ApiError as error:
        take(error)


def _incremental(
    broker: Services, resource_type: int, old: Overrides, changes: list[IncrementalAlterConfigsReqAlterableConfig]
) -> dict[str, str]:
    overrides = dict(old)
    seen: set[str] = set()
    for change in changes:
        if change.name in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name} is changed more than once")
        seen.add(change.name)
        if change.config_operation == DELETE:
            overrides.pop(change.name, None)
        elif change.value is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name} has no value")
        elif change.config_operation == SET:
            overrides[change.name] = change.value
        elif change.config_operation in (APPEND, SUBTRACT):
            overrides[change.name] = _changed_list(broker, resource_type, overrides, change)
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no operation {change.config_operation} on settings")
    return overrides


def _changed_list(
    broker: Services, resource_type: int, overrides: Overrides, change: IncrementalAlterConfigsReqAlterableConfig
) -> str:
    row = (TOPIC_SETTINGS if resource_type == TOPIC else _BROKER_ROWS).get(change.name)
    if row is None or not isinstance(row.default, tuple):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{change.name} is no list, so that nothing can be appended to it")
    values = broker.config.topic_values(row, {}) if resource_type == TOPIC else broker.config.broker_values(row)
    current = overrides.get(change.name) or values[0].value
    items = [item for item in current.split(",") if item]
    given = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if change.config_operation == APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def handle_list_config_resources(
    broker: Services, request: Request, body: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """Answer with the resources that have settings; version 0 knows client metrics only, of which there are none."""
    if request.version == 0:
        return ListConfigResourcesResponse()
    asked = set(body.resource_types) or set(RESOURCE_NAMES)
    unknown = asked - {2, 4, 8, 16, 32}
    if unknown:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = []
    if TOPIC in asked:
        found += [ConfigResource(resource_name=name, resource_type=TOPIC) for name in broker.cache.topics]
    if BROKER in asked:
        found.append(ConfigResource(resource_name=str(broker.node_id), resource_type=BROKER))
    return ListConfigResourcesResponse(config_resources=found)
