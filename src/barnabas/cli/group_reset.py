"""`barnabas groups reset`: the committed offsets of a group are set to other ones.

Rule 1: a group with members is left alone: they would go on from where they are, and commit that.
Rule 2: what would lie outside of a log is moved to its nearer end, and said.
Rule 3: either every partition has a new offset, or nothing is committed at all.
"""

import argparse
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.cli.connecting import complain
from barnabas.cli.tables import print_json, print_rows
from barnabas.cli.times import Start, parse_start
from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.client.groups import (
    CommittedOffsets,
    OffsetAndMetadata,
    check_has_no_members,
    commit_group_offsets,
    fetch_group_offsets,
)
from barnabas.client.metadata import UnknownPartitionError
from barnabas.client.offsets import EARLIEST, LATEST, offsets_at
from barnabas.model import TopicPartition
from barnabas.wire.errors import ApiError

COLUMNS = ("group", "topic", "partition", "old", "new")


class Selection(NamedTuple):
    """Partitions of a topic; all of them if none is named."""

    topic: str
    partitions: tuple[int, ...] = ()


class Change(NamedTuple):
    """What becomes of one partition; `wanted` is what `new` would be in a log without ends."""

    partition: TopicPartition
    old: int | None
    wanted: int
    new: int


def add_reset_options(parser: argparse.ArgumentParser) -> None:
    """Declare what reset takes."""
    parser.description = (
        "Set the committed offsets of a group that has no members; one that does not exist is made by it.\n"
        "WHERE is earliest, latest, an offset, or a time: ISO 8601 (in UTC unless it says otherwise), @ and\n"
        "milliseconds, or an age like 30s, 10m, 2h or 1d. An offset outside of a log becomes its nearer end."
    )
    parser.add_argument("group", metavar="GROUP")
    scope = parser.add_mutually_exclusive_group(required=True)
    scope.add_argument(
        "--topic",
        action="append",
        type=_selection,
        metavar="TOPIC[:P,P]",
        help="a topic, or some of its partitions; may be repeated",
    )
    scope.add_argument("--all-topics", action="store_true", help="every partition that has a committed offset")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", type=parse_start, metavar="WHERE", help="the new offset")
    target.add_argument(
        "--shift", type=_shift, metavar="N", help="so many offsets further, or back if negative, from the committed one"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")


def _selection(text: str) -> Selection:
    topic, colon, numbers = text.partition(":")
    words = numbers.split(",") if colon else []
    if not topic or not all(word.isascii() and word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"a topic is TOPIC or TOPIC:0,1 with numbers of partitions, not {text!r}")
    return Selection(topic, tuple(dict.fromkeys(map(int, words))))


def _shift(text: str) -> int:
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdecimal()) or len(text) - len(digits) > 1:
        raise argparse.ArgumentTypeError(f"a number like 10 or -10 is needed, but {text!r} was given")
    return int(text)


def reset(client: Client, arguments: argparse.Namespace) -> int:
    """Do it, or only show it."""
    group_id = arguments.group
    check_has_no_members(client, group_id)
    committed = fetch_group_offsets(client, group_id)
    partitions = _partitions(client, arguments, committed)
    changes = _changes(client, arguments, partitions, committed)
    for change in changes:
        if change.new != change.wanted:
            end = "begins" if change.new > change.wanted else "ends"
            used = f"which is used instead of {change.wanted}"
            complain("groups", f"{change.partition} {end} at offset {change.new}, {used}")
    failures: dict[TopicPartition, ApiError] = {}
    if not arguments.dry_run:
        offsets = {change.partition: OffsetAndMetadata(offset=change.new) for change in changes}
        failures = commit_group_offsets(client, group_id, offsets)
    _print(arguments, [change for change in changes if change.partition not in failures])
    for error in failures.values():
        complain("groups", str(error))
    if arguments.dry_run:
        complain("groups", "nothing was changed, because of --dry-run")
    return 1 if failures else 0


def _partitions(client: Client, arguments: argparse.Namespace, committed: CommittedOffsets) -> list[TopicPartition]:
    """Return the partitions to be reset, those of topics that exist."""
    if arguments.all_topics:
        return _committed_partitions(client, arguments.group, committed)
    wanted: dict[TopicPartition, None] = {}
    for selection in arguments.topic:
        count = len(client.topic(selection.topic).partitions)
        for number in selection.partitions or range(count):
            if number >= count:
                raise UnknownPartitionError(selection.topic, number, count)
            wanted[TopicPartition(selection.topic, number)] = None
    return sorted(wanted)


def _committed_partitions(client: Client, group_id: str, committed: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions of a group that there still are."""
    names = sorted({partition.topic for partition in committed})
    topics = client.retrying(lambda: client.fetch_metadata(names)).topics if names else {}
    there = [each for each in committed if each.topic in topics and each.partition < len(topics[each.topic].partitions)]
    if not there:
        raise ClientError(f"group {group_id!r} has no committed offsets: name what to reset by --topic")
    for partition in sorted(set(committed).difference(there)):
        complain("groups", f"{partition} is left as it is, because there is no such partition any more")
    return sorted(there)


def _changes(
    client: Client,
    arguments: argparse.Namespace,
    partitions: list[TopicPartition],
    committed: CommittedOffsets,
) -> list[Change]:
    first, end = offsets_at(client, partitions, EARLIEST), offsets_at(client, partitions, LATEST)
    if arguments.shift is None:
        wanted = _offsets_of(client, arguments.to, partitions)
    else:
        wanted = _shifted(arguments.group, partitions, committed, arguments.shift)
    changes = []
    for partition in partitions:
        old = committed.get(partition)
        new = max(first[partition], min(wanted[partition], end[partition]))
        changes.append(Change(partition, None if old is None else old.offset, wanted[partition], new))
    return changes


def _offsets_of(client: Client, start: Start, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    if start.offset is not None:
        return dict.fromkeys(partitions, start.offset)
    return offsets_at(client, partitions, start.timestamp_at(client.clock.now_ms()))


def _shifted(
    group_id: str, partitions: list[TopicPartition], committed: Mapping[TopicPartition, OffsetAndMetadata], shift: int
) -> dict[TopicPartition, int]:
    missing = [str(partition) for partition in partitions if partition not in committed]
    if missing:
        raise ClientError(f"group {group_id!r} has no committed offset to shift in {', '.join(missing)}")
    return {partition: committed[partition].offset + shift for partition in partitions}


def _print(arguments: argparse.Namespace, changes: list[Change]) -> None:
    if arguments.json:
        print_json(
            {
                "group": arguments.group,
                **change.partition._asdict(),
                "old_offset": change.old,
                "new_offset": change.new,
                "wanted_offset": change.wanted,
                "reset": not arguments.dry_run,
            }
            for change in changes
        )
    else:
        print_rows(COLUMNS, [(arguments.group, *change.partition, change.old, change.new) for change in changes])
