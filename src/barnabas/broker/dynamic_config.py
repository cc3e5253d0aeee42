"""The settings in force: what the broker was started with, and what was changed while it runs.

    DEFAULT_CONFIG < STATIC_BROKER_CONFIG (server.properties, --set) < DYNAMIC_DEFAULT_BROKER_CONFIG (all brokers)
        < DYNAMIC_BROKER_CONFIG (this broker) < DYNAMIC_TOPIC_CONFIG (one topic)

Rule 1: only overrides are stored, in the metadata; what is in force is always computed from all five.
Rule 2: a setting that is read once, at the start, can not be changed while the broker runs, and the answer says so.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.broker_config import (
    BROKER_SETTINGS,
    SYNONYMS,
    BrokerConfig,
    Settings,
    endpoint_text,
    merged_topic_config,
    resolve,
)
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.config import ConfigError, LogConfig, Setting, parse_value, settings_of
from barnabas.wire.errors import ApiError, ErrorCode

ALL_BROKERS = -1

CHANGEABLE = frozenset(
    {row.name for row in BROKER_SETTINGS[LogConfig]}
    | {
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "connections.max.idle.ms",
        "auto.create.topics.enable",
        "num.partitions",
        "default.replication.factor",
    }
)
"""The settings of a broker that can be changed while it runs."""

TOPIC_SETTINGS = {row.name: row for row in settings_of(LogConfig)}


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs numbers it."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class ConfigValue(NamedTuple):
    """A setting's value in one of the places that may give it one."""

    name: str
    value: str
    source: ConfigSource


class DynamicConfig:
    """The settings of this broker and of its topics, as they are now."""

    def __init__(self, static: Settings, cache: MetadataCache, node_id: int) -> None:
        self._static = static
        self._cache = cache
        self._node_id = node_id
        self._current = static
        self.refresh()

    @property
    def broker(self) -> BrokerConfig:
        """The broker's own settings."""
        return self._current.broker

    @property
    def settings(self) -> Settings:
        """All settings of the broker."""
        return self._current

    def refresh(self) -> None:
        """Compute the broker's settings again, after the metadata changed."""
        overrides = {**self.overrides_of(ALL_BROKERS), **self.overrides_of(self._node_id)}
        texts = {**self._static.given, **{name: text for name, text in overrides.items() if name in CHANGEABLE}}
        try:
            self._current = resolve(texts)
        except ConfigError:
            self._current = self._static  # An older version allowed what this one does not.

    def overrides_of(self, node_id: int) -> Mapping[str, str]:
        """Return what was changed for one broker, or for all of them."""
        return self._cache.broker_configs.get(node_id, {})

    def topic(self, name: str) -> LogConfig:
        """Return the settings of a topic."""
        image = self._cache.topics.get(name)
        return merged_topic_config(self._current.topics, image.config if image else {})

    # Checks.

    def check_topic_overrides(self, overrides: Mapping[str, str]) -> None:
        """Raise ApiError for a topic setting that does not exist or has a value it can not have."""
        try:
            for name, text in overrides.items():
                if name not in TOPIC_SETTINGS:
                    raise ConfigError(f"there is no topic setting {name}")
                parse_value(TOPIC_SETTINGS[name], text)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def check_broker_overrides(self, overrides: Mapping[str, str]) -> None:
        """Raise ApiError for a broker setting that can not be changed, or not to this value."""
        for name in overrides:
            if name not in CHANGEABLE:
                message = f"{name} can not be changed while the broker runs"
                raise ApiError(ErrorCode.INVALID_REQUEST, message)
        try:
            resolve({**self._static.given, **overrides})
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None

    # Where values come from.

    def topic_values(self, row: Setting, overrides: Mapping[str, str]) -> list[ConfigValue]:
        """Return every value that a topic setting has, the one in force first."""
        own = []
        if row.name in overrides:
            own = [ConfigValue(row.name, overrides[row.name], ConfigSource.DYNAMIC_TOPIC_CONFIG)]
        if row.broker_name is None:
            return [*own, ConfigValue(row.name, endpoint_text(row.default), ConfigSource.DEFAULT_CONFIG)]
        return [*own, *self.broker_values(row._replace(name=row.broker_name))]

    def broker_values(self, row: Setting) -> list[ConfigValue]:
        """Return every value that a setting of this broker has, the one in force first."""
        return [
            *self._given_values(row),
            ConfigValue(row.name, endpoint_text(row.default), ConfigSource.DEFAULT_CONFIG),
        ]

    def _given_values(self, row: Setting) -> Iterator[ConfigValue]:
        places = (
            (self.overrides_of(self._node_id), ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.overrides_of(ALL_BROKERS), ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static.given, ConfigSource.STATIC_BROKER_CONFIG),
        )
        for texts, source in places:
            for name in (row.name, *SYNONYMS.get(row.name, ())):
                if name in texts:
                    yield ConfigValue(name, texts[name], source)
