"""`barnabas consume TOPIC`: prints the records of a topic, up to where it ends now, or on and on."""

import argparse
import sys

from barnabas.cli.connecting import add_bootstrap_server, complain, not_negative, positive, with_client
from barnabas.cli.record_format import FIELDS, FormatRecord, record_formatter
from barnabas.cli.times import Start, parse_start
from barnabas.client.client import Client
from barnabas.client.connection import ClientError
from barnabas.client.fetched import FetchedPartition
from barnabas.client.fetcher import Fetcher, FetchOptions
from barnabas.client.metadata import UnknownPartitionError
from barnabas.client.offsets import EARLIEST, LATEST, IsolationLevel, offsets_at
from barnabas.model import TopicPartition

DESCRIPTION = f"""\
Print the records of a topic: those that are there now, or with --follow also those that come. Records of one partition
are in order; partitions are not in any order to each other.
FORMAT is value, key-value (with a tab between), json (one object a line, which `barnabas produce --json` reads), or a
line with fields in braces: {", ".join("{" + field + "}" for field in FIELDS)}.
TIME is ISO 8601, in UTC unless it says otherwise, or @ and milliseconds, or an age like 30s, 10m, 2h or 1d."""
EXAMPLES = """\
examples:
  barnabas consume orders                                   every value, one a line
  barnabas consume orders --follow --format json            what comes from now on
  barnabas consume orders --from 2h --max 10                ten records of the last two hours
  barnabas consume orders --from 42 --partition 0           from an offset on
  barnabas consume orders --group billing --max 10          the next ten of a group, which are then committed
  barnabas consume orders --format '{partition}:{offset} {time} {key}={value}'
"""

# Records that exist come at once; a broker that keeps silent for so long will not send them.
SILENCE_SECONDS = 30


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.add_argument("topic", metavar="TOPIC")
    add_bootstrap_server(parser)
    parser.add_argument(
        "--from",
        dest="start",
        type=parse_start,
        metavar="WHERE",
        help="earliest, latest, an offset, or a TIME (default: earliest, and latest with --follow)",
    )
    parser.add_argument(
        "--partition", type=not_negative, action="append", metavar="N", help="only this one; may be repeated"
    )
    parser.add_argument(
        "--group",
        metavar="GROUP",
        help="begin where this group has come to, or where --from says if it has not begun, and commit what was "
        "printed; the group must have no members",
    )
    parser.add_argument("--follow", action="store_true", help="wait for further records, until Ctrl-C")
    parser.add_argument("--max", type=positive, metavar="N", help="stop after so many records")
    parser.add_argument("--format", default="value", type=_format, metavar="FORMAT", help="(default: %(default)s)")
    parser.add_argument("--null", default="null", metavar="TEXT", help="how null is shown (default: %(default)s)")
    parser.add_argument(
        "--isolation",
        choices=[level.name.lower() for level in IsolationLevel],
        default="read_uncommitted",
        help="with read_committed, records of open and of aborted transactions are left out",
    )
    parser.add_argument(
        "--timeout",
        type=positive,
        metavar="SECONDS",
        help=f"stop when nothing came for so long (default: {SILENCE_SECONDS}, and never with --follow)",
    )


def _format(text: str) -> str:
    try:
        record_formatter(text, null="", is_terminal=False)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def run(arguments: argparse.Namespace) -> int:
    """Print records until the end, or until nobody wants more."""
    return with_client("consume", arguments, lambda client: _consume(client, arguments))


def _consume(client: Client, arguments: argparse.Namespace) -> int:
    isolation = IsolationLevel[arguments.isolation.upper()]
    partitions = _partitions(client, arguments)
    ends = offsets_at(client, partitions, LATEST, isolation)
    positions = _positions(client, arguments, ends, isolation)
    if arguments.group is not None:
        positions = positions | _committed_positions(client, arguments.group, partitions)
    options = FetchOptions(isolation_level=isolation)
    if not arguments.follow:
        positions = {partition: offset for partition, offset in positions.items() if offset < ends[partition]}
    formatter = record_formatter(arguments.format, null=arguments.null, is_terminal=sys.stdout.isatty())
    printer = _Printer(formatter, arguments.max, None if arguments.follow else ends)
    fetcher = Fetcher(client, positions, options)
    patience = arguments.timeout or (None if arguments.follow else SILENCE_SECONDS)
    heard = client.clock.monotonic_seconds()
    while fetcher.positions and not printer.is_done:
        for fetched in fetcher.poll():
            if fetched.data:
                heard = client.clock.monotonic_seconds()
            printer.print(fetched)
        sys.stdout.buffer.flush()
        if arguments.group is not None:
            _commit(client, arguments.group, printer.take_positions())
        if not arguments.follow:
            for partition, offset in list(fetcher.positions.items()):
                if offset >= ends[partition]:
                    fetcher.drop(partition)
        if patience is not None and client.clock.monotonic_seconds() - heard >= patience:
            return _end_in_silence(fetcher, ends, patience, is_follow=arguments.follow)
    return 0


