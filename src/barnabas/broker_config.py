"""The settings of a broker, from `server.properties` and `--set name=value` to the objects that code reads.

`BrokerConfig` declares the broker's own settings. Settings that are a topic's by nature (`log.retention.ms`) are the
defaults of topics and live in `LogConfig`; what the LogManager reads is in `LogManagerConfig`. `resolve` sorts the
names that people write into the three.

Rule 1: a name of Kafka's that has several spellings is translated here and nowhere else; the more exact spelling wins,
as in Kafka (`log.retention.ms` over minutes over hours).
Rule 2: a setting that is unknown or has no effect is no error: it is named in one warning, because a server.properties
of a real Kafka shall start this broker.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from barnabas.config import (
    HOUR_MS,
    INT_MAX,
    LONG_MAX,
    Allowed,
    ConfigError,
    LogConfig,
    LogManagerConfig,
    Setting,
    boolean,
    parse_value,
    setting,
    settings_of,
    share,
    text_of,
    whole_number,
)
from barnabas.coordinator_config import GroupConfig, TransactionConfig

MINUTE_MS = 60_000
_BLANKS = " \t\f"
DEFAULT_PORT = 9092


class Endpoint(NamedTuple):
    """Where a listener listens, or what clients are told to connect to."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Read NAME://HOST:PORT, with an IPv6 address in brackets; an empty host is every address."""
    name, separator, address = text.strip().partition("://")
    host, colon, port = address.rpartition(":")
    if not separator or not name or not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(text)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host:
        raise ValueError(text)
    return Endpoint(name.upper(), host, int(port))


def endpoints() -> Allowed:
    """Allow a list of listeners, each name once."""

    def read(text: str) -> tuple[Endpoint, ...]:
        return tuple(parse_endpoint(part) for part in text.split(",") if part.strip())

    def passes(value: tuple[Endpoint, ...]) -> bool:
        return len({endpoint.name for endpoint in value}) == len(value)

    return Allowed(read, passes, "NAME://HOST:PORT, separated by commas, each name once")


def text() -> Allowed:
    """Allow any text."""
    return Allowed(str.strip, lambda value: True, "a text")


def positive_number() -> Allowed:
    """Allow a number above 0."""
    return Allowed(float, lambda value: value > 0, "a number above 0")


