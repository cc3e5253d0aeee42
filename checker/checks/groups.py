"""Groups: a committed offset stays until a newer commit, and nothing below it was kept from the members.

lost-commit  a group was found at an offset that an acknowledged later commit had replaced, or that nobody committed
group-skip   an offset was committed, and a record below it was never given to any member

The offset of a group and a partition is a register: commits write it, and asking for it reads it. A read may tell what
a write wrote if that write had begun when the read ended, and no other write lies wholly between the two.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from checker.history import UNKNOWN_OFFSET, Commit, Committed, Outcome, Transaction
from checker.model import Finding, Model

Register = tuple[str, str]
"""Group and partition."""


@dataclass(slots=True, kw_only=True)
class Write:
    """A commit: it takes effect between `invoked` and `completed` if `is_certain`; otherwise then, later or never."""

    offset: int
    invoked: float
    completed: float
    is_certain: bool
    number: int


def lost_commits(model: Model) -> Iterator[Finding]:
    """Every read tells what a write wrote that may still stand."""
    writes = _writes(model)
    reads = [pair for pair in model.of(Committed) if pair[0].outcome is Outcome.OK]
    for operation, found in sorted(reads, key=lambda pair: pair[0].completed):
        for partition, offset in found.offsets.items():
            register = found.group, partition
            yield from _read(register, writes[register], offset, operation.invoked, operation.completed)


def _writes(model: Model) -> dict[Register, list[Write]]:
    nothing = Write(offset=UNKNOWN_OFFSET, invoked=-math.inf, completed=-math.inf, is_certain=True, number=-1)
    writes: dict[Register, list[Write]] = defaultdict(lambda: [nothing])
    for operation in model.operations:
        match operation.body:
            case Commit(group=group, offsets=offsets):
                invoked = operation.invoked
            case Transaction(group=group, consumed=offsets, asked_to_commit_at=asked_at):
                invoked = operation.invoked if asked_at is None else asked_at
            case _:
                continue
        if operation.outcome is Outcome.FAIL:
            continue
        for partition, offset in offsets.items():
            writes[group, partition].append(
                Write(
                    offset=offset,
                    invoked=invoked,
                    completed=operation.completed,
                    is_certain=operation.outcome is Outcome.OK,
                    number=operation.number,
                )
            )
    return writes


def _read(register: Register, writes: list[Write], offset: int, invoked: float, completed: float) -> Iterator[Finding]:
    group, partition = register
    done = [write for write in writes if write.is_certain and write.completed <= invoked]
    newest = max(done, key=lambda write: write.invoked)
    candidates = [write for write in writes if write.offset == offset and write.invoked <= completed]
    standing = [write for write in candidates if write.completed >= newest.invoked]
    if not standing:
        said = f"{group} was found at {partition} {_shown(offset)} at {invoked:.3f} s"
        replaced = f"operation {newest.number} had committed {_shown(newest.offset)}"
        why = "which nobody had committed" if not candidates else f"which operation {candidates[-1].number} committed"
        yield Finding(kind="lost-commit", sentence=f"{said}, {why}, though {replaced} at {newest.completed:.3f} s")
    elif len(standing) == 1:
        # What was read has happened, whatever its writer was told.
        standing[0].completed = min(standing[0].completed, completed)
        standing[0].is_certain = True


def _shown(offset: int) -> str:
    return "no offset" if offset == UNKNOWN_OFFSET else str(offset)


def group_skips(model: Model) -> Iterator[Finding]:
    """Members commit what they were given; so below a committed offset everything was given to a member."""
    given: dict[Register, set[int]] = defaultdict(set)
    isolations: dict[str, str] = {}
    for _, poll in model.polls():
        if poll.group:
            isolations[poll.group] = poll.isolation
            for record in poll.records:
                given[poll.group, record.partition].add(record.offset)
    ends: dict[Register, int] = defaultdict(int)
    for _, found in model.of(Committed):
        for partition, offset in found.offsets.items():
            ends[found.group, partition] = max(ends[found.group, partition], offset)
    for (group, partition), end in ends.items():
        if group not in isolations:
            continue
        view = model.view(isolations[group], partition)
        missing = [offset for offset in view.between(0, end) if offset not in given[group, partition]]
        if missing:
            shown = f"{missing[0]} ({view.values[missing[0]]})"
            sentence = f"{group} has {end} committed of {partition}, and no member was given {shown}"
            yield Finding(kind="group-skip", sentence=f"{sentence}; {len(missing)} records in all")
