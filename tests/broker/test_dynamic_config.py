"""The settings in force: five places that give a value, the strongest first."""

import pytest

from barnabas.broker.dynamic_config import (
    ALL_BROKERS,
    CHANGEABLE,
    TOPIC_SETTINGS,
    ConfigSource,
    DynamicConfig,
)
from barnabas.broker_config import BROKER_SETTINGS, SYNONYMS, resolve
from barnabas.cluster.metadata_cache import MetadataCache
from barnabas.cluster.tree import MetadataTree
from barnabas.config import LogConfig
from barnabas.wire.errors import ErrorCode
from tests.storage.builders import refused

NODE = 3


class Setting:
    def __init__(self, **given: str) -> None:
        self.cache = MetadataCache(MetadataTree())
        static = resolve({name.replace("_", "."): text for name, text in given.items()})
        self.config = DynamicConfig(static, self.cache, NODE)

    def change(self, node: int, **overrides: str) -> None:
        self.cache.broker_configs[node] = {name.replace("_", "."): text for name, text in overrides.items()}
        self.config.refresh()

    def sources(self, name: str) -> list[tuple[str, str, ConfigSource]]:
        rows = {row.name: row for rows in BROKER_SETTINGS.values() for row in rows}
        return [tuple(value) for value in self.config.broker_values(rows[name])]  # type: ignore[misc]


def test_the_strongest_place_wins_and_all_are_told() -> None:
    setting = Setting(num_partitions="2")
    assert setting.config.broker.num_partitions == 2
    setting.change(ALL_BROKERS, num_partitions="3")
    assert setting.config.broker.num_partitions == 3
    setting.change(NODE, num_partitions="4")
    setting.change(NODE + 1, num_partitions="99")
    assert setting.config.broker.num_partitions == 4
    assert setting.sources("num.partitions") == [
        ("num.partitions", "4", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("num.partitions", "3", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("num.partitions", "2", ConfigSource.STATIC_BROKER_CONFIG),
        ("num.partitions", "1", ConfigSource.DEFAULT_CONFIG),
    ]
    setting.change(NODE)
    assert setting.config.broker.num_partitions == 3


def test_another_spelling_is_a_synonym_with_its_own_name() -> None:
    setting = Setting(log_retention_hours="2")
    assert setting.config.settings.topics.retention_ms == 2 * 3_600_000
    assert setting.sources("log.retention.ms")[0] == ("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG)


def test_a_topic_has_its_own_settings_over_those_of_the_broker() -> None:
    setting = Setting(log_retention_ms="5")
    values = setting.config.topic_values(TOPIC_SETTINGS["retention.ms"], {"retention.ms": "7"})
    assert [(value.name, value.value, value.source) for value in values][:2] == [
        ("retention.ms", "7", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.ms", "5", ConfigSource.STATIC_BROKER_CONFIG),
    ]
    assert values[-1].source is ConfigSource.DEFAULT_CONFIG
    assert setting.config.topic("never-created").retention_ms == 5


def test_a_topic_setting_that_no_broker_has_goes_by_its_default() -> None:
    row = TOPIC_SETTINGS["compression.gzip.level"]._replace(broker_name=None)
    assert [value.source for value in Setting().config.topic_values(row, {})] == [ConfigSource.DEFAULT_CONFIG]


def test_a_stored_value_that_is_not_allowed_any_more_does_not_keep_the_broker_from_starting() -> None:
    setting = Setting(num_partitions="2")
    setting.change(NODE, num_partitions="none")
    assert setting.config.broker.num_partitions == 2


def test_what_is_read_once_at_the_start_is_not_changed_by_what_is_stored() -> None:
    setting = Setting()
    setting.change(NODE, node_id="9")
    assert setting.config.broker.node_id == 0


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"no.such.setting": "1"}, "there is no topic setting no.such.setting"),
        ({"log.retention.ms": "1"}, "there is no topic setting log.retention.ms"),
        ({"retention.ms": "soon"}, "retention.ms is 'soon'; it must be a whole number"),
        ({"cleanup.policy": "burn"}, "cleanup.policy is 'burn'; it must be some of delete, compact"),
    ],
)
def test_a_topic_setting_is_checked_by_name_and_value(overrides: dict[str, str], words: str) -> None:
    with refused(ErrorCode.INVALID_CONFIG, words):
        Setting().config.check_topic_overrides(overrides)


def test_a_broker_setting_is_checked_by_name_and_value() -> None:
    config = Setting().config
    config.check_broker_overrides({"log.retention.ms": "5", "num.partitions": "3"})
    with refused(ErrorCode.INVALID_REQUEST, r"node.id can not be changed while the broker runs"):
        config.check_broker_overrides({"node.id": "3"})
    with refused(ErrorCode.INVALID_CONFIG, r"num.partitions is '0'"):
        config.check_broker_overrides({"num.partitions": "0"})


def test_every_setting_that_can_be_changed_exists() -> None:
    names = {row.name for rows in BROKER_SETTINGS.values() for row in rows}
    assert names >= CHANGEABLE
    assert {row.name for row in BROKER_SETTINGS[LogConfig]} <= CHANGEABLE
    assert names >= SYNONYMS.keys()
