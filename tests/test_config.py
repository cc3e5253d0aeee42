"""The table of settings, and the sentences in which bad values are refused."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config import (
    INT_MAX,
    LONG_MAX,
    ConfigError,
    LogConfig,
    LogManagerConfig,
    Setting,
    parse,
    parse_value,
    settings_of,
)

ROWS = [*settings_of(LogConfig), *settings_of(LogManagerConfig)]

# What Kafka 4.3 documents: topic setting, default, and the broker's name for that default.
KAFKA_DEFAULTS = [
    ("cleanup.policy", ("delete",), "log.cleanup.policy"),
    ("compression.gzip.level", -1, None),
    ("compression.lz4.level", 9, None),
    ("compression.type", "producer", "compression.type"),
    ("compression.zstd.level", 3, None),
    ("delete.retention.ms", 86_400_000, "log.cleaner.delete.retention.ms"),
    ("file.delete.delay.ms", 60_000, "log.segment.delete.delay.ms"),
    ("flush.messages", LONG_MAX, "log.flush.interval.messages"),
    ("flush.ms", LONG_MAX, "log.flush.interval.ms"),
    ("index.interval.bytes", 4_096, "log.index.interval.bytes"),
    ("max.compaction.lag.ms", LONG_MAX, "log.cleaner.max.compaction.lag.ms"),
    ("max.message.bytes", 1_048_588, "message.max.bytes"),
    ("message.timestamp.after.max.ms", 3_600_000, "log.message.timestamp.after.max.ms"),
    ("message.timestamp.before.max.ms", LONG_MAX, "log.message.timestamp.before.max.ms"),
    ("message.timestamp.type", "CreateTime", "log.message.timestamp.type"),
    ("min.cleanable.dirty.ratio", 0.5, "log.cleaner.min.cleanable.ratio"),
    ("min.compaction.lag.ms", 0, "log.cleaner.min.compaction.lag.ms"),
    ("min.insync.replicas", 1, "min.insync.replicas"),
    ("preallocate", False, "log.preallocate"),
    ("retention.bytes", -1, "log.retention.bytes"),
    ("retention.ms", 604_800_000, "log.retention.ms"),
    ("segment.bytes", 1_073_741_824, "log.segment.bytes"),
    ("segment.index.bytes", 10_485_760, "log.index.size.max.bytes"),
    ("segment.jitter.ms", 0, "log.roll.jitter.ms"),
    ("segment.ms", 604_800_000, "log.roll.ms"),
    ("unclean.leader.election.enable", False, "unclean.leader.election.enable"),
]


def row_of(name: str) -> Setting:
    return next(row for row in ROWS if row.name == name)


def as_text(value: Any) -> str:
    """Write a value the way it is written in a file."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


@pytest.mark.parametrize(("name", "default", "broker_name"), KAFKA_DEFAULTS, ids=[row[0] for row in KAFKA_DEFAULTS])
def test_names_and_defaults_are_those_of_kafka(name: str, default: Any, broker_name: str | None) -> None:
    row = row_of(name)
    assert row.default == default
    if broker_name is not None:
        assert row.broker_name == broker_name


def test_what_kafka_does_not_have_is_called_ours() -> None:
    # This one is a sibling of retention.bytes, and has a name that says so.
    known = {name for name, _, _ in KAFKA_DEFAULTS} | {"retention.topic.bytes"}
    assert [row.name for row in settings_of(LogConfig) if row.name not in known and "barnabas." not in row.name] == []


