"""The coordinators' settings: Kafka's names and defaults, and every bad value refused."""

import pytest

from barnabas.config import ConfigError, Setting, parse_value, settings_of, text_of
from barnabas.coordinator_config import GroupConfig, TransactionConfig

ROWS = [*settings_of(GroupConfig), *settings_of(TransactionConfig)]


def row_of(name: str) -> Setting:
    (row,) = (row for row in ROWS if row.name == name)
    return row


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("group.min.session.timeout.ms", 6_000),
        ("group.max.session.timeout.ms", 1_800_000),
        ("group.initial.rebalance.delay.ms", 3_000),
        ("group.max.size", 2_147_483_647),
        ("offset.metadata.max.bytes", 4_096),
        ("offsets.retention.minutes", 10_080),
        ("offsets.retention.check.interval.ms", 600_000),
        ("group.consumer.session.timeout.ms", 45_000),
        ("group.consumer.heartbeat.interval.ms", 5_000),
        ("group.consumer.assignors", ("uniform", "range")),
        ("group.consumer.migration.policy", "bidirectional"),
        ("offsets.topic.num.partitions", 50),
        ("offsets.topic.replication.factor", 3),
        ("offsets.topic.segment.bytes", 104_857_600),
        ("transaction.max.timeout.ms", 900_000),
        ("transactional.id.expiration.ms", 604_800_000),
        ("transaction.abort.timed.out.transaction.cleanup.interval.ms", 10_000),
        ("transaction.remove.expired.transaction.cleanup.interval.ms", 3_600_000),
        ("transaction.partition.verification.enable", True),
        ("transaction.state.log.num.partitions", 50),
        ("transaction.state.log.replication.factor", 3),
        ("transaction.state.log.min.isr", 2),
        ("transaction.state.log.segment.bytes", 104_857_600),
    ],
)
def test_defaults_are_kafkas(name: str, default: object) -> None:
    assert row_of(name).default == default


def test_no_name_is_declared_twice() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_default_is_a_value_that_is_allowed_as_it_is_written(row: Setting) -> None:
    assert parse_value(row, text_of(row.default)) == row.default


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.parametrize("text", ["", "nonsense", "-1", "99999999999999999999"])
def test_a_bad_value_is_refused(row: Setting, text: str) -> None:
    with pytest.raises(ConfigError):
        parse_value(row, text)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_setting_has_a_sentence(row: Setting) -> None:
    assert row.sentence.endswith(".")
