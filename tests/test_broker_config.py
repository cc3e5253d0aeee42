"""The broker's settings: files of properties, other spellings, listeners, and every bad value told in a sentence."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker_config import (
    BROKER_SETTINGS,
    SYNONYMS,
    BrokerConfig,
    Endpoint,
    broker_names,
    endpoint_text,
    merged_topic_config,
    parse_endpoint,
    read_properties,
    resolve,
)
from barnabas.config import HOUR_MS, ConfigError, LogConfig, LogManagerConfig, Setting, parse_value

ROWS = [row for rows in BROKER_SETTINGS.values() for row in rows]

# Properties.


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a=1\nb=2", {"a": "1", "b": "2"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a : 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t1", {"a": "1"}),
        ("a\f=\f1", {"a": "1"}),
        ("  a=1  ", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a = = 1", {"a": "= 1"}),
        ("a=b=c:d", {"a": "b=c:d"}),
        ("a=1\na=2", {"a": "2"}),
        ("# a=1\n! b=2\n   # c=3\n\n   \nd=4", {"d": "4"}),
        ("a=1 # no comment", {"a": "1 # no comment"}),
        # A line that ends in a backslash goes on; the blanks before the rest do not count.
        ("a=1,\\\n   2,\\\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\n  2", {"a": "1\\2"}),
        ("a=1\\", {"a": "1"}),
        ("# goes not on \\\na=1", {"a": "1"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        # Escapes.
        ("a\\=b=1", {"a=b": "1"}),
        ("a\\:b\\ c=1", {"a:b c": "1"}),
        ("a=\\ 1", {"a": " 1"}),
        ("a=x\\ty\\nz\\r\\f", {"a": "x\ty\nz\r\f"}),
        ("a=C:\\\\data", {"a": "C:\\data"}),
        ("a=\\q", {"a": "q"}),
        ("a=\\u00e4\\u20AC", {"a": "ä€"}),
        ("a=x\u2028y", {"a": "x\u2028y"}),
        ("", {}),
    ],
)
def test_properties_are_read_as_java_reads_them(content: str, expected: dict[str, str]) -> None:
    assert read_properties(content) == expected


@pytest.mark.parametrize("content", ["a=\\u12", "a=\\u12xy", "a=\\u"])
def test_an_escape_without_its_digits_is_told(content: str) -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        read_properties(content)


@given(st.text(max_size=60))
def test_any_text_is_properties_or_an_error(content: str) -> None:
    try:
        found = read_properties(content)
    except ConfigError:
        return
    assert all(isinstance(value, str) for value in found.values())


# Names and their synonyms.


def test_without_anything_given_everything_has_its_default() -> None:
    settings = resolve({})
    assert (settings.broker, settings.manager, settings.topics) == (BrokerConfig(), LogManagerConfig(), LogConfig())
    assert settings.ignored == ()


def test_settings_go_to_the_object_that_reads_them() -> None:
    given = {"num.partitions": "7", "log.dirs": "/a,/b", "log.segment.bytes": "1000", "min.insync.replicas": "2"}
    settings = resolve(given)
    assert settings.broker.num_partitions == 7
    assert settings.manager.log_dirs == ("/a", "/b")
    assert (settings.topics.segment_bytes, settings.topics.min_insync_replicas) == (1000, 2)
    assert settings.given == given


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.ms": "5", "log.retention.minutes": "3", "log.retention.hours": "2"}, 5),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-2"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "2"}, -1),
    ],
)
def test_the_more_exact_spelling_wins(given: dict[str, str], milliseconds: int) -> None:
    settings = resolve(given)
    assert settings.topics.retention_ms == milliseconds
    assert settings.ignored == ()


def test_other_spellings_are_known() -> None:
    settings = resolve({"broker.id": "4", "log.dir": "/x", "log.roll.hours": "1", "log.roll.jitter.hours": "2"})
    assert (settings.broker.node_id, settings.manager.log_dirs) == (4, ("/x",))
    assert (settings.topics.segment_ms, settings.topics.segment_jitter_ms) == (HOUR_MS, 2 * HOUR_MS)
    both = resolve({"broker.id": "4", "node.id": "5", "log.dir": "/x", "log.dirs": "/y"})
    assert (both.broker.node_id, both.manager.log_dirs) == (5, ("/y",))


def test_names_that_are_not_known_are_reported_and_no_error() -> None:
    given = {"zookeeper.connect": "x", "process.roles": "broker", "num.partitions": "2"}
    assert resolve(given).ignored == ("process.roles", "zookeeper.connect")


def test_no_name_is_declared_twice() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    assert set(names).isdisjoint(other for others in SYNONYMS.values() for other in others)


def test_a_topic_setting_may_be_given_by_its_own_name() -> None:
    given = broker_names({"retention.ms": "5", "max.message.bytes": "6", "num.partitions": "7", "other": "8"})
    assert given == {"log.retention.ms": "5", "message.max.bytes": "6", "num.partitions": "7", "other": "8"}


def test_the_settings_of_a_topic_lie_over_the_defaults() -> None:
    defaults = LogConfig(retention_ms=5, segment_ms=6)
    merged = merged_topic_config(defaults, {"segment.ms": "7", "of.another.version": "x"})
    assert (merged.retention_ms, merged.segment_ms) == (5, 7)


def test_the_value_of_every_setting_is_found_by_its_row() -> None:
    settings = resolve({"log.retention.ms": "5", "num.partitions": "7", "log.dirs": "/x"})
    values = {row.name: settings.value_of(row) for row in ROWS}
    assert (values["log.retention.ms"], values["num.partitions"], values["log.dirs"]) == (5, 7, ("/x",))
    assert values["queued.max.requests"] == 500


# Values.


def bad_values() -> list[tuple[str, str]]:
    """A bad value of every setting that has one."""
    found = []
    for row in ROWS:
        for text in ("", "nonsense", "-2", "99999999999999999999", "1_000"):
            if (row.name, text) == ("log.retention.ms", "-2"):
                continue  # Any negative number is Kafka's way to say that there is no limit.
            try:
                parse_value(row, text)
            except ConfigError:
                found.append((row.name, text))
    return found


@pytest.mark.parametrize(("name", "text"), bad_values())
def test_a_bad_value_is_told_with_setting_value_and_what_is_allowed(name: str, text: str) -> None:
    (row,) = (row for row in ROWS if row.name == name)
    with pytest.raises(ConfigError, match=re.escape(f"{name} is {text!r}; it must be {row.allowed.words}")):
        resolve({name: text})


def test_every_setting_refuses_something_but_texts() -> None:
    refusing = {name for name, _ in bad_values()}
    assert {row.name for row in ROWS} - refusing == {"broker.rack"}


def test_a_bad_value_is_told_by_the_name_that_was_used() -> None:
    with pytest.raises(ConfigError, match=r"log\.retention\.hours is 'soon'; it must be a whole number"):
        resolve({"log.retention.hours": "soon"})
    with pytest.raises(ConfigError, match=r"log\.retention\.hours is '9999999999999'"):
        resolve({"log.retention.hours": "9999999999999"})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_default_is_a_value_that_is_allowed_as_it_is_written(row: Setting) -> None:
    if row.default != ():
        assert parse_value(row, endpoint_text(row.default)) == row.default


# Listeners.


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Endpoint("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://broker.example:0", Endpoint("PLAINTEXT", "broker.example", 0)),
        ("INTERNAL://:9092", Endpoint("INTERNAL", "", 9092)),
        ("PLAINTEXT://[::1]:9092", Endpoint("PLAINTEXT", "::1", 9092)),
        ("PLAINTEXT://[::]:65535", Endpoint("PLAINTEXT", "::", 65535)),
        (" PLAINTEXT://0.0.0.0:1 ", Endpoint("PLAINTEXT", "0.0.0.0", 1)),
    ],
)
def test_an_endpoint_is_read(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint
    assert parse_endpoint(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:9092",
        "PLAINTEXT://127.0.0.1",
        "PLAINTEXT://127.0.0.1:",
        "PLAINTEXT://127.0.0.1:x",
        "PLAINTEXT://127.0.0.1:-1",
        "PLAINTEXT://127.0.0.1:65536",
        "PLAINTEXT://127.0.0.1:٣",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://[::1:9092",
        "://127.0.0.1:9092",
        "PLAINTEXT://a:1,PLAINTEXT://b:2",
    ],
)
def test_an_endpoint_that_is_none_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"listeners is {text!r}; it must be NAME://HOST:PORT")):
        resolve({"listeners": text})


def test_several_listeners_need_names_and_protocols() -> None:
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:9092, external://0.0.0.0:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,external:plaintext",
        "advertised.listeners": "EXTERNAL://broker.example:19093",
    }
    broker = resolve(given).broker
    assert broker.listeners[1] == Endpoint("EXTERNAL", "0.0.0.0", 9093)
    assert broker.advertised_listeners == (Endpoint("EXTERNAL", "broker.example", 19093),)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"listeners": " "}, "listeners is empty"),
        ({"listeners": "SSL://:9093"}, "SSL://:9093, which speaks SSL; only PLAINTEXT"),
        (
            {"listeners": "X://:9093", "listener.security.protocol.map": "X:SASL_SSL"},
            "X://:9093, which speaks SASL_SSL",
        ),
        ({"advertised.listeners": "OTHER://a:1"}, "OTHER://a:1, but listeners has no OTHER"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "is no address to connect to"),
        ({"advertised.listeners": "PLAINTEXT://:1"}, "is no address to connect to"),
        ({"advertised.listeners": "PLAINTEXT://[::]:1"}, "is no address to connect to"),
    ],
)
def test_listeners_that_do_not_fit_are_told(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        resolve(given)


def test_limits_of_single_addresses_are_read() -> None:
    settings = resolve({"max.connections.per.ip.overrides": "127.0.0.1:5, ::1:7,host.example:0"})
    assert settings.broker.max_connections_per_ip_overrides == (("127.0.0.1", 5), ("::1", 7), ("host.example", 0))
    for text in ("127.0.0.1", "127.0.0.1:x", "127.0.0.1:-1", ":5"):
        with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides is .* ADDRESS:NUMBER"):
            resolve({"max.connections.per.ip.overrides": text})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((Endpoint("A", "::1", 5), Endpoint("B", "h", 6)), "A://[::1]:5,B://h:6"),
        ((("127.0.0.1", 5), ("h", 6)), "127.0.0.1:5,h:6"),
        ((), ""),
        (True, "true"),
        (("a", "b"), "a,b"),
    ],
)
def test_a_value_is_written_as_people_write_it(value: object, text: str) -> None:
    assert endpoint_text(value) == text


def test_the_listeners_of_a_kafka_controller_are_left_out() -> None:
    given = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    assert [endpoint.name for endpoint in resolve(given).broker.listeners] == ["PLAINTEXT"]
