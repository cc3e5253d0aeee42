"""Consumers of confluent-kafka: some read where they like, some are members of a group and commit how far they came."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka

from checker.history import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNKNOWN_OFFSET,
    Assigned,
    Commit,
    Outcome,
    Poll,
    Seen,
)
from checker.workload.world import (
    HEARTBEAT_MS,
    INPUT_TOPIC,
    PARTITIONS,
    SESSION_TIMEOUT_MS,
    World,
    is_wrong,
    partition_name,
    place,
    read_value,
)

POLL_S = 0.1
BATCH_MAX = 100
# How long a consumer goes on before it begins anew.
STAY_S = (1.0, 6.0)
SHARE_COMMITTING = 0.3


class Reader:
    """A consumer that writes down what it is given, and where it begins."""

    def __init__(self, world: World, process: str, isolation: str, group: str = "", **settings: Any) -> None:
        self._world = world
        self.process = process
        self._isolation = isolation
        self._group = group
        self.positions: dict[str, int] = {}
        """Where it is: what to commit, of the partitions that it has."""
        self.ends: dict[str, int] = {}
        """Where it was last told that there is no more, behind markers and what is not given to it."""
        more = {
            "group.id": group or "nobody",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            # In a group, where nothing is committed; otherwise there is nothing to reset.
            "auto.offset.reset": "earliest" if group else "error",
            "fetch.wait.max.ms": 100,
            "enable.partition.eof": True,
            **settings,
        }
        self.consumer = confluent_kafka.Consumer(world.settings(process, **more))
        self._unwritten: list[Seen] = []
        self._taken: list[Seen] = []

    def begin(self, positions: Mapping[str, int]) -> None:
        """Read partitions from some offsets on."""
        self._world.history.note(self.process, Assigned(positions=dict(positions)))
        self.consumer.assign(
            [confluent_kafka.TopicPartition(*place(partition), offset) for partition, offset in positions.items()]
        )

    def join(self, topic: str) -> None:
        """Be a member of its group."""
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _assigned(self, _: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        names = [partition_name(partition.topic, partition.partition) for partition in partitions]
        self.write_down()
        self._world.history.note(self.process, Assigned(positions=dict.fromkeys(names, UNKNOWN_OFFSET)))
        self._forget(names)

    def _revoked(self, _: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._forget([partition_name(partition.topic, partition.partition) for partition in partitions])

    def _forget(self, names: list[str]) -> None:
        """Drop what was taken and not committed: whoever has the partition now begins where the group is."""
        for name in names:
            self.positions.pop(name, None)
        self._taken = [record for record in self._taken if record.partition not in names]

    def poll(self, count_max: int = BATCH_MAX) -> list[Seen]:
        """Take what is there, and write it down; returns what it still has the partitions of."""
        self._taken = []
        timeout = POLL_S
        while len(self._taken) < count_max:
            message = self.consumer.poll(timeout)
            if message is None:
                break
            timeout = 0
            error = message.error()
            if error is not None:
                self._told(message, error)
                continue
            seen = _seen(message)
            self._taken.append(seen)
            self._unwritten.append(seen)
            self.positions[seen.partition] = seen.offset + 1
        self.write_down()
        return self._taken

    def _told(self, message: confluent_kafka.Message, error: confluent_kafka.KafkaError) -> None:
        if error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            self.ends[partition_name(message.topic() or "", message.partition() or 0)] = message.offset() or 0
        elif is_wrong(error):
            self._world.trouble(self.process, f"an error that may not be: {error}")

    def write_down(self) -> None:
        """Write down what was taken so far: before an assignment, too, since what comes then begins elsewhere."""
        if not self._unwritten:
            return
        body = Poll(isolation=self._isolation, group=self._group, records=tuple(self._unwritten))
        self._unwritten = []
        self._world.history.note(self.process, body)
        for record in body.records:
            self._world.history.saw(record.partition, record.offset)

    def commit(self) -> None:
        """Commit how far it came, and write down what it is told."""
        if not self.positions:
            return
        body = Commit(group=self._group, offsets=dict(self.positions))
        offsets = [confluent_kafka.TopicPartition(*place(name), at) for name, at in body.offsets.items()]
        number = self._world.history.invoke(self.process, body)
        try:
            told = self.consumer.commit(offsets=offsets, asynchronous=False)
            errors = [partition.error for partition in told or [] if partition.error is not None]
        except confluent_kafka.KafkaException as failure:
            errors = [failure.args[0]]
        for error in errors:
            if is_wrong(error):
                self._world.trouble(self.process, f"an error that may not be: {error}")
        # Whoever is told that it is no member any more has committed nothing, at the first attempt. A later attempt
        # tells nothing of the one whose answer was lost.
        outcome = Outcome.UNKNOWN if errors else Outcome.OK
        self._world.history.complete(number, self.process, outcome, body)


def _seen(message: confluent_kafka.Message) -> Seen:
    topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
    assert topic is not None and partition is not None and offset is not None and value is not None
    return Seen(partition_name(topic, partition), offset, read_value(value))


def run_assigned(world: World, name: str, isolation: str) -> None:
    """Read from here, then from there."""
    chance = world.chance(name)
    incarnation = 0
    while not world.stopping.is_set():
        incarnation += 1
        reader = Reader(world, f"{name}/{incarnation}", isolation)
        try:
            until = world.history.now() + chance.uniform(*STAY_S) * 3
            while not world.stopping.is_set() and world.history.now() < until:
                reader.begin(_somewhere(world, chance))
                stay_until = world.history.now() + chance.uniform(*STAY_S)
                _poll_until(world, reader, stay_until, lambda: None)
        finally:
            reader.consumer.close()


def _somewhere(world: World, chance: random.Random) -> dict[str, int]:
    """Some partitions, from the beginning or from somewhere that is known to be there."""
    names = [partition_name(INPUT_TOPIC, index) for index in range(PARTITIONS)]
    chosen = chance.sample(names, chance.randint(1, PARTITIONS))
    ends = {name: world.history.seen_offsets.get(name, 0) for name in chosen}
    return {name: 0 if chance.random() < 0.2 else chance.randint(end // 2, end) for name, end in ends.items()}


def run_member(world: World, name: str, group: str, protocol: str) -> None:
    """Be a member of a group for a while, leave, and come again."""
    chance = world.chance(name)
    isolation = READ_COMMITTED if protocol == "consumer" else READ_UNCOMMITTED
    incarnation = 0
    while not world.stopping.is_set():
        incarnation += 1
        reader = Reader(world, f"{name}/{incarnation}", isolation, group, **_membership(name, protocol, chance))

        def sometimes_commit(reader: Reader = reader) -> None:
            if chance.random() < SHARE_COMMITTING:
                reader.commit()

        try:
            reader.join(INPUT_TOPIC)
            _poll_until(world, reader, world.history.now() + chance.uniform(*STAY_S) * 2, sometimes_commit)
        finally:
            reader.consumer.close()
            reader.write_down()


def _membership(name: str, protocol: str, chance: random.Random) -> dict[str, Any]:
    settings: dict[str, Any] = {"group.protocol": protocol}
    if chance.random() < 0.3:
        # It does not leave when it closes: the group waits for it, or for its session to end.
        settings["group.instance.id"] = name
    if protocol == "classic":
        settings |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        settings["partition.assignment.strategy"] = "cooperative-sticky"
    return settings


def _poll_until(world: World, reader: Reader, until: float, after_poll: Callable[[], None]) -> None:
    while not world.stopping.is_set() and world.history.now() < until:
        if reader.poll():
            after_poll()
