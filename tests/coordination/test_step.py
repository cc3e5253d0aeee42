"""Steps, which are only put together."""

from barnabas.coordination.step import CoordinatorRecord, Reply, Step


def test_what_is_added_comes_after_what_is_there() -> None:
    step = Step(records=[CoordinatorRecord("a", 1)], replies=[Reply(1, "one")])
    step.add(Step(records=[CoordinatorRecord("b", None)], replies=[Reply(2, "two")]))
    assert step.records == [CoordinatorRecord("a", 1), CoordinatorRecord("b", None)]
    assert step.replies == [Reply(1, "one"), Reply(2, "two")]


def test_steps_share_nothing() -> None:
    first, second = Step(), Step()
    first.add(Step(records=[CoordinatorRecord("a", 1)]))
    assert (second.records, second.replies) == ([], [])
