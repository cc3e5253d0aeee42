"""Timers against a dictionary of deadlines, and how little the heap grows."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordination.timers import TimerKey, Timers

A, B, C = (TimerKey("session", "g", name) for name in "abc")


def test_keys_are_due_in_the_order_of_their_deadlines() -> None:
    timers = Timers()
    timers.set(A, 30)
    timers.set(B, 10)
    timers.set(C, 20)
    assert timers.next_deadline_ms == 10
    assert list(timers.due(25)) == [B, C]
    assert timers.next_deadline_ms == 30


def test_a_deadline_that_moves_to_later_pushes_nothing() -> None:
    timers = Timers()
    for deadline_ms in range(10, 10_000):
        timers.set(A, deadline_ms)
    assert len(timers._heap) == 1
    assert list(timers.due(9_998)) == []
    assert list(timers.due(9_999)) == [A]


def test_a_deadline_can_move_to_earlier() -> None:
    timers = Timers()
    timers.set(A, 30)
    timers.set(A, 10)
    assert list(timers.due(10)) == [A]
    assert list(timers.due(30)) == []
    assert timers.next_deadline_ms is None


def test_a_canceled_key_is_not_due_and_can_be_set_again() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.cancel(A)
    assert timers.next_deadline_ms is None
    timers.set(A, 20)
    assert timers.deadline_of(A) == 20
    assert list(timers.due(20)) == [A]
    timers.cancel(A)


def test_who_handles_a_key_can_cancel_another_that_is_due() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(B, 10)
    given_out = []
    for key in timers.due(10):
        given_out.append(key)
        timers.cancel(B)
        if key == A and len(given_out) < 3:
            timers.set(A, 10)
    assert given_out == [A, A, A]
    assert len(timers) == 0


Operations = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "due"]), st.sampled_from([A, B, C]), st.integers(0, 20)), max_size=60
)


@given(Operations)
def test_timers_do_what_a_dictionary_does(operations: list[tuple[str, TimerKey, int]]) -> None:
    timers, model = Timers(), dict[TimerKey, int]()
    for operation, key, number in operations:
        earlier_ms, armings = timers.next_deadline_ms, timers.armings
        match operation:
            case "set":
                timers.set(key, number)
                model[key] = number
            case "cancel":
                timers.cancel(key)
                model.pop(key, None)
            case _:
                due = {key for key, deadline_ms in model.items() if deadline_ms <= number}
                given_out = list(timers.due(number))
                assert set(given_out) == due
                assert [model[key] for key in given_out] == sorted(model[key] for key in due)
                for key in due:
                    del model[key]
        came_nearer = bool(model) and (earlier_ms is None or min(model.values()) < earlier_ms)
        assert timers.armings != armings or not came_nearer
        assert timers.next_deadline_ms == min(model.values(), default=None)
        assert {key: timers.deadline_of(key) for key in model} == model
        assert len(timers) == len(model)
