"""`barnabas transactions list|describe|abort`: which transactions there are, what they hold, and the end of one."""

import argparse
from typing import Any

from barnabas.cli.actions import Actions, run_action
from barnabas.cli.connecting import complain, not_negative
from barnabas.cli.tables import print_json, print_rows
from barnabas.cli.times import duration_text, parse_duration_ms, time_text
from barnabas.client import transactions
from barnabas.client.client import Client
from barnabas.client.transactions import STATES, UNDER_WAY, NoOpenTransactionError, TransactionDescription
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError

DESCRIPTION = """\
List, describe and abort transactions. In a terminal the output is a table; piped it is lines with tabs between the
columns and no heading; with --json it is one JSON object a transactional id, one a line.
The exit code is 0 when everything was done, 1 when something was not, and 2 when the command can not be understood."""
EXAMPLES = """\
examples:
  barnabas transactions list                                  every transactional id
  barnabas transactions list --older-than 10m                 transactions that have been under way for long
  barnabas transactions describe billing-1                    its state, producer and partitions
  barnabas transactions abort billing-1                       abort what is open, and fence its producer
  barnabas transactions abort --topic orders --partition 0 --start-offset 42    one that no coordinator knows of
"""
ABORT_DESCRIPTION = """\
Abort open transactions: by their transactional ids, which also fences the producers that opened them; or, where a
transaction hangs in a partition and no coordinator knows of it, by the offset at which it begins there. The latter only
writes a marker into that partition: make sure that no producer is still writing in that transaction."""

LIST_COLUMNS = ("transactional_id", "producer", "state", "coordinator")
DESCRIBE_COLUMNS = (
    "transactional_id",
    "state",
    "producer",
    "epoch",
    "time-out",
    "started",
    "age",
    "coordinator",
    "partitions",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the command and its subcommands take."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    actions = Actions(parser, "transactions", "transactional id")

    listing = actions.add("list", "show transactional ids", "--older-than 10m --pattern 'billing-.*'", _list)
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        type=_state,
        metavar="STATE",
        help=f"only those in this state; may be repeated ({', '.join(STATES)})",
    )
    listing.add_argument(
        "--older-than",
        type=parse_duration_ms,
        metavar="DURATION",
        help="only transactions that have been under way for longer, like 30s, 10m, 2h or 1d",
    )
    listing.add_argument("--pattern", metavar="REGEX", help="only ids that this regular expression matches as a whole")

    describing = actions.add("describe", "show state, producer and partitions", "billing-1 --json", _describe)
    describing.add_argument("ids", nargs="+", metavar="ID")

    aborting = actions.add("abort", "abort open transactions", "billing-1", _abort)
    aborting.description = ABORT_DESCRIPTION
    aborting.add_argument("ids", nargs="*", metavar="ID")
    aborting.add_argument("--topic", metavar="TOPIC", help="instead of an ID: where the transaction hangs")
    aborting.add_argument("--partition", type=not_negative, metavar="N", help="which partition of the topic")
    aborting.add_argument("--start-offset", type=not_negative, metavar="N", help="the first offset of the transaction")


def _state(text: str) -> str:
    for state in STATES:
        if text.lower() == state.lower():
            return state
    raise argparse.ArgumentTypeError(f"a state is one of {', '.join(STATES)}, but {text!r} was given")


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked, against a broker."""
    return run_action("transactions", arguments)


def _list(client: Client, arguments: argparse.Namespace) -> int:
    # To a broker, an id without a transaction is older than all others; nobody who asks for old ones wants to see it.
    states = arguments.state or (UNDER_WAY if arguments.older_than is not None else ())
    rows = [
        (each.transactional_id, each.producer_id, each.state, each.coordinator_id)
        for each in transactions.list_transactions(
            client, states=states, older_than_ms=arguments.older_than, pattern=arguments.pattern
        )
    ]
    if arguments.json:
        names = ("transactional_id", "producer_id", "state", "coordinator")
        print_json(dict(zip(names, row, strict=True)) for row in rows)
    else:
        print_rows(LIST_COLUMNS, rows)
    return 0


def _describe(client: Client, arguments: argparse.Namespace) -> int:
    described: list[TransactionDescription] = []
    exit_code = 0
    for answer in transactions.describe_transactions(client, arguments.ids).values():
        if isinstance(answer, ApiError):
            complain("transactions", str(answer))
            exit_code = 1
        else:
            described.append(answer)
    now_ms = client.clock.now_ms()
    if arguments.json:
        print_json(_as_object(each, now_ms) for each in described)
    elif described:
        print_rows(DESCRIBE_COLUMNS, [_columns(each, now_ms) for each in described])
    return exit_code


def _age_ms(described: TransactionDescription, now_ms: int) -> int | None:
    # The clock of the broker may be ahead of ours.
    return None if described.start_timestamp is None else max(0, now_ms - described.start_timestamp)


def _columns(described: TransactionDescription, now_ms: int) -> tuple[Any, ...]:
    """Return an id as DESCRIBE_COLUMNS has it."""
    age_ms = _age_ms(described, now_ms)
    return (
        described.transactional_id,
        described.state,
        described.producer_id,
        described.producer_epoch,
        duration_text(described.timeout_ms),
        None if described.start_timestamp is None else time_text(described.start_timestamp),
        None if age_ms is None else duration_text(age_ms),
        described.coordinator_id,
        " ".join(map(str, described.partitions)),
    )


def _as_object(described: TransactionDescription, now_ms: int) -> dict[str, Any]:
    return {
        "transactional_id": described.transactional_id,
        "state": described.state,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "timeout_ms": described.timeout_ms,
        "start_timestamp": described.start_timestamp,
        "age_ms": _age_ms(described, now_ms),
        "coordinator": described.coordinator_id,
        "partitions": [partition._asdict() for partition in described.partitions],
    }


def _abort(client: Client, arguments: argparse.Namespace) -> int:
    place = (arguments.topic, arguments.partition, arguments.start_offset)
    if arguments.ids and place == (None, None, None):
        return _abort_by_id(client, arguments)
    if arguments.ids or None in place:
        complain("transactions", "abort needs either ids, or all of --topic, --partition and --start-offset")
        return 2
    partition = TopicPartition(arguments.topic, arguments.partition)
    producer = transactions.abort_in_partition(client, partition, arguments.start_offset)
    if arguments.json:
        found = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        print_json([{**partition._asdict(), "start_offset": arguments.start_offset, **found, "aborted": True}])
    else:
        print(f"aborted {partition} from offset {arguments.start_offset} on (producer {producer.producer_id})")
    return 0


def _abort_by_id(client: Client, arguments: argparse.Namespace) -> int:
    exit_code = 0
    for name in dict.fromkeys(arguments.ids):
        try:
            transactions.abort_transaction(client, name)
        except (ApiError, NoOpenTransactionError) as error:
            complain("transactions", str(error))
            exit_code = 1
            continue
        if arguments.json:
            print_json([{"transactional_id": name, "aborted": True}])
        else:
            print(f"aborted {name}")
    return exit_code
