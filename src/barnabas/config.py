"""Every setting there is, by Kafka's name: its type, default, allowed values and a sentence, in one place.

A setting is declared once, as a field of the class that the code reads (`config.segment_bytes`); the declaration
carries the name that people write (`segment.bytes`). `parse` turns names and texts into such an object, and the
documentation and the APIs that describe settings are made from the same declarations.

Rule 1: a bad value is an error that names the setting, the value and what is allowed; nothing is corrected silently.
Rule 2: objects are frozen. A changed setting is a new object, handed to whoever holds the old one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class ConfigError(Exception):
    """A setting has a value it can not have; the message says which, and what is allowed."""


class Allowed(NamedTuple):
    """What values a setting takes: how a text is read, which values pass, and both in words."""

    read: Callable[[str], Any]
    passes: Callable[[Any], bool]
    words: str


class Setting(NamedTuple):
    """One row of the table of settings."""

    name: str
    attribute: str
    default: Any
    allowed: Allowed
    sentence: str
    broker_name: str | None
    """The name under which the broker's own configuration sets the default of a topic setting."""


def whole_number(least: int, most: int = LONG_MAX) -> Allowed:
    """Allow integers from `least` to `most`."""

    def read(text: str) -> int:
        if "_" in text:
            raise ValueError(text)  # Python would read it.
        return int(text)

    return Allowed(read, lambda value: least <= value <= most, f"a whole number, {least} to {most}")


def share() -> Allowed:
    """Allow numbers from 0 to 1."""
    return Allowed(float, lambda value: 0 <= value <= 1, "a number from 0 to 1")


def one_of(*values: str) -> Allowed:
    """Allow one of the given words."""
    return Allowed(str.strip, lambda value: value in values, "one of " + ", ".join(values))


def some_of(*values: str) -> Allowed:
    """Allow a list, separated by commas, of one or more of the given words."""

    def read(text: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())

    return Allowed(read, lambda value: bool(value) and set(value) <= set(values), "some of " + ", ".join(values))


def boolean() -> Allowed:
    """Allow true and false."""
    words = {"true": True, "false": False}
    return Allowed(lambda text: words[text.strip().lower()], lambda value: isinstance(value, bool), "true or false")


def paths() -> Allowed:
    """Allow a list of folders, separated by commas."""

    def read(text: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())

    return Allowed(read, bool, "one or more folders, separated by commas")


