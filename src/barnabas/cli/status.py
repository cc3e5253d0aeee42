"""`barnabas status`: what a running broker is doing, how its disks are, and how far recovery has come."""

import argparse
import json
from typing import Any

from barnabas.cli.connecting import add_bootstrap_server, complain, with_client
from barnabas.cli.tables import print_rows
from barnabas.cli.times import duration_text
from barnabas.client.answers import check_answer
from barnabas.client.client import Client
from barnabas.client.connection import UnsupportedVersionError
from barnabas.wire.messages.broker_status import DescribeBrokerStatusRequest

DESCRIPTION = """\
Show what a broker is doing: its state, its log directories with the room that is left, and, after a stop that was not
in order, the logs that are still being recovered. Only a Barnabas broker can be asked.
The exit code is 0 when the broker answered, 1 when it did not, and 2 when the command can not be understood."""
EXAMPLES = """\
examples:
  barnabas status                                   the broker of this machine
  barnabas status --bootstrap-server broker:9092    another one
  barnabas status --json                            one JSON object, for programs
"""

GIGABYTE = 1 << 30
MEGABYTE = 1 << 20
DIRECTORY_COLUMNS = ("directory", "state", "logs", "used", "free", "size", "reason")
LOADING_COLUMNS = ("recovering", "done", "of")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    add_bootstrap_server(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")


def run(arguments: argparse.Namespace) -> int:
    """Ask, and show what the broker says."""
    return with_client("status", arguments, lambda client: _show(client, as_json=arguments.json))


def _show(client: Client, *, as_json: bool) -> int:
    connection = client.any_connection()
    try:
        answer = connection.request(DescribeBrokerStatusRequest())
    except UnsupportedVersionError:
        complain("status", f"{connection.address} is no Barnabas broker, or an older one, and can not tell its status")
        return 1
    check_answer(answer.error_code, "the broker does not tell its status", answer.error_message)
    status = _as_dictionary(answer)
    if as_json:
        print(json.dumps(status))
    else:
        _print(status)
    return 0


def _as_dictionary(answer: Any) -> dict[str, Any]:
    return {
        "node_id": answer.node_id,
        "cluster_id": answer.cluster_id,
        "version": answer.version,
        "state": answer.state,
        "uptime_ms": answer.uptime_ms,
        "topics": answer.topic_count,
        "partitions": answer.partition_count,
        "requests": answer.request_count,
        "log_directories": [
            {
                "path": one.path,
                "state": one.state,
                "reason": one.reason,
                "logs": one.log_count,
                "log_bytes": one.log_bytes,
                "free_bytes": one.free_bytes,
                "total_bytes": one.total_bytes,
            }
            for one in answer.log_directories
        ],
        "recovery": {
            "logs_done": answer.recovery_logs_done,
            "logs_total": answer.recovery_logs_total,
            "bytes_done": answer.recovery_bytes_done,
            "bytes_total": answer.recovery_bytes_total,
            "loading": [
                {
                    "topic": one.topic,
                    "partition": one.partition_index,
                    "bytes_done": one.done_bytes,
                    "bytes_total": one.total_bytes,
                }
                for one in answer.loading
            ],
        },
    }


def _print(status: dict[str, Any]) -> None:
    recovery = status["recovery"]
    facts = [
        ("broker", f"{status['node_id']} of cluster {status['cluster_id']}"),
        ("version", status["version"]),
        ("state", status["state"]),
        ("uptime", duration_text(status["uptime_ms"])),
        ("topics", f"{status['topics']}, {status['partitions']} partitions in service"),
        ("requests", status["requests"]),
    ]
    if recovery["logs_total"]:
        done, total = _bytes(recovery["bytes_done"]), _bytes(recovery["bytes_total"])
        facts.append(("recovery", f"{recovery['logs_done']} of {recovery['logs_total']} logs, {done} of {total}"))
    for name, fact in facts:
        print(f"{name}:".ljust(12) + str(fact))
    print()
    rows = [
        (
            one["path"],
            one["state"],
            one["logs"],
            _bytes(one["log_bytes"]),
            _bytes(one["free_bytes"]),
            _bytes(one["total_bytes"]),
            one["reason"],
        )
        for one in status["log_directories"]
    ]
    print_rows(DIRECTORY_COLUMNS, rows)
    if recovery["loading"]:
        print()
        waiting = [
            (f"{one['topic']}-{one['partition']}", _bytes(one["bytes_done"]), _bytes(one["bytes_total"]))
            for one in recovery["loading"]
        ]
        print_rows(LOADING_COLUMNS, waiting)


def _bytes(size: int) -> str:
    return f"{size / GIGABYTE:.1f} GB" if size >= GIGABYTE // 10 else f"{size / MEGABYTE:.1f} MB"