@pytest.mark.parametrize("config_class", [LogConfig, LogManagerConfig])
def test_names_are_unique(config_class: type[Any]) -> None:
    names = [row.name for row in settings_of(config_class)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_is_complete(row: Setting) -> None:
    assert row.allowed.passes(row.default)
    assert parse_value(row, as_text(row.default)) == row.default
    assert row.sentence.endswith(".")
    assert row.allowed.words
    assert row.attribute == row.name.removeprefix("barnabas.").replace(".", "_")


@pytest.mark.parametrize(
    ("text", "value"),
    [("1024", 1024), (" 1024 ", 1024), ("14", 14), (str(INT_MAX), INT_MAX)],
)
def test_numbers_are_read_up_to_their_limits(text: str, value: int) -> None:
    assert parse(LogConfig(), {"segment.bytes": text}).segment_bytes == value


BAD_VALUES = [
    ("segment.bytes", "13", "a whole number"),
    ("segment.bytes", "", "a whole number"),
    ("segment.bytes", "1e6", "a whole number"),
    ("segment.bytes", "1_000_000", "a whole number"),
    ("segment.bytes", "0x400", "a whole number"),
    ("segment.bytes", "9" * 5000, "a whole number"),
    ("segment.bytes", str(INT_MAX + 1), str(INT_MAX)),
    ("retention.ms", "-2", "-1"),
    ("retention.ms", str(LONG_MAX + 1), str(LONG_MAX)),
    ("segment.index.bytes", "11", "12"),
    ("compression.gzip.level", "10", "-1 to 9"),
    ("min.cleanable.dirty.ratio", "1.01", "a number from 0 to 1"),
    ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
    ("min.cleanable.dirty.ratio", "half", "a number from 0 to 1"),
    ("compression.type", "brotli", "one of uncompressed, gzip, snappy, lz4, zstd, producer"),
    ("message.timestamp.type", "createtime", "CreateTime"),
    ("cleanup.policy", "", "some of delete, compact"),
    ("cleanup.policy", "delete,shred", "some of delete, compact"),
    ("preallocate", "yes", "true or false"),
    ("preallocate", "", "true or false"),
]


@pytest.mark.parametrize(("name", "text", "words"), BAD_VALUES, ids=[f"{case[0]}={case[1]:.20}" for case in BAD_VALUES])
def test_a_bad_value_is_refused_with_what_is_allowed(name: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(LogConfig(), {name: text})
    sentence = str(caught.value)
    assert sentence.startswith(f"{name} is {text!r}; it must be ")
    assert words in sentence.partition("; it must be ")[2]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^there is no setting segment\.byte$"):
        parse(LogConfig(), {"segment.byte": "1"})


def test_a_change_leaves_the_old_object_and_the_other_settings() -> None:
    old = LogConfig(retention_ms=5)
    new = parse(old, {"segment.ms": "1000", "preallocate": "TRUE"})
    assert (new.segment_ms, new.preallocate, new.retention_ms) == (1000, True, 5)
    assert (old.segment_ms, old.preallocate) == (604_800_000, False)
    assert parse(old, {}) == old


def test_settings_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        LogConfig().segment_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "policy", "is_compacted"),
    [
        ("delete", ("delete",), False),
        ("compact", ("compact",), True),
        (" compact , delete ", ("compact", "delete"), True),
        ("delete,,compact,", ("delete", "compact"), True),
    ],
)
def test_the_cleanup_policy_is_a_list(text: str, policy: tuple[str, ...], is_compacted: bool) -> None:
    config = parse(LogConfig(), {"cleanup.policy": text})
    assert config.cleanup_policy == policy
    assert config.is_compacted is is_compacted


def test_log_dirs_are_a_list_of_at_least_one_folder() -> None:
    assert parse(LogManagerConfig(), {"log.dirs": "/a, /b/c"}).log_dirs == ("/a", "/b/c")
    with pytest.raises(ConfigError, match="one or more folders"):
        parse(LogManagerConfig(), {"log.dirs": " , "})


@given(row=st.sampled_from(ROWS), text=st.text() | st.integers().map(str) | st.floats().map(str))
def test_whatever_is_written_is_a_value_or_a_config_error(row: Setting, text: str) -> None:
    try:
        value = parse_value(row, text)
    except ConfigError as error:
        assert row.name in str(error)
    else:
        assert row.allowed.passes(value)