def setting(name: str, default: Any, allowed: Allowed, sentence: str, broker_name: str | None = None) -> Any:
    """Declare a field of a settings class."""
    return field(
        default=default,
        metadata={"name": name, "allowed": allowed, "sentence": sentence, "broker_name": broker_name},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one topic's logs."""

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        ("delete",),
        some_of("delete", "compact"),
        "What happens to old records: whole segments are deleted, or all but the last of every key are.",
        "log.cleanup.policy",
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        one_of("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"),
        "The codec batches are stored with; `producer` keeps the one they came with.",
        "compression.type",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        whole_number(-1, 9),
        "How hard gzip tries, where it is the codec of the topic.",
        "compression.gzip.level",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        whole_number(1, 17),
        "How hard lz4 tries, where it is the codec of the topic.",
        "compression.lz4.level",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        whole_number(-131072, 22),
        "How hard zstd tries, where it is the topic's codec.",
        "compression.zstd.level",
    )
    decompressed_bytes_max: int = setting(
        "barnabas.decompressed.bytes.max",
        128 << 20,
        whole_number(1, INT_MAX),
        "A compressed batch that holds more than this is refused, so that a small request can not take all memory.",
        "barnabas.decompressed.bytes.max",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        DAY_MS,
        whole_number(0),
        "How long a tombstone stays in a compacted topic.",
        "log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        60_000,
        whole_number(0),
        "How long the files of a deleted segment or log stay before they are removed.",
        "log.segment.delete.delay.ms",
    )
    flush_messages: int = setting(
        "flush.messages",
        LONG_MAX,
        whole_number(1),
        "After this many unflushed records an append waits for the disk; 1 makes every acknowledgement durable.",
        "log.flush.interval.messages",
    )
    flush_ms: int = setting(
        "flush.ms",
        LONG_MAX,
        whole_number(0),
        "Records are flushed to the disk after at most this long.",
        "log.flush.interval.ms",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        4096,
        whole_number(0, INT_MAX),
        "An index entry is added when more than this many bytes were appended since the last one.",
        "log.index.interval.bytes",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        LONG_MAX,
        whole_number(1),
        "A record of a compacted topic is cleaned after at most this long.",
        "log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        1_048_588,
        whole_number(0, INT_MAX),
        "The largest batch the topic takes, as it is stored.",
        "message.max.bytes",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        whole_number(0),
        "How far a record's timestamp may lie after the broker's clock.",
        "log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        whole_number(0),
        "How far a record's timestamp may lie before the broker's clock.",
        "log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "Whose clock a record's timestamp is from: the producer's or the broker's.",
        "log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        0.5,
        share(),
        "The share of a compacted log that must be uncleaned before it is cleaned.",
        "log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        0,
        whole_number(0),
        "A record of a compacted topic is not cleaned before it is this old.",
        "log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        whole_number(1, INT_MAX),
        "With acks=all, how many replicas must have a record before it is acknowledged.",
        "min.insync.replicas",
    )
    preallocate: bool = setting(
        "preallocate",
        False,
        boolean(),
        "Whether a new segment's file is allocated at its full size.",
        "log.preallocate",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        -1,
        whole_number(-1),
        "Old segments are deleted while a partition is larger than this; -1 is no limit.",
        "log.retention.bytes",
    )
    retention_ms: int = setting(
        "retention.ms",
        7 * DAY_MS,
        whole_number(-1),
        "Segments whose last record is older than this are deleted; -1 is no limit.",
        "log.retention.ms",
    )
    retention_topic_bytes: int = setting(
        "retention.topic.bytes",
        -1,
        whole_number(-1),
        "The oldest segments are deleted while all partitions of a topic here have more; -1 is no limit. Not in Kafka.",
        "log.retention.topic.bytes",
    )
    segment_bytes: int = setting(
        "segment.bytes",
        1 << 30,
        whole_number(14, INT_MAX),
        "The size at which a segment is closed and the next begins.",
        "log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        10 << 20,
        whole_number(12, INT_MAX),
        "The size of an index at which a segment is closed and the next begins.",
        "log.index.size.max.bytes",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        0,
        whole_number(0),
        "A random part of this is taken off segment.ms, so that not all segments are closed at once.",
        "log.roll.jitter.ms",
    )
    segment_ms: int = setting(
        "segment.ms",
        7 * DAY_MS,
        whole_number(1),
        "The age at which a segment is closed and the next begins.",
        "log.roll.ms",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        boolean(),
        "Whether a replica that is not in sync may become leader, which loses records.",
        "unclean.leader.election.enable",
    )

    @property
    def is_compacted(self) -> bool:
        """Whether every record needs a key, because only the last of each is kept."""
        return "compact" in self.cleanup_policy

    @property
    def takes_plain(self) -> bool:
        """Whether plain batches are stored as they come, and acknowledged as soon as they are in one replica's log."""
        return (
            self.compression_type in ("producer", "uncompressed")
            and self.message_timestamp_type == "CreateTime"
            and self.flush_messages == LONG_MAX
            and self.min_insync_replicas <= 1
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """The broker's settings that the LogManager reads."""

    log_dirs: tuple[str, ...] = setting(
        "log.dirs", ("data",), paths(), "The folders that hold the logs; a new log goes to the one with the fewest."
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        2,
        whole_number(1, INT_MAX),
        "How many threads a folder load and recover its logs at start.",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        DAY_MS,
        whole_number(1, INT_MAX),
        "How long the sequence numbers of a producer that went quiet are remembered.",
    )
    log_dirs_reserve_bytes: int = setting(
        "barnabas.log.dirs.reserve.bytes",
        4 << 20,
        whole_number(0),
        "So much room is kept in every folder, for what must be written when its disk is full. Not in Kafka.",
    )


Config = TypeVar("Config", LogConfig, LogManagerConfig)


def settings_of(config_class: type[Any]) -> Iterator[Setting]:
    """Yield the table rows of a settings class, in the order of declaration."""
    declared: Field[Any]
    for declared in fields(config_class):
        row = declared.metadata
        yield Setting(row["name"], declared.name, declared.default, row["allowed"], row["sentence"], row["broker_name"])


def parse_value(row: Setting, text: str) -> Any:
    """Return the value that a text gives a setting, or raise ConfigError in a sentence."""
    try:
        value = row.allowed.read(text)
    except (ValueError, KeyError):
        value = None
    if value is None or not row.allowed.passes(value):
        raise ConfigError(f"{row.name} is {text!r}; it must be {row.allowed.words}")
    return value


def text_of(value: Any) -> str:
    """Return a value as people write it, so that `parse_value` reads the same value again."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(text_of, value))
    return str(value)


def parse(base: Config, texts: Mapping[str, str]) -> Config:
    """Return `base` with the given settings changed; a name that is not one of its settings is an error."""
    rows = {row.name: row for row in settings_of(type(base))}
    changes: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in rows:
            raise ConfigError(f"there is no setting {name}")
        changes[rows[name].attribute] = parse_value(rows[name], text)
    return replace(base, **changes)
