"""Timers go by the clock, on the loop, in order; the pool calls back on the loop."""

import threading
from concurrent.futures import Future

import pytest

from barnabas.broker.scheduler import CANCELLED_MAX, IoPool, Scheduler
from barnabas.clock import ManualClock
from tests.broker.loops import hand_loop


def test_timers_come_in_the_order_of_their_deadlines_and_not_before() -> None:
    with hand_loop() as hand:
        clock = ManualClock()
        scheduler = Scheduler(hand.loop, clock)
        seen: list[str] = []
        scheduler.call_later(200, lambda: seen.append("b"))
        scheduler.call_later(100, lambda: seen.append("a"))
        scheduler.call_later(300, lambda: seen.append("c"))
        clock.advance(99)
        hand.turn()
        assert seen == []
        clock.advance(150)
        hand.turn()
        assert seen == ["a", "b"]
        clock.advance(100)
        hand.turn()
        assert seen == ["a", "b", "c"]


def test_a_cancelled_timer_does_not_come() -> None:
    with hand_loop() as hand:
        clock = ManualClock()
        scheduler = Scheduler(hand.loop, clock)
        seen: list[int] = []
        scheduler.call_later(10, lambda: seen.append(1)).cancel()
        clock.advance(100)
        hand.turn()
        assert seen == []


def test_many_cancelled_timers_are_forgotten() -> None:
    with hand_loop() as hand:
        scheduler = Scheduler(hand.loop, ManualClock())
        for _ in range(5 * CANCELLED_MAX):
            scheduler.call_later(1000, lambda: None).cancel()
        assert len(scheduler._timers) <= CANCELLED_MAX + 1


def test_cancelled_timers_behind_a_live_one_are_forgotten() -> None:
    with hand_loop() as hand:
        clock = ManualClock()
        scheduler = Scheduler(hand.loop, clock)
        seen: list[int] = []
        scheduler.call_later(10, lambda: seen.append(1))
        timers = [scheduler.call_later(1000, lambda: seen.append(2)) for _ in range(5_000)]
        last = scheduler.call_later(2000, lambda: seen.append(3))
        for timer in timers:
            timer.cancel()
            timer.cancel()  # It is counted once.
        assert len(scheduler._timers) <= 2 * CANCELLED_MAX
        assert scheduler._cancelled == sum(timer.callback is None for _, _, timer in scheduler._timers)
        clock.advance(1500)
        hand.turn()
        assert seen == [1]
        assert (len(scheduler._timers), scheduler._cancelled) == (1, 0)
        clock.advance(1500)
        hand.turn()
        assert seen == [1, 3]
        last.cancel()
        assert scheduler._cancelled == 0, "a timer that came is not there to be forgotten"


def test_repeated_work_goes_on_after_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    with hand_loop() as hand:
        clock = ManualClock()
        scheduler = Scheduler(hand.loop, clock)
        seen: list[int] = []

        def work() -> None:
            seen.append(len(seen))
            if len(seen) == 1:
                raise ValueError("once")

        scheduler.every(100, work, first_ms=10)
        for _ in range(3):
            clock.advance(100)
            hand.turn()
        assert seen == [0, 1, 2]
        assert "once" in caplog.text


def test_nothing_comes_after_close() -> None:
    with hand_loop() as hand:
        clock = ManualClock()
        scheduler = Scheduler(hand.loop, clock)
        seen: list[int] = []
        scheduler.every(10, lambda: seen.append(1))
        scheduler.close()
        clock.advance(100)
        hand.turn()
        assert seen == []


@pytest.mark.parametrize("error", [None, OSError("no")])
def test_the_pool_works_on_a_thread_and_calls_back_on_the_loop(error: OSError | None) -> None:
    with hand_loop() as hand:
        pool = IoPool(hand.loop, 2)
        threads: list[str] = []
        answers: list[tuple[object, BaseException | None]] = []

        def work() -> int:
            threads.append(threading.current_thread().name)
            if error is not None:
                raise error
            return 7

        def done(result: object, failure: BaseException | None) -> None:
            threads.append(threading.current_thread().name)
            answers.append((result, failure))
            hand.loop.stop()

        pool.submit(work, done)
        hand.loop.run_forever()
        pool.close()
        assert answers == [(None, error) if error else (7, None)]
        assert threads[0].startswith("barnabas-io")
        assert threads[1] == threading.current_thread().name


def test_what_had_not_begun_when_the_pool_closed_is_dropped_without_a_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with hand_loop() as hand:
        pool = IoPool(hand.loop, 1)
        waiting: Future[None] = Future()
        monkeypatch.setattr(pool, "_pool", SubmitsOnly(waiting))
        answers: list[object] = []
        pool.submit(lambda: None, lambda result, error: answers.append(error))
        waiting.cancel()
        hand.turn()
        assert answers == []
        assert caplog.text == ""


class SubmitsOnly:
    """Threads that never come to do anything."""

    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def submit(self, work: object) -> "Future[None]":
        return self._future
