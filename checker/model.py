"""What a history says is true: who sent what, and what is in the logs in the end, for each isolation level."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from checker.history import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    UNKNOWN_OFFSET,
    Body,
    FinalRead,
    Operation,
    Outcome,
    Poll,
    Seen,
    Send,
    Transaction,
)

B = TypeVar("B", bound=Body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that may not be: its kind, for counting, and a sentence."""

    kind: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record by who sent it. The offset is what its producer was told; the outcome is that of all it depends on."""

    partition: str
    value: str
    offset: int
    operation: Operation

    @property
    def outcome(self) -> Outcome:
        """Whether it must be there (ok), must never be read (fail; in a transaction: as committed), or may be."""
        return self.operation.outcome

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction."""
        return isinstance(self.operation.body, Transaction)

    def __str__(self) -> str:
        return f"{self.value} of {self.operation.process} (operation {self.operation.number}, {self.outcome})"


class View:
    """What can be read from a partition in the end, at one isolation level."""

    def __init__(self, records: Sequence[Seen] = ()) -> None:
        self.values = {record.offset: record.value for record in records}
        self.offsets = sorted(self.values)

    def between(self, start: int, end: int) -> list[int]:
        """The offsets of records from `start` on, before `end`."""
        return self.offsets[bisect_left(self.offsets, start) : bisect_left(self.offsets, end)]


class Model:
    """A history, looked at from where checks need to look."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self.sent: dict[str, Sent] = {record.value: record for record in _sent(operations)}
        self.final_reads = [body for _, body in self.of(FinalRead)]
        self._views = {(read.isolation, read.partition): View(read.records) for read in self.final_reads}
        self.partitions = sorted({partition for _, partition in self._views})
        self.places: dict[str, list[tuple[str, int]]] = defaultdict(list)
        """Where each value is in the logs, whether it may be read or not."""
        for partition in self.partitions:
            for offset, value in self.view(READ_UNCOMMITTED, partition).values.items():
                self.places[value].append((partition, offset))

    def of(self, kind: type[B]) -> Iterator[tuple[Operation, B]]:
        """All operations of one kind."""
        for operation in self.operations:
            if isinstance(operation.body, kind):
                yield operation, operation.body

    def view(self, isolation: str, partition: str) -> View:
        """What can be read from a partition in the end."""
        return self._views.get((isolation, partition), _NOTHING)

    def is_committed(self, sent: Sent) -> bool:
        """Whether a value can be read as committed in the end."""
        view = self.view(READ_COMMITTED, sent.partition)
        return any(
            view.values.get(offset) == sent.value
            for partition, offset in self.places.get(sent.value, ())
            if partition == sent.partition
        )

    def polls(self) -> Iterator[tuple[Operation, Poll]]:
        """Everything that consumers were given during the run."""
        return self.of(Poll)


_NOTHING = View()


def _sent(operations: Sequence[Operation]) -> Iterator[Sent]:
    for operation in operations:
        match operation.body:
            case Send(record=record, offset=offset):
                yield Sent(partition=record.partition, value=record.value, offset=offset, operation=operation)
            case Transaction(records=records, offsets=offsets):
                for record in records:
                    offset = offsets.get(record.value, UNKNOWN_OFFSET)
                    yield Sent(partition=record.partition, value=record.value, offset=offset, operation=operation)
