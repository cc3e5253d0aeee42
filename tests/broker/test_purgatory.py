"""Operations wait, are completed once, and leave nothing behind."""

from collections.abc import Iterator

import pytest

from barnabas.broker.purgatory import Purgatory
from barnabas.broker.scheduler import Scheduler
from barnabas.clock import ManualClock
from tests.broker.loops import HandLoop, hand_loop


class Operation:
    """Completes when it is told to."""

    def __init__(self) -> None:
        self.is_ready = False
        self.tries = 0
        self.ends: list[str] = []

    def try_complete(self) -> bool:
        self.tries += 1
        if self.is_ready:
            self.ends.append("completed")
        return self.is_ready

    def on_expiration(self) -> None:
        self.ends.append("expired")


class Setting:
    def __init__(self, hand: HandLoop) -> None:
        self.hand = hand
        self.clock = ManualClock()
        self.purgatory = Purgatory(Scheduler(hand.loop, self.clock))

    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.hand.turn()


@pytest.fixture
def setting() -> Iterator[Setting]:
    with hand_loop() as hand:
        yield Setting(hand)


def test_an_operation_completes_when_one_of_its_keys_is_checked(setting: Setting) -> None:
    operation = Operation()
    setting.purgatory.watch(operation, ["a", "b"], 1000)
    setting.purgatory.check("a")
    assert operation.ends == []
    operation.is_ready = True
    setting.purgatory.check("c")
    assert operation.ends == []
    setting.purgatory.check("b")
    assert operation.ends == ["completed"]
    assert setting.purgatory.size == 0
    assert not setting.purgatory.is_watching("a")


def test_an_operation_expires_once(setting: Setting) -> None:
    operation = Operation()
    setting.purgatory.watch(operation, ["a"], 1000)
    setting.pass_time(999)
    assert operation.ends == []
    setting.pass_time(2)
    assert operation.ends == ["expired"]
    operation.is_ready = True
    setting.purgatory.check("a")
    setting.pass_time(5000)
    assert operation.ends == ["expired"]
    assert setting.purgatory.size == 0


def test_a_completed_operation_does_not_expire(setting: Setting) -> None:
    operation = Operation()
    operation.is_ready = True
    setting.purgatory.watch(operation, ["a", "a"], 10)
    setting.purgatory.check("a")
    setting.pass_time(100)
    assert operation.ends == ["completed"]


def test_an_operation_that_was_taken_back_does_nothing(setting: Setting) -> None:
    operation = Operation()
    watched = setting.purgatory.watch(operation, ["a"], 10)
    setting.purgatory.remove(watched)
    setting.purgatory.remove(watched)
    operation.is_ready = True
    setting.purgatory.check("a")
    setting.pass_time(100)
    assert operation.ends == []
    assert setting.purgatory.size == 0


def test_everything_expires_when_the_broker_stops(setting: Setting) -> None:
    operations = [Operation() for _ in range(3)]
    for operation in operations:
        setting.purgatory.watch(operation, ["a", "b"], 1000)
    setting.purgatory.expire_all()
    assert [operation.ends for operation in operations] == [["expired"]] * 3
    assert setting.purgatory.size == 0


def test_an_operation_may_end_others_while_a_key_is_checked(setting: Setting) -> None:
    first, second = Operation(), Operation()
    watched = setting.purgatory.watch(second, ["a"], 1000)

    def complete() -> bool:
        setting.purgatory.remove(watched)
        return True

    first.try_complete = complete  # type: ignore[method-assign]
    setting.purgatory.watch(first, ["a"], 1000)
    setting.purgatory.remove(watched)
    setting.purgatory.check("a")
    assert second.tries == 0
    assert setting.purgatory.size == 0


def test_who_waits_for_many_keys_is_asked_once_for_all_of_them(setting: Setting) -> None:
    operations = [Operation() for _ in range(3)]
    for operation in operations:
        setting.purgatory.watch(operation, range(100), 1000)
    operations[1].is_ready = True
    setting.purgatory.check_all(range(200))
    assert [operation.tries for operation in operations] == [1, 1, 1]
    assert [operation.ends for operation in operations] == [[], ["completed"], []]
    assert setting.purgatory.size == 2
