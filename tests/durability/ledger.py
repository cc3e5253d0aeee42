"""Ledger: what producers sent and what they were told, what was read, and the check that both agree.

Rule 1: a value says who sent it and its number, so that a record found anywhere can be called to account.
Rule 2: what was acknowledged is noted after the acknowledgement came, and looked at before the broker is asked: the
broker may have more than the ledger knows of, and never less.
Rule 3: what was read once stays: a record that a consumer has seen may not be gone, or another one, later.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.client import Client
from barnabas.client.fetcher import Fetcher, FetchOptions
from barnabas.client.offsets import EARLIEST, LATEST, offsets_at
from barnabas.model import TopicPartition

UNKNOWN_OFFSET = -1


class Sent(NamedTuple):
    """One record of one producer."""

    producer: str
    number: int

    def value(self, padding: int) -> bytes:
        """The bytes that are sent."""
        return f"{self.producer}:{self.number}:".encode() + b"." * padding


def sent_as(value: bytes) -> Sent:
    """Read a value."""
    producer, number, _ = value.split(b":", 2)
    return Sent(producer.decode(), int(number))


class Place(NamedTuple):
    """Where a producer was told that its record is; the offset may be UNKNOWN_OFFSET."""

    partition: TopicPartition
    offset: int


class Ledger:
    """What was acknowledged, by any thread."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._acknowledged: dict[Sent, Place] = {}
        self._new: dict[Sent, Place] = {}
        self.counts: Counter[str] = Counter()
        """How many records are acknowledged, by producer."""
        self.ends: dict[TopicPartition, int] = {}
        """The last offset that is acknowledged, by partition."""
        self.failures: list[str] = []

    def acknowledge(self, value: bytes, partition: TopicPartition, offset: int) -> None:
        """Note what a producer was told."""
        sent, place = sent_as(value), Place(partition, offset)
        with self._mutex:
            self._acknowledged[sent] = self._new[sent] = place
            self.counts[sent.producer] += 1
            self.ends[partition] = max(offset, self.ends.get(partition, 0))

    def fail(self, reason: str) -> None:
        """Note what must not happen: nothing is given up while a broker comes back."""
        self.failures.append(reason)

    @property
    def count(self) -> int:
        """How many records are acknowledged."""
        return len(self._acknowledged)

    def acknowledged(self) -> dict[Sent, Place]:
        """Everything that is acknowledged by now."""
        with self._mutex:
            return dict(self._acknowledged)

    def take_new(self) -> dict[Sent, Place]:
        """What was acknowledged since this was last asked for."""
        with self._mutex:
            taken, self._new = self._new, {}
        return taken


Found = dict[int, bytes]
"""Values by offset."""


class Reader:
    """A consumer that goes on where it was, over every restart, and remembers everything."""

    def __init__(self, partitions: list[TopicPartition]) -> None:
        self._partitions = partitions
        self._positions: dict[TopicPartition, int] = {}
        self.seen: dict[TopicPartition, Found] = {partition: {} for partition in partitions}

    def read_on(self, client: Client) -> dict[TopicPartition, Found]:
        """Read what is new, up to the end as it is now, and return it."""
        if not self._positions:
            self._positions = offsets_at(client, self._partitions, EARLIEST)
        found, self._positions = read_from(client, self._positions)
        for partition, records in found.items():
            self.seen[partition].update(records)
        return found


def read_from(
    client: Client, positions: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, Found], dict[TopicPartition, int]]:
    """Read partitions from some offsets to where they end now; return what was found, and where to go on."""
    found: dict[TopicPartition, Found] = {partition: {} for partition in positions}
    ends = offsets_at(client, list(positions), LATEST)
    for partition, position in positions.items():
        assert position <= ends[partition], f"{partition} was read up to {position}, and now ends at {ends[partition]}"
    fetcher = Fetcher(client, positions, FetchOptions(auto_offset_reset="earliest"))
    while any(position < ends[partition] for partition, position in fetcher.positions.items()):
        for fetched in fetcher.poll():
            for record in fetched.records():
                assert record.value is not None
                assert record.offset not in found[fetched.partition], "an offset came twice"
                found[fetched.partition][record.offset] = bytes(record.value)
    return found, dict(fetcher.positions)


class Audit:
    """Calls every record that is found to account, each once and in the order of the offsets."""

    def __init__(self, idempotent: set[str]) -> None:
        self._idempotent = idempotent
        self._places: dict[Sent, set[Place]] = defaultdict(set)
        self._next_offsets: dict[TopicPartition, int] = {}
        self._last_numbers: dict[tuple[TopicPartition, str], int] = {}

    def add(self, found: Mapping[TopicPartition, Found], starts: Mapping[TopicPartition, int]) -> None:
        """Take in what was read: there is a record at every offset from the start of a partition on."""
        for partition, records in found.items():
            for offset, value in sorted(records.items()):
                expected = self._next_offsets.get(partition, 0)
                is_dense = offset == expected or expected < offset <= starts[partition]
                assert is_dense, f"{partition} starts at {starts[partition]}, and {offset} comes after {expected - 1}"
                self._next_offsets[partition] = offset + 1
                self._add(sent_as(value), Place(partition, offset))

    def _add(self, sent: Sent, place: Place) -> None:
        places = self._places[sent]
        places.add(place)
        if sent.producer in self._idempotent:
            assert len(places) == 1, f"{sent} is there twice: {sorted(places)}"
            before = self._last_numbers.get((place.partition, sent.producer), -1)
            assert before < sent.number, f"{sent} at {place} comes after number {before}"
            self._last_numbers[place.partition, sent.producer] = sent.number

    def check(self, acknowledged: Mapping[Sent, Place], starts: Mapping[TopicPartition, int]) -> None:
        """Everything acknowledged is where it was said to be, unless it was deleted below the start."""
        for sent, place in acknowledged.items():
            places = self._places.get(sent, set())
            if place.offset == UNKNOWN_OFFSET:
                assert places or starts[place.partition] > 0, f"{sent} was acknowledged, and is nowhere"
            elif place.offset >= starts[place.partition] or places:
                assert place in places, f"{sent} was acknowledged at {place}, and is at {sorted(places)}"