def _end_in_silence(fetcher: Fetcher, ends: dict[TopicPartition, int], seconds: int, *, is_follow: bool) -> int:
    if is_follow or not fetcher.positions:
        return 0
    partition, offset = next(iter(fetcher.positions.items()))
    reason = f"{partition} ends at offset {ends[partition]}, but nothing came from {offset} on for {seconds} s"
    complain("consume", reason)
    return 1


def _partitions(client: Client, arguments: argparse.Namespace) -> list[TopicPartition]:
    count = len(client.topic(arguments.topic).partitions)
    wanted = range(count) if arguments.partition is None else dict.fromkeys(arguments.partition)
    for number in wanted:
        if number >= count:
            raise UnknownPartitionError(arguments.topic, number, count)
    return [TopicPartition(arguments.topic, number) for number in wanted]


def _positions(
    client: Client, arguments: argparse.Namespace, ends: dict[TopicPartition, int], isolation: IsolationLevel
) -> dict[TopicPartition, int]:
    """Return where to begin in each partition."""
    start = arguments.start or Start(timestamp=LATEST if arguments.follow else EARLIEST)
    if start.timestamp == LATEST:
        return ends
    if start.offset is None:
        return offsets_at(client, ends, start.timestamp_at(client.clock.now_ms()), isolation)
    if len(ends) > 1:
        raise ClientError(f"an offset is one of a partition, and {arguments.topic!r} has {len(ends)}: say --partition")
    (partition,) = ends
    first = offsets_at(client, ends, EARLIEST)[partition]
    if not first <= start.offset <= ends[partition]:
        raise ClientError(f"{partition} has offsets {first} to {ends[partition]}, but not {start.offset}")
    return {partition: start.offset}


def _committed_positions(client: Client, group_id: str, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return where a group goes on; an offset that its log does not have any more is none."""
    from barnabas.client.groups import check_has_no_members, fetch_group_offsets  # Only few need them.

    check_has_no_members(client, group_id)
    firsts, ends = offsets_at(client, partitions, EARLIEST), offsets_at(client, partitions, LATEST)
    committed = fetch_group_offsets(client, group_id, partitions).items()
    return {each: found.offset for each, found in committed if firsts[each] <= found.offset <= ends[each]}


def _commit(client: Client, group_id: str, positions: dict[TopicPartition, int]) -> None:
    from barnabas.client.groups import OffsetAndMetadata, commit_group_offsets

    if positions:
        offsets = {partition: OffsetAndMetadata(offset=offset) for partition, offset in positions.items()}
        for error in commit_group_offsets(client, group_id, offsets).values():
            raise error


class _Printer:
    """Prints records until there are enough, and none behind the ends."""

    def __init__(self, format_record: FormatRecord, most: int | None, ends: dict[TopicPartition, int] | None) -> None:
        self._format_record = format_record
        self._most = most
        self._ends = ends
        self._count = 0
        self._positions: dict[TopicPartition, int] = {}

    @property
    def is_done(self) -> bool:
        return self._most is not None and self._count >= self._most

    def take_positions(self) -> dict[TopicPartition, int]:
        """Return the offsets behind what was printed since the last call."""
        positions, self._positions = self._positions, {}
        return positions

    def print(self, fetched: FetchedPartition) -> None:
        """Print what is wanted of a partition; one write for each batch, since a write for each record takes longer."""
        end = None if self._ends is None else self._ends[fetched.partition]
        for batch in fetched.batches():
            records = [
                record
                for record in batch.records()
                if record.offset >= fetched.fetch_offset and (end is None or record.offset < end)
            ]
            if self._most is not None:
                records = records[: self._most - self._count]
            lines = [self._format_record(fetched.partition, record) for record in records]
            sys.stdout.buffer.write(b"".join(lines))
            self._count += len(lines)
            if records:
                self._positions[fetched.partition] = records[-1].offset + 1
            if self.is_done:
                return
        # What is not shown, like the markers of transactions, lies behind as well.
        behind = fetched.next_offset if end is None else min(fetched.next_offset, end)
        if behind > fetched.fetch_offset:
            self._positions[fetched.partition] = behind
