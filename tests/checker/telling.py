"""Words for histories that are made up. Times go on by themselves, unless they are told.

    story = Story()
    story.sent("p0", "a", 0)                                   # acknowledged at offset 0 of events-0
    story.transaction("t1", [("b", 1), ("c", 2)])              # committed
    story.polled("c1", [(0, "a"), (1, "b")])
    assert story.findings(log=["a", "b", "c"]) == []           # everything as it is read at the end

Partitions are `events-0` unless another one is named; an offset that is None was never told.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from checker.analysis import analyse
from checker.history import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Assigned,
    Body,
    Commit,
    Committed,
    FinalRead,
    Operation,
    Outcome,
    Planned,
    Poll,
    Seen,
    Send,
    Transaction,
)

PARTITION = "events-0"
INFINITY = float("inf")


class Story:
    """Operations, one after the other."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._now = 0.0

    def add(
        self, process: str, body: Body, outcome: Outcome = Outcome.OK, *, at: tuple[float, float] | None = None
    ) -> None:
        """Add an operation, at some time or after all others."""
        if at is None:
            at = self._now + 1, self._now + 2
        self._now = max(self._now, at[0] if at[1] == INFINITY else at[1])
        self.operations.append(
            Operation(
                number=len(self.operations),
                process=process,
                invoked=at[0],
                completed=INFINITY if outcome is Outcome.UNKNOWN else at[1],
                outcome=outcome,
                body=body,
            )
        )

    def sent(
        self,
        process: str,
        value: str,
        offset: int | None,
        outcome: Outcome = Outcome.OK,
        partition: str = PARTITION,
    ) -> None:
        """A record outside of transactions."""
        record = Planned(partition, value)
        self.add(process, Send(record=record, offset=-1 if offset is None else offset), outcome)

    def transaction(
        self,
        process: str,
        records: Sequence[tuple[str, int | None]],
        outcome: Outcome = Outcome.OK,
        *,
        partition: str = PARTITION,
        asked_at: float | None = None,
        **more: Any,
    ) -> None:
        """A transaction with all its records in one partition."""
        asked = self._now + 1 if asked_at is None and outcome is not Outcome.FAIL else asked_at
        body = Transaction(
            records=tuple(Planned(partition, value) for value, _ in records),
            offsets={value: offset for value, offset in records if offset is not None},
            asked_to_commit_at=asked,
            **more,
        )
        self.add(process, body, outcome)

    def assigned(self, process: str, offset: int) -> None:
        """A consumer begins somewhere."""
        self.add(process, Assigned(positions={PARTITION: offset}))

    def polled(
        self, process: str, records: Sequence[tuple[int, str]], isolation: str = READ_COMMITTED, group: str = ""
    ) -> None:
        """A consumer is given records."""
        seen = tuple(Seen(PARTITION, offset, value) for offset, value in records)
        self.add(process, Poll(isolation=isolation, records=seen, group=group))

    def commits(
        self,
        group: str,
        offset: int,
        outcome: Outcome = Outcome.OK,
        at: tuple[float, float] | None = None,
    ) -> None:
        """A member commits."""
        self.add("member", Commit(group=group, offsets={PARTITION: offset}), outcome, at=at)

    def found_at(self, group: str, offset: int, at: tuple[float, float] | None = None) -> None:
        """Somebody asks where a group is."""
        self.add("watcher", Committed(group=group, offsets={PARTITION: offset}), at=at)

    def end(
        self,
        log: Mapping[int, str] | Sequence[str],
        committed: Mapping[int, str] | Sequence[str] | None = None,
        *,
        partition: str = PARTITION,
        stable: int | None = None,
        position: int | None = None,
    ) -> None:
        """Everything is read: the whole log, and what of it is committed; all of it, unless told."""
        everything = log if isinstance(log, Mapping) else dict(enumerate(log))
        visible = everything if committed is None else committed
        visible = visible if isinstance(visible, Mapping) else dict(enumerate(visible))
        end = max([*everything, *visible], default=-1) + 1
        for isolation, records in ((READ_UNCOMMITTED, everything), (READ_COMMITTED, visible)):
            body = FinalRead(
                isolation=isolation,
                partition=partition,
                records=tuple(Seen(partition, offset, value) for offset, value in records.items()),
                position=end if position is None else position,
                last_stable_offset=end if stable is None else stable,
                high_watermark=end,
            )
            self.add("final", body)

    def kinds(self, log: Any = None, committed: Any = None, **more: Any) -> set[str]:
        """The kinds of findings, after everything is read."""
        if log is not None:
            self.end(log, committed, **more)
        return {finding.kind for finding in analyse(self.operations)}
