"""Planted anomalies of transactions."""

from checker.history import READ_UNCOMMITTED, Committed, Outcome, Seen, transformed, transformed_from
from tests.checker.telling import PARTITION, Story


def test_an_aborted_record_that_is_read_as_committed() -> None:
    story = Story()
    story.transaction("t0", [("a", 0)], Outcome.FAIL)
    story.polled("c1", [(0, "a")])
    assert "aborted-read" in story.kinds(["a"], [])


def test_an_aborted_record_that_is_committed_at_the_end() -> None:
    story = Story()
    story.transaction("t0", [("a", 0)], Outcome.FAIL)
    assert "aborted-read" in story.kinds(["a"])


def test_an_aborted_record_may_be_read_uncommitted() -> None:
    story = Story()
    story.transaction("t0", [("a", 0)], Outcome.FAIL)
    story.polled("c1", [(0, "a")], READ_UNCOMMITTED)
    assert story.kinds(["a"], []) == set()


def test_a_record_that_is_read_before_its_commit_is_asked_for() -> None:
    story = Story()
    story.polled("c1", [(0, "a")])
    story.transaction("t0", [("a", 0)])
    assert story.kinds(["a"]) == {"early-read"}


def test_a_record_that_is_read_while_its_commit_is_under_way() -> None:
    story = Story()
    story.polled("c1", [(0, "a")])
    story.transaction("t0", [("a", 0)], asked_at=1.5)
    assert story.kinds(["a"]) == set()


def test_half_of_a_committed_transaction() -> None:
    story = Story()
    story.transaction("t0", [("a", 0), ("b", 1)])
    assert story.kinds(["a", "b"], ["a"]) == {"partial-transaction", "lost-write"}


def test_half_of_a_transaction_that_nobody_knows_of() -> None:
    story = Story()
    story.transaction("t0", [("a", None), ("b", None)], Outcome.UNKNOWN)
    assert story.kinds(["a", "b"], ["a"]) == {"partial-transaction"}


def test_all_or_nothing_of_a_transaction_that_nobody_knows_of() -> None:
    for committed in (["a", "b"], []):
        story = Story()
        story.transaction("t0", [("a", 0), ("b", 1)], Outcome.UNKNOWN)
        assert story.kinds(["a", "b"], committed) == set()


def test_a_transaction_that_hangs() -> None:
    story = Story()
    story.transaction("t0", [("a", 0)], Outcome.UNKNOWN)
    assert story.kinds(["a"], [], stable=0) == {"hanging-transaction"}


def transforming(*, outputs: tuple[int, ...], consumed: int, inputs: int = 2) -> Story:
    """Inputs x0, x1, ...; outputs of some of them, each in a transaction of its own; what the group has consumed."""
    story = Story()
    for offset in range(inputs):
        story.sent("p0", f"x{offset}", offset)
    values = [
        transformed(Seen(PARTITION, offset, f"x{offset}"), f"t0#{number}") for number, offset in enumerate(outputs)
    ]
    for place, value in enumerate(values):
        story.transaction("t0", [(value, place)], partition="copies-0", group="g", consumed={PARTITION: consumed})
    story.end([f"x{offset}" for offset in range(inputs)])
    story.end(values, partition="copies-0")
    story.add("watcher", Committed(group="g", offsets={PARTITION: consumed}))
    return story


def test_every_input_once() -> None:
    assert transforming(outputs=(0, 1), consumed=2).kinds() == set()


def test_an_input_that_is_not_consumed_has_no_output() -> None:
    assert transforming(outputs=(0,), consumed=1).kinds() == set()


def test_an_input_with_two_outputs() -> None:
    assert transforming(outputs=(0, 1, 1), consumed=2).kinds() == {"exactly-once"}


def test_an_input_without_output() -> None:
    assert transforming(outputs=(0,), consumed=2).kinds() == {"exactly-once"}


def test_an_output_of_an_input_that_is_not_consumed() -> None:
    assert transforming(outputs=(0, 1), consumed=1).kinds() == {"exactly-once"}


def test_an_output_of_an_input_that_is_not_there() -> None:
    assert transforming(outputs=(0, 1), consumed=2, inputs=1).kinds() == {"exactly-once"}


def test_what_is_made_of_a_record_says_of_which() -> None:
    record = Seen("events-3", 17, "t:5")
    assert transformed_from(transformed(record, "t1#3")) == record
    assert transformed_from("plain-0:5") is None