def pairs(value: Allowed, words: str) -> Allowed:
    """Allow a list NAME:VALUE, separated by commas."""

    def read(listed: str) -> tuple[tuple[str, Any], ...]:
        found = []
        for part in filter(None, (part.strip() for part in listed.split(","))):
            name, colon, one = part.rpartition(":")
            if not colon or not name or not value.passes(value.read(one)):
                raise ValueError(part)
            found.append((name, value.read(one)))
        return tuple(found)

    return Allowed(read, lambda listed: True, words)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The broker's own settings."""

    node_id: int = setting("node.id", 0, whole_number(0, INT_MAX), "The number of this broker; no other has it.")
    broker_rack: str = setting("broker.rack", "", text(), "Where this broker stands, as clients are told.")
    listeners: tuple[Endpoint, ...] = setting(
        "listeners",
        (Endpoint("PLAINTEXT", "127.0.0.1", DEFAULT_PORT),),
        endpoints(),
        "The addresses that are listened on; port 0 takes a free one.",
    )
    advertised_listeners: tuple[Endpoint, ...] = setting(
        "advertised.listeners",
        (),
        endpoints(),
        "The addresses that clients are told to connect to, where those are not the ones listened on.",
    )
    listener_security_protocol_map: tuple[tuple[str, str], ...] = setting(
        "listener.security.protocol.map",
        (("PLAINTEXT", "PLAINTEXT"),),
        pairs(text(), "NAME:PROTOCOL, separated by commas"),
        "What each listener speaks; only PLAINTEXT so far.",
    )
    num_partitions: int = setting(
        "num.partitions", 1, whole_number(1, INT_MAX), "How many partitions a topic has that does not say."
    )
    default_replication_factor: int = setting(
        "default.replication.factor", 1, whole_number(1, 32767), "How many replicas a topic has that does not say."
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", True, boolean(), "Whether asking for the metadata of a topic creates it."
    )
    delete_topic_enable: bool = setting("delete.topic.enable", True, boolean(), "Whether topics can be deleted.")
    queued_max_requests: int = setting(
        "queued.max.requests",
        500,
        whole_number(1, INT_MAX),
        "How many requests may be unanswered in all before reading stops; fetches that wait for data do not count.",
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", 100 << 20, whole_number(1, INT_MAX), "The largest request that is read."
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        -1,
        whole_number(-1, INT_MAX),
        "The send buffer of a connection; -1 leaves it to the system.",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        -1,
        whole_number(-1, INT_MAX),
        "The receive buffer of a connection; -1 leaves it to the system.",
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size", 1024, whole_number(1, INT_MAX), "How many connections may wait to be accepted."
    )
    max_connections: int = setting(
        "max.connections", INT_MAX, whole_number(0, INT_MAX), "How many connections there may be in all."
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", INT_MAX, whole_number(0, INT_MAX), "How many connections one address may have."
    )
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = setting(
        "max.connections.per.ip.overrides",
        (),
        pairs(whole_number(0, INT_MAX), "ADDRESS:NUMBER, separated by commas"),
        "How many connections single addresses may have instead.",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        600_000,
        whole_number(-1),
        "A connection that is quiet for this long is closed; -1 keeps all.",
    )
    num_network_threads: int = setting(
        "num.network.threads", 3, whole_number(1, INT_MAX), "Accepted, and without effect: one loop serves all."
    )
    num_io_threads: int = setting(
        "num.io.threads", 8, whole_number(1, 1024), "How many threads may wait for the disk at a time."
    )
    background_threads: int = setting(
        "background.threads", 10, whole_number(1, INT_MAX), "Accepted, and without effect: see num.io.threads."
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", 55 << 20, whole_number(1024, INT_MAX), "The most that one fetch is answered with."
    )
    fetch_session_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        1000,
        whole_number(0, INT_MAX),
        "How many incremental fetch sessions are remembered.",
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        2000,
        whole_number(1, INT_MAX),
        "How many partitions one DescribeTopicPartitions is answered with.",
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        1000,
        whole_number(1),
        "How often it is looked for logs whose flush.ms has passed.",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        whole_number(0, INT_MAX),
        "How often it is written down up to where logs are on the disk.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        whole_number(0, INT_MAX),
        "How often it is written down where logs start.",
    )
    high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        whole_number(1),
        "How often the high watermarks are written down.",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        600_000,
        whole_number(1, INT_MAX),
        "How often it is looked for producers that went quiet.",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        300_000,
        whole_number(1),
        "How often it is looked for segments to delete, besides at the start and when a segment is closed.",
    )
    log_retention_disk_percent: int = setting(
        "log.retention.disk.percent",
        -1,
        whole_number(-1, 100),
        "The oldest segments are deleted while a log directory's disk is used above this; -1 or 0: off. Not in Kafka.",
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable", True, boolean(), "Whether the logs of compacted topics are cleaned."
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads", 1, whole_number(1, 1024), "How many logs may be cleaned at a time, each by a process."
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        128 << 20,
        whole_number(1),
        "The memory for keys of all cleans together; a key takes 24 bytes, and more keys take more rounds.",
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        512 << 10,
        whole_number(1, INT_MAX),
        "The memory from which all cleans together write.",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        share(),
        "How full the memory for keys may get; searching takes longer in a fuller one.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        1.7976931348623157e308,
        positive_number(),
        "How many bytes a second all cleans together may read and write.",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms", 15_000, whole_number(1), "How often it is looked for logs to clean."
    )
    log_initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms", 30_000, whole_number(0), "How long after the start the work on schedule begins."
    )


# Other spellings, from the most exact to the least, and how many milliseconds one of their units has.
_IN_MILLISECONDS = {
    "log.retention.ms": (("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", HOUR_MS),),
}
_RENAMED = {"log.dirs": "log.dir", "node.id": "broker.id"}

