"""`barnabas topics explain`: every segment of a topic, why it is still there, and when it will go."""

import argparse
import sys
from dataclasses import asdict
from typing import Any

from barnabas.cli.actions import Actions
from barnabas.cli.connecting import complain
from barnabas.cli.tables import print_json, print_rows
from barnabas.cli.times import time_text
from barnabas.client import admin
from barnabas.client.client import Client
from barnabas.client.segments import PartitionSegments, Segment, describe_segments
from barnabas.model import TopicPartition

COLUMNS = ("base", "end", "bytes", "newest record", "goes", "why")


def add_explain(actions: Actions) -> None:
    """Declare the action."""
    sentence = "say for every segment why it is still there, and when it will go"
    explaining = actions.add("explain", sentence, "orders --partition 0", _explain)
    explaining.add_argument("name", metavar="TOPIC")
    explaining.add_argument("--partition", type=_index, metavar="N", help="only this one (default: all)")


def _index(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"the number of a partition is needed, but {text!r} was given")
    return int(text)


def _explain(client: Client, arguments: argparse.Namespace) -> int:
    (topic,) = admin.describe_topics(client, [arguments.name])
    indexes = [one.partition for one in topic.partitions]
    if arguments.partition is not None:
        if arguments.partition not in indexes:
            complain("topics", f"{topic.name!r} has no partition {arguments.partition}, but {len(indexes)} partitions")
            return 1
        indexes = [arguments.partition]
    found = describe_segments(client, [TopicPartition(topic.name, index) for index in indexes])
    if arguments.json:
        print_json([{"topic": topic.name, "partitions": [asdict(partition) for partition in found]}])
    elif sys.stdout.isatty():
        _print_for_people(topic.name, found)
    else:
        print_rows(
            ("topic", "partition", *COLUMNS, "cleaner"),
            [(topic.name, one.partition, *_row(segment), one.cleaning) for one in found for segment in one.segments],
        )
    return 0


def _row(segment: Segment) -> tuple[Any, ...]:
    """Return a segment as COLUMNS has it."""
    newest = None if segment.largest_timestamp is None else time_text(segment.largest_timestamp)
    goes = "now" if segment.goes else None if segment.due_ms is None else time_text(segment.due_ms)
    return segment.base_offset, segment.end_offset, segment.size_bytes, newest, goes, segment.sentence


def _print_for_people(topic: str, partitions: list[PartitionSegments]) -> None:
    for number, one in enumerate(partitions):
        if number:
            print()
        size_bytes = sum(segment.size_bytes for segment in one.segments)
        going = sum(segment.goes for segment in one.segments)
        offsets = f"offsets {one.log_start_offset} to {one.log_end_offset}, high watermark {one.high_watermark}"
        held = f"{len(one.segments)} segments with {size_bytes} bytes, {going} of them to be deleted"
        print(f"{topic}-{one.partition}  {offsets}; {held}")
        if one.cleaning is not None:
            dirty = "" if one.first_dirty_offset is None else f" (compacted up to offset {one.first_dirty_offset})"
            print(f"cleaner: {one.cleaning}{dirty}")
        print_rows(COLUMNS, [_row(segment) for segment in one.segments])
