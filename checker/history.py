"""The history of a run: every operation of every client, as it was begun and as it ended.

    invoke  {"number": 7, "process": "plain-0", "at": 1.25, "event": "invoke", "kind": "Send", "body": {...}}
    end     {"number": 7, "process": "plain-0", "at": 1.31, "event": "ok",     "kind": "Send", "body": {...}}

One JSON object a line, in a file that is written as the run goes on; the analysis reads the file and nothing else, so
a history can be looked at again, and one that was made up can be analysed.

Rule 1: `ok` means that it happened, `fail` that it did not and never will, and `unknown` that nobody knows. Whoever is
in doubt says unknown: a wrong `ok` or `fail` accuses a broker that did nothing wrong.
Rule 2: times are those of one clock that never goes back, so that "ended before the other began" means something.
Rule 3: an operation that never ended is unknown, and may happen at any time after it was begun.
"""

import json
import math
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.clock import Clock, SystemClock

UNKNOWN_OFFSET = -1
READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


class Outcome(StrEnum):
    """What is known of an operation at its end."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Seen(NamedTuple):
    """A record that was read."""

    partition: str
    offset: int
    value: str


class Planned(NamedTuple):
    """A record that is to be sent. Every value is sent once, by one producer, to one partition."""

    partition: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """One record of a producer without transactions; the offset is what it was told."""

    record: Planned
    offset: int = UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The records of a transaction, and the offsets of a group that it commits. `fail`: it was not committed."""

    records: tuple[Planned, ...]
    group: str = ""
    consumed: dict[str, int] = field(default_factory=dict)
    """What is committed for the group, by partition."""
    offsets: dict[str, int] = field(default_factory=dict)
    """The offsets that the producer was told, by value."""
    asked_to_commit_at: float | None = None
    """Just before the commit was asked for; None if it never was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """From now on a consumer reads these partitions from these offsets; UNKNOWN_OFFSET is wherever its group is."""

    positions: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """Records that a consumer was given, in that order."""

    isolation: str
    records: tuple[Seen, ...]
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Offsets that a member commits for its group."""

    group: str
    offsets: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """Offsets that a group was found at, those left out that an open transaction may change; UNKNOWN_OFFSET is none."""

    group: str
    offsets: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalRead:
    """A whole partition, read when everything was over. `position` is how far the consumer came."""

    isolation: str
    partition: str
    records: tuple[Seen, ...]
    position: int
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that was done to the broker."""

    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that a process saw and that may never happen."""

    what: str


Body = Send | Transaction | Assigned | Poll | Commit | Committed | FinalRead | Fault | Trouble
KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Send, Transaction, Assigned, Poll, Commit, Committed, FinalRead, Fault, Trouble)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation with both its ends. One that never ended is unknown, and ended at infinity."""

    number: int
    process: str
    invoked: float
    completed: float
    outcome: Outcome
    body: Body


class History:
    """Takes down operations, from any thread."""

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._began = self._clock.monotonic_seconds()
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 (it is open as long as the history)
        self._mutex = threading.Lock()
        self._count = 0
        self.seen_offsets: dict[str, int] = {}
        """The last offset that anybody was told of, by partition: where a consumer may begin."""

    def now(self) -> float:
        """Seconds since the history began."""
        return self._clock.monotonic_seconds() - self._began

    def invoke(self, process: str, body: Body) -> int:
        """Write down that an operation begins; returns its number."""
        with self._mutex:
            number = self._count
            self._count += 1
            self._write(number, process, "invoke", body)
        return number

    def complete(self, number: int, process: str, outcome: Outcome, body: Body) -> None:
        """Write down how it ended."""
        with self._mutex:
            self._write(number, process, outcome.value, body)

    def note(self, process: str, body: Body) -> None:
        """Write down something that is known at once."""
        self.complete(self.invoke(process, body), process, Outcome.OK, body)

    def saw(self, partition: str, offset: int) -> None:
        """Remember how far a partition is known to reach."""
        with self._mutex:
            self.seen_offsets[partition] = max(offset, self.seen_offsets.get(partition, 0))

    def close(self) -> None:
        """Close the file; what still ends is not written down, and is unknown."""
        with self._mutex:
            self._file.close()

    def _write(self, number: int, process: str, event: str, body: Body) -> None:
        if self._file.closed:
            return
        kind = type(body).__name__
        line = {"number": number, "process": process, "at": round(self.now(), 6), "event": event, "kind": kind}
        self._file.write(json.dumps({**line, "body": asdict(body)}) + "\n")


def read_history(path: Path) -> list[Operation]:
    """Read a file; the last line may be cut off."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return operations_of(json.loads(line) for line in lines if line.endswith("\n"))


def operations_of(events: Iterable[dict[str, Any]]) -> list[Operation]:
    """Bring both ends of every operation together, in the order in which they were begun."""
    operations: dict[int, Operation] = {}
    for event in events:
        number, at = event["number"], event["at"]
        body = _body(event["kind"], event["body"])
        if event["event"] == "invoke":
            operations[number] = Operation(
                number=number,
                process=event["process"],
                invoked=at,
                completed=math.inf,
                outcome=Outcome.UNKNOWN,
                body=body,
            )
            continue
        begun, outcome = operations[number], Outcome(event["event"])
        operations[number] = Operation(
            number=number,
            process=begun.process,
            invoked=begun.invoked,
            completed=math.inf if outcome is Outcome.UNKNOWN else at,
            outcome=outcome,
            body=body,
        )
    return list(operations.values())


def _body(kind: str, fields: dict[str, Any]) -> Body:
    if kind == "Send":
        fields["record"] = Planned(*fields["record"])
    elif kind == "Transaction":
        fields["records"] = tuple(Planned(*row) for row in fields["records"])
    elif "records" in fields:
        fields["records"] = tuple(Seen(*row) for row in fields["records"])
    body: Body = KINDS[kind](**fields)
    return body


def transformed(record: Seen, attempt: str) -> str:
    """What the transforming loop makes of a record: a value that says where it comes from, another one each time."""
    return f"{record.partition}|{record.offset}|{record.value}|{attempt}"


def transformed_from(value: str) -> Seen | None:
    """Where such a value comes from, or None if it is not one."""
    parts = value.split("|")
    return Seen(parts[0], int(parts[1]), parts[2]) if len(parts) == 4 else None
