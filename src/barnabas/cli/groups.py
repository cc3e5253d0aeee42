"""`barnabas groups list|describe|reset|delete`: who reads what, how far they have come, and from where they go on."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.cli.actions import Actions, run_action
from barnabas.cli.connecting import complain
from barnabas.cli.group_reset import add_reset_options, reset
from barnabas.cli.tables import print_json, print_rows
from barnabas.client import groups
from barnabas.client.client import Client
from barnabas.client.groups import GroupDescription, GroupMember, OffsetAndMetadata
from barnabas.client.offsets import LATEST, offsets_at
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError, ErrorCode

DESCRIPTION = """\
List, describe, reset and delete consumer groups, of the classic protocol and of the one of KIP-848. In a terminal the
output is a table; piped it is lines with tabs between the columns and no heading; with --json it is one JSON object a
group, one a line (for reset: one a partition).
The exit code is 0 when everything was done, 1 when something was not, and 2 when the command can not be understood."""
EXAMPLES = """\
examples:
  barnabas groups list --state stable                               who reads now
  barnabas groups describe billing                                  members, offsets and lag
  barnabas groups reset billing --topic orders --to earliest        read it again from the beginning
  barnabas groups reset billing --all-topics --to 2h --dry-run      what would going back two hours be?
  barnabas groups delete billing                                    and its offsets
"""

# Kafka's names: of groups of both protocols, and of the coordinators of old Kafkas.
STATES = ("Empty", "Stable", "Assigning", "Reconciling", "PreparingRebalance", "CompletingRebalance", "Dead")
TYPES = (groups.CLASSIC, groups.CONSUMER)

LIST_COLUMNS = ("group", "type", "protocol", "state")
PARTITION_COLUMNS = ("topic", "partition", "committed", "end", "lag", "member", "client", "host", "metadata")
MEMBER_COLUMNS = ("member", "instance", "client", "host", "partitions")


class PartitionRow(NamedTuple):
    """A partition of a group: how far it was read, where it ends, and who has it. Each of these may be unknown."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None
    end_offset: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """How many offsets are not read yet; of a topic that was made anew, the committed offset may be behind it."""
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed.offset)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the command and its subcommands take."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    actions = Actions(parser, "groups", "group")

    listing = actions.add("list", "show every group", "--state stable --state empty", _list)
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        type=_state,
        metavar="STATE",
        help=f"only groups in this state; may be repeated ({', '.join(STATES)})",
    )
    listing.add_argument(
        "--type", action="append", default=[], type=str.lower, choices=TYPES, help="only groups of this type"
    )

    describing = actions.add("describe", "show members, offsets and lag", "billing --json", _describe)
    describing.add_argument("names", nargs="*", metavar="GROUP", help="(default: every group)")

    resetting = actions.add(
        "reset",
        "set the committed offsets of a group without members",
        "billing --topic orders:0,1 --to 2026-01-31T12:00",
        reset,
    )
    add_reset_options(resetting)

    deleting = actions.add("delete", "delete groups without members", "billing audit --if-exists", _delete)
    deleting.add_argument("names", nargs="+", metavar="GROUP")
    deleting.add_argument("--if-exists", action="store_true", help="a group that does not exist is no error")


def _state(text: str) -> str:
    for state in STATES:
        if text.lower() == state.lower():
            return state
    raise argparse.ArgumentTypeError(f"a state is one of {', '.join(STATES)}, but {text!r} was given")


def run(arguments: argparse.Namespace) -> int:
    """Do what is asked, against a broker."""
    return run_action("groups", arguments)


def _list(client: Client, arguments: argparse.Namespace) -> int:
    rows = [
        (group.group_id, group.group_type, group.protocol_type, group.state)
        for group in groups.list_groups(client, states=arguments.state, types=arguments.type)
    ]
    if arguments.json:
        print_json(dict(zip(LIST_COLUMNS, row, strict=True)) for row in rows)
    else:
        print_rows(LIST_COLUMNS, rows)
    return 0


def _delete(client: Client, arguments: argparse.Namespace) -> int:
    names = list(dict.fromkeys(arguments.names))
    failures = groups.delete_groups(client, names)
    forgiven = ErrorCode.GROUP_ID_NOT_FOUND if arguments.if_exists else None
    exit_code = 0
    for name in names:
        error = failures.get(name)
        if error is not None and error.code != forgiven:
            complain("groups", str(error))
            exit_code = 1
        elif arguments.json:
            print_json([{"group": name, "deleted": error is None}])
        elif error is None:
            print(f"deleted {name}")
    return exit_code


