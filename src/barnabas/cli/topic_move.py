"""`barnabas topics move`: the logs of a topic go to another log directory of their broker, while clients write."""

import argparse
import os

from barnabas.cli.actions import Actions
from barnabas.cli.connecting import complain, not_negative
from barnabas.cli.progress import Progress
from barnabas.cli.tables import print_json
from barnabas.client import admin
from barnabas.client.client import Client
from barnabas.client.log_dirs import ReplicaPlace, move_replicas, replica_places
from barnabas.clock import SystemClock
from barnabas.model import TopicPartition

LOOK_SECONDS = 0.1


def add_move(actions: Actions) -> None:
    """Declare the action."""
    sentence = "move the logs of a topic to another log directory of their broker"
    moving = actions.add("move", sentence, "orders --to /disks/b --partition 0", _move)
    moving.add_argument("name", metavar="TOPIC")
    moving.add_argument("--to", required=True, metavar="DIR", help="one of the broker's log.dirs")
    moving.add_argument("--partition", type=not_negative, metavar="N", help="only this one (default: all)")
    moving.add_argument("--no-wait", action="store_true", help="return when the moves have begun")


def _move(client: Client, arguments: argparse.Namespace) -> int:
    (topic,) = admin.describe_topics(client, [arguments.name])
    indexes = [one.partition for one in topic.partitions]
    if arguments.partition is not None:
        if arguments.partition not in indexes:
            complain("topics", f"{topic.name!r} has no partition {arguments.partition}, but {len(indexes)} partitions")
            return 1
        indexes = [arguments.partition]
    names = [TopicPartition(topic.name, index) for index in indexes]
    failures = move_replicas(client, names, arguments.to)
    for error in failures.values():
        complain("topics", str(error))
    begun = [name for name in names if name not in failures]
    if arguments.no_wait:
        _report(begun, arguments, "moving")
        return 1 if failures else 0
    left_behind = _wait(client, begun, arguments.to)
    for name in left_behind:
        complain("topics", f"{name} was not moved to {arguments.to}; the log of the broker says why")
    _report([name for name in begun if name not in left_behind], arguments, "moved")
    return 1 if failures or left_behind else 0


def _wait(client: Client, names: list[TopicPartition], path: str) -> list[TopicPartition]:
    """Wait until no replica is on its way any more, and return those that are not where they should be."""
    if not names:
        return []
    places = replica_places(client, names)
    total = sum(place.size_bytes for place in places if not place.is_future)
    progress, clock = Progress("moving", total), SystemClock()
    try:
        while moving := [place for place in places if place.is_future]:
            # What is not on its way is there already.
            under_way = {place.partition for place in moving}
            left = sum(_size(places, name) for name in under_way) - sum(place.size_bytes for place in moving)
            progress.advance(max(0, total - left - progress.done_bytes), f"{len(moving)} of {len(names)} logs left")
            clock.sleep(LOOK_SECONDS)
            places = replica_places(client, names)
    finally:
        progress.finish()
    there = {place.partition for place in places if os.path.realpath(place.log_dir) == os.path.realpath(path)}
    return [name for name in names if name not in there]


def _size(places: list[ReplicaPlace], name: TopicPartition) -> int:
    return sum(place.size_bytes for place in places if place.partition == name and not place.is_future)


def _report(names: list[TopicPartition], arguments: argparse.Namespace, word: str) -> None:
    for name in names:
        if arguments.json:
            print_json([{"topic": name.topic, "partition": name.partition, "log_dir": arguments.to, "state": word}])
        else:
            print(f"{word} {name} to {arguments.to}")