SYNONYMS: dict[str, tuple[str, ...]] = {
    **{name: tuple(other for other, _ in others) for name, others in _IN_MILLISECONDS.items()},
    **{name: (other,) for name, other in _RENAMED.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a broker, and which of them were given."""

    broker: BrokerConfig
    manager: LogManagerConfig
    groups: GroupConfig
    transactions: TransactionConfig
    topics: LogConfig
    given: Mapping[str, str]
    """The texts that were given, by the names that were used."""
    ignored: tuple[str, ...] = ()

    def value_of(self, row: Setting) -> Any:
        """Return the value of a broker's setting, whichever object has it."""
        for config in (self.broker, self.manager, self.groups, self.transactions):
            if row.attribute in type(config).__slots__ and row in BROKER_SETTINGS[type(config)]:
                return getattr(config, row.attribute)
        return getattr(self.topics, row.attribute)


OWN = (BrokerConfig, LogManagerConfig, GroupConfig, TransactionConfig)


def _rows() -> dict[type, tuple[Setting, ...]]:
    own: dict[type, tuple[Setting, ...]] = {kind: tuple(settings_of(kind)) for kind in OWN}
    defaults = tuple(row._replace(name=row.broker_name) for row in settings_of(LogConfig) if row.broker_name)
    return {**own, LogConfig: defaults}


BROKER_SETTINGS: dict[type, tuple[Setting, ...]] = _rows()
"""Every setting that a broker has, by the class that holds it; the defaults of topics under their broker names."""


def resolve(given: Mapping[str, str]) -> Settings:
    """Return the settings that texts give; raises ConfigError for a value that is not allowed."""
    texts = _canonical(given)
    values: dict[type, dict[str, Any]] = {}
    for kind, rows in BROKER_SETTINGS.items():
        values[kind] = {row.attribute: parse_value(row, texts[row.name]) for row in rows if row.name in texts}
    known = {row.name for rows in BROKER_SETTINGS.values() for row in rows}
    known.update(other for others in SYNONYMS.values() for other in others)
    settings = Settings(
        broker=BrokerConfig(**values[BrokerConfig]),
        manager=LogManagerConfig(**values[LogManagerConfig]),
        groups=GroupConfig(**values[GroupConfig]),
        transactions=TransactionConfig(**values[TransactionConfig]),
        topics=LogConfig(**values[LogConfig]),
        given=dict(given),
        ignored=tuple(sorted(name for name in given if name not in known)),
    )
    _check_listeners(settings.broker)
    return settings


def _canonical(given: Mapping[str, str]) -> dict[str, str]:
    """Return the texts by the one name that each setting has."""
    texts = dict(given)
    for name, other in _RENAMED.items():
        if name not in texts and other in texts:
            texts[name] = texts[other]
    for name, spellings in _IN_MILLISECONDS.items():
        for other, unit_ms in spellings:
            if name not in texts and other in texts:
                texts[name] = _milliseconds(other, texts[other], unit_ms)
    if "controller.listener.names" in texts and "listeners" in texts:
        # A Kafka that is broker and controller in one lists both kinds; here clients may come to the broker's only.
        names = {name.strip().upper() for name in texts["controller.listener.names"].split(",")}
        listeners = [
            one for one in texts["listeners"].split(",") if one.partition("://")[0].strip().upper() not in names
        ]
        texts["listeners"] = ",".join(listeners)
    # Kafka's way to say that there is no limit.
    if texts.get("log.retention.ms", "").startswith("-"):
        texts["log.retention.ms"] = "-1"
    return texts


def _milliseconds(name: str, number: str, unit_ms: int) -> str:
    row = Setting(name, "", 0, whole_number(-1, LONG_MAX // unit_ms), "", None)
    return str(parse_value(row, number) * unit_ms)


def _check_listeners(config: BrokerConfig) -> None:
    protocols = {name.upper(): protocol.upper() for name, protocol in config.listener_security_protocol_map}
    if not config.listeners:
        raise ConfigError("listeners is empty; a broker needs one at least")
    names = {listener.name for listener in config.listeners}
    for listener in config.listeners:
        protocol = protocols.get(listener.name, listener.name)
        if protocol != "PLAINTEXT":
            raise ConfigError(f"listeners has {listener}, which speaks {protocol}; only PLAINTEXT is spoken so far")
    for advertised in config.advertised_listeners:
        if advertised.name not in names:
            raise ConfigError(f"advertised.listeners has {advertised}, but listeners has no {advertised.name}")
        if advertised.host in ("", "0.0.0.0", "::"):
            raise ConfigError(f"advertised.listeners has {advertised}, which is no address to connect to")


def merged_topic_config(defaults: LogConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the settings of a topic: the broker's defaults, and its own over them. Names it does not know are left."""
    rows = {row.name: row for row in settings_of(LogConfig)}
    changes = {rows[name].attribute: parse_value(rows[name], text) for name, text in overrides.items() if name in rows}
    return replace(defaults, **changes)


def broker_names(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings by the names that a broker has for them, where a topic's name was used (`retention.ms`)."""
    names = {row.name: row.broker_name for row in settings_of(LogConfig) if row.broker_name}
    return {names.get(name, name): text for name, text in given.items()}


def read_properties(content: str) -> dict[str, str]:
    """Read a file of Java's properties: NAME=VALUE or NAME:VALUE a line, # and ! comments, \\ at the end goes on."""
    found: dict[str, str] = {}
    lines = iter(content.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    for line in lines:
        line = line.lstrip(_BLANKS)
        if not line or line[0] in "#!":
            continue
        # An even number of backslashes are escaped ones.
        while (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1] + next(lines, "").lstrip(_BLANKS)
        name, value = _split_property(line)
        found[name] = value
    return found


def _split_property(line: str) -> tuple[str, str]:
    characters = enumerate(line)
    end = len(line)
    for position, character in characters:
        if character == "\\":
            next(characters, None)
        elif character in "=:" + _BLANKS:
            end = position
            break
    value = line[end:].lstrip(_BLANKS)
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(_BLANKS)
    return _unescape(line[:end]), _unescape(value.rstrip())


def _unescape(value: str) -> str:
    if "\\" not in value:
        return value
    replaced = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped == "u":
                replaced.append(_unicode("".join(itertools.islice(characters, 4))))
            else:
                replaced.append({"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(escaped, escaped))
        else:
            replaced.append(character)
    return "".join(replaced)


def _unicode(digits: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{4}", digits):
        raise ConfigError(f"\\u{digits} is no character; \\u has four hexadecimal digits behind it")
    return chr(int(digits, 16))


def endpoint_text(value: Any) -> str:
    """Return a broker's setting as people write it."""
    if isinstance(value, tuple) and value and isinstance(value[0], Endpoint):
        return ",".join(map(str, value))
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return ",".join(f"{name}:{one}" for name, one in value)
    return text_of(value)