def _describe(client: Client, arguments: argparse.Namespace) -> int:
    names = list(dict.fromkeys(arguments.names)) or _consumer_groups(client)
    described: dict[str, GroupDescription] = {}
    exit_code = 0
    for name, answer in groups.describe_groups(client, names).items():
        if isinstance(answer, ApiError):
            complain("groups", str(answer))
            exit_code = 1
        else:
            described[name] = answer
    rows = _rows(client, described)
    if arguments.json:
        print_json(_as_object(group, rows[name]) for name, group in described.items())
    elif sys.stdout.isatty():
        for number, (name, group) in enumerate(described.items()):
            print("\n" * (number > 0), end="")
            _print_for_people(group, rows[name])
    else:
        for name, group in described.items():
            columns = [*map(_partition_columns, rows[name]), *map(_idle_columns, _idle(group))]
            print_rows(("group", *PARTITION_COLUMNS), [(name, *row) for row in columns])
    return exit_code


def _consumer_groups(client: Client) -> list[str]:
    """Return the groups that can be described: Kafka has share groups and streams groups, too."""
    return [group.group_id for group in groups.list_groups(client) if group.group_type in ("", *TYPES)]


def _rows(client: Client, described: Mapping[str, GroupDescription]) -> dict[str, list[PartitionRow]]:
    """Return the partitions of each group: those with a committed offset, and those that a member has."""
    committed = {name: groups.fetch_group_offsets(client, name) for name in described}
    owners = {
        name: {partition: member for member in group.members for partition in member.partitions}
        for name, group in described.items()
    }
    partitions = {name: sorted({*committed[name], *owners[name]}) for name in described}
    ends = _end_offsets(client, {partition for known in partitions.values() for partition in known})
    return {
        name: [
            PartitionRow(
                partition=partition,
                committed=committed[name].get(partition),
                end_offset=ends.get(partition),
                member=owners[name].get(partition),
            )
            for partition in partitions[name]
        ]
        for name in described
    }


def _end_offsets(client: Client, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return where partitions end; those of deleted topics and those without a leader are left out."""
    wanted = set(partitions)
    if not wanted:
        return {}
    topics = client.retrying(lambda: client.fetch_metadata(sorted({partition.topic for partition in wanted}))).topics
    led = {
        TopicPartition(topic.name, each.partition)
        for topic in topics.values()
        for each in topic.partitions
        if each.leader_id >= 0
    }
    return offsets_at(client, sorted(wanted & led), LATEST)


def _idle(group: GroupDescription) -> list[GroupMember]:
    return [member for member in group.members if not member.partitions]


def _partition_columns(row: PartitionRow) -> tuple[Any, ...]:
    """Return a partition as PARTITION_COLUMNS has it."""
    offset, metadata = (row.committed.offset, row.committed.metadata) if row.committed else (None, None)
    member = (row.member.member_id, row.member.client_id, row.member.client_host) if row.member else (None, None, None)
    return (*row.partition, offset, row.end_offset, row.lag, *member, metadata)


def _idle_columns(member: GroupMember) -> tuple[Any, ...]:
    """Return a member without partitions as PARTITION_COLUMNS has it: programs get one kind of line."""
    return (None, None, None, None, None, member.member_id, member.client_id, member.client_host, None)


def _total_lag(rows: Sequence[PartitionRow]) -> int:
    return sum(row.lag or 0 for row in rows)


def _print_for_people(group: GroupDescription, rows: Sequence[PartitionRow]) -> None:
    words = [group.group_id, group.group_type, group.state]
    if group.assignor:
        words.append(f"assignor {group.assignor}")
    if group.group_epoch is not None:
        words.append(f"epoch {group.group_epoch}")
    words += [f"coordinator {group.coordinator_id}", f"members {len(group.members)}", f"lag {_total_lag(rows)}"]
    unknown = sum(row.lag is None for row in rows)
    if unknown:
        words.append(f"(and that of {unknown} partition{'s' if unknown > 1 else ''}, which is not known)")
    print("  ".join(words))
    if rows:
        columns = (*PARTITION_COLUMNS[:6], PARTITION_COLUMNS[8])
        print_rows(columns, [(*fields[:6], fields[8]) for fields in map(_partition_columns, rows)])
    if group.members:
        print_rows(MEMBER_COLUMNS, [_member_columns(member) for member in group.members])


def _member_columns(member: GroupMember) -> tuple[Any, ...]:
    partitions = " ".join(map(str, member.partitions))
    return (member.member_id, member.instance_id, member.client_id, member.client_host, partitions)


def _as_object(group: GroupDescription, rows: Sequence[PartitionRow]) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "type": group.group_type,
        "protocol": group.protocol_type,
        "state": group.state,
        "assignor": group.assignor or None,
        "epoch": group.group_epoch,
        "coordinator": group.coordinator_id,
        "lag": _total_lag(rows),
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "epoch": member.member_epoch,
                "partitions": [partition._asdict() for partition in member.partitions],
            }
            for member in group.members
        ],
        "partitions": [
            {
                **row.partition._asdict(),
                "committed_offset": row.committed.offset if row.committed else None,
                "end_offset": row.end_offset,
                "lag": row.lag,
                "member": row.member.member_id if row.member else None,
                "metadata": row.committed.metadata if row.committed else None,
            }
            for row in rows
        ],
    }
