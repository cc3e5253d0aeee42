"""The file of a history: what was written is read, also when it is cut off."""

from pathlib import Path

from barnabas.clock import ManualClock
from checker.history import (
    Assigned,
    Commit,
    Committed,
    Fault,
    FinalRead,
    History,
    Outcome,
    Planned,
    Poll,
    Seen,
    Send,
    Transaction,
    Trouble,
    read_history,
)

BODIES = (
    Send(record=Planned("events-0", "a"), offset=3),
    Transaction(
        records=(Planned("events-0", "b"),), group="g", consumed={"x": 1}, offsets={"b": 4}, asked_to_commit_at=1.5
    ),
    Assigned(positions={"events-0": -1}),
    Poll(isolation="read_committed", records=(Seen("events-0", 3, "a"),), group="g"),
    Commit(group="g", offsets={"events-0": 4}),
    Committed(group="g", offsets={"events-0": 4}),
    FinalRead(
        isolation="read_committed",
        partition="events-0",
        records=(Seen("events-0", 3, "a"),),
        position=4,
        last_stable_offset=4,
        high_watermark=4,
    ),
    Fault(action="kill"),
    Trouble(what="it"),
)


def test_every_kind_is_read_as_it_was_written(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    for body in BODIES:
        history.note("p0", body)
    history.close()
    assert tuple(operation.body for operation in read_history(history.path)) == BODIES


def test_both_ends_come_together(tmp_path: Path) -> None:
    clock = ManualClock()
    history = History(tmp_path / "history", clock)
    first = history.invoke("p0", Fault(action="begun"))
    second = history.invoke("p1", Fault(action="begun"))
    history.invoke("p2", Fault(action="begun"))
    clock.advance(2_000)
    history.complete(second, "p1", Outcome.FAIL, Fault(action="over"))
    history.complete(first, "p0", Outcome.UNKNOWN, Fault(action="over"))
    history.close()
    history.complete(2, "p2", Outcome.OK, Fault(action="too late"))
    with open(history.path, "a", encoding="utf-8") as file:
        file.write('{"number": 2, "proc')
    found = read_history(history.path)
    assert [(one.process, one.outcome, one.completed) for one in found] == [
        ("p0", Outcome.UNKNOWN, float("inf")),
        ("p1", Outcome.FAIL, 2.0),
        ("p2", Outcome.UNKNOWN, float("inf")),
    ]
