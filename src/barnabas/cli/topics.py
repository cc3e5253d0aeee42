"""`barnabas topics list|create|describe|explain|alter|move|delete`: the topics of a cluster, and their settings."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.cli.actions import Actions, run_action
from barnabas.cli.connecting import complain, positive
from barnabas.cli.tables import print_json, print_rows
from barnabas.cli.topic_move import add_move
from barnabas.cli.topic_segments import add_explain
from barnabas.client import admin
from barnabas.client.admin import ConfigChange, ConfigOperation, Failures, NewTopic
from barnabas.client.client import Client
from barnabas.client.metadata import TopicMetadata
from barnabas.client.offsets import EARLIEST, LATEST, offsets_at
from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import encode_topic_id
from barnabas.wire.errors import ErrorCode

DESCRIPTION = """\
List, create, describe, explain, change, move and delete topics. In a terminal the output is a table; piped it is lines
with tabs between the columns and no heading; with --json it is one JSON object a topic, one a line.
The exit code is 0 when everything was done, 1 when something was not, and 2 when the command can not be understood."""
EXAMPLES = """\
examples:
  barnabas topics list                                            every topic
  barnabas topics create orders --partitions 3                    a new one
  barnabas topics create state --config cleanup.policy=compact    with a setting of its own
  barnabas topics describe orders                                 its partitions, offsets and settings
  barnabas topics explain orders                                  why each segment is still there
  barnabas topics alter orders --config retention.ms=86400000     change a setting
  barnabas topics move orders --to /disks/b                       to another disk
  barnabas topics delete orders                                   and everything that is in it
"""

LIST_COLUMNS = ("topic", "partitions", "replicas")
PARTITION_COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "start", "end")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the command and its subcommands take."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    actions = Actions(parser, "topics", "topic")

    listing = actions.add("list", "show every topic", "--internal", _list)
    listing.add_argument("--internal", action="store_true", help="also the topics that the broker keeps for itself")

    example = "orders --partitions 3 --config retention.ms=86400000"
    creating = actions.add("create", "create topics", example, _create)
    creating.add_argument("names", nargs="+", metavar="NAME")
    creating.add_argument("--partitions", type=positive, metavar="N", help="(default: the broker's num.partitions)")
    creating.add_argument(
        "--replication-factor", type=positive, metavar="N", help="(default: the broker's default.replication.factor)"
    )
    _add_config(creating)
    creating.add_argument("--if-not-exists", action="store_true", help="a topic that exists is left as it is")

    example = "orders --json"
    describing = actions.add("describe", "show partitions, offsets and settings", example, _describe)
    describing.add_argument("names", nargs="*", metavar="NAME", help="(default: every topic that is not internal)")

    add_explain(actions)

    example = "orders --partitions 6 --delete-config retention.ms"
    altering = actions.add("alter", "add partitions, change settings", example, _alter)
    altering.add_argument("name", metavar="NAME")
    altering.add_argument("--partitions", type=positive, metavar="N", help="raise the number of partitions to N")
    _add_config(altering)
    altering.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="let the broker's own value hold again; may be repeated",
    )

    add_move(actions)

    example = "orders payments --if-exists"
    deleting = actions.add("delete", "delete topics and their records", example, _delete)
    deleting.add_argument("names", nargs="+", metavar="NAME")
    deleting.add_argument("--if-exists", action="store_true", help="a topic that does not exist is no error")


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a setting of the topic, by Kafka's name for it; may be repeated",
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"a setting is NAME=VALUE, but {text!r} was given")
    return name, value


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked, against a broker."""
    return run_action("topics", arguments)


def _list(client: Client, arguments: argparse.Namespace) -> int:
    topics = admin.list_topics(client, internal=arguments.internal)
    if arguments.json:
        print_json(
            {
                "topic": topic.name,
                "topic_id": _topic_id(topic),
                "partitions": len(topic.partitions),
                "replication_factor": topic.replication_factor,
                "internal": topic.is_internal,
            }
            for topic in topics
        )
    else:
        print_rows(LIST_COLUMNS, [(t.name, len(t.partitions), t.replication_factor) for t in topics])
    return 0


def _create(client: Client, arguments: argparse.Namespace) -> int:
    failures = admin.create_topics(
        client,
        [
            NewTopic(
                name=name,
                partitions=arguments.partitions or admin.BROKER_DEFAULT,
                replication_factor=arguments.replication_factor or admin.BROKER_DEFAULT,
                configs=dict(arguments.config),
            )
            for name in dict.fromkeys(arguments.names)
        ],
    )
    forgiven = ErrorCode.TOPIC_ALREADY_EXISTS if arguments.if_not_exists else None
    return _report("created", arguments, failures, forgiven)


def _delete(client: Client, arguments: argparse.Namespace) -> int:
    failures = admin.delete_topics(client, list(dict.fromkeys(arguments.names)))
    return _report(
        "deleted", arguments, failures, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if arguments.if_exists else None
    )


def _report(done: str, arguments: argparse.Namespace, failures: Failures, forgiven: ErrorCode | None) -> int:
    """Say for each topic whether it was created or deleted; `forgiven` is the error that was said to be none."""
    exit_code = 0
    for name in dict.fromkeys(arguments.names):
        error = failures.get(name)
        if error is not None and error.code != forgiven:
            complain("topics", str(error))
            exit_code = 1
        elif arguments.json:
            print_json([{"topic": name, done: error is None}])
        elif error is None:
            print(f"{done} {name}")
    return exit_code


def _alter(client: Client, arguments: argparse.Namespace) -> int:
    name = arguments.name
    changes = [ConfigChange(name=setting, value=value) for setting, value in arguments.config]
    changes += [
        ConfigChange(name=setting, value=None, operation=ConfigOperation.DELETE) for setting in arguments.delete_config
    ]
    if not changes and arguments.partitions is None:
        complain("topics", "alter needs --partitions, --config or --delete-config")
        return 2
    # Settings come first: a wrong one is refused before partitions are added, which can not be undone.
    failures = admin.alter_configs(client, {name: changes}) if changes else {}
    if not failures and arguments.partitions is not None:
        failures = admin.create_partitions(client, {name: arguments.partitions})
    for error in failures.values():
        complain("topics", str(error))
    if not failures:
        if arguments.json:
            print_json([{"topic": name, "altered": True}])
        else:
            print(f"altered {name}")
    return 1 if failures else 0


def _describe(client: Client, arguments: argparse.Namespace) -> int:
    names = list(dict.fromkeys(arguments.names))
    topics = admin.describe_topics(client, names) if names else admin.list_topics(client)
    if not topics:
        return 0
    settings = {
        name: {entry.name: entry.value for entry in entries.values() if entry.is_overridden}
        for name, entries in admin.describe_configs(client, [topic.name for topic in topics]).items()
    }
    # Nobody knows the offsets of a partition without a leader, and asking would only wait for one.
    led = [TopicPartition(t.name, p.partition) for t in topics for p in t.partitions if p.leader_id >= 0]
    starts, ends = offsets_at(client, led, EARLIEST), offsets_at(client, led, LATEST)
    rows = {topic.name: _partition_rows(topic, starts, ends) for topic in topics}
    if arguments.json:
        print_json(_as_object(topic, settings[topic.name], rows[topic.name]) for topic in topics)
    elif sys.stdout.isatty():
        _print_for_people(topics, settings, rows)
    else:
        columns = [(*row[:3], _ids(row[3]), _ids(row[4]), *row[5:]) for topic in topics for row in rows[topic.name]]
        print_rows(PARTITION_COLUMNS, [(*row, _settings(settings[row[0]])) for row in columns])
    return 0


def _partition_rows(
    topic: TopicMetadata, starts: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> list[tuple[Any, ...]]:
    """Return the partitions of a topic, as PARTITION_COLUMNS has them."""
    rows = []
    for each in topic.partitions:
        partition = TopicPartition(topic.name, each.partition)
        leader = each.leader_id if each.leader_id >= 0 else None
        offsets = (starts.get(partition), ends.get(partition))
        rows.append((topic.name, each.partition, leader, each.replicas, each.isr, *offsets))
    return rows


def _as_object(topic: TopicMetadata, settings: dict[str, str | None], rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    names = ("partition", "leader", "replicas", "isr", "start_offset", "end_offset")
    return {
        "topic": topic.name,
        "topic_id": _topic_id(topic),
        "internal": topic.is_internal,
        "replication_factor": topic.replication_factor,
        "configs": settings,
        "partitions": [dict(zip(names, row[1:], strict=True)) for row in rows],
    }


def _print_for_people(
    topics: Sequence[TopicMetadata], settings: dict[str, dict[str, str | None]], rows: dict[str, list[tuple[Any, ...]]]
) -> None:
    for number, topic in enumerate(topics):
        if number:
            print()
        replicas = f"replication factor {topic.replication_factor}"
        print(f"{topic.name}  id {_topic_id(topic) or '-'}  {replicas}  {_settings(settings[topic.name])}".rstrip())
        print_rows(PARTITION_COLUMNS[1:], [(*r[1:3], _ids(r[3]), _ids(r[4]), *r[5:]) for r in rows[topic.name]])


def _settings(settings: dict[str, str | None]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(settings.items()))


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def _topic_id(topic: TopicMetadata) -> str | None:
    return encode_topic_id(topic.topic_id) if topic.has_topic_id else None
