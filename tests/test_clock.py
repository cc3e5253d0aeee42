"""Both clocks: the one that tests turn by hand, and as much of the machine's as holds at any moment."""

import pytest

from barnabas.clock import Clock, ManualClock, SystemClock, WaitingClock


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(5_000)
    assert [clock.now_ms(), clock.now_ms()] == [5_000, 5_000]
    assert clock.monotonic_seconds() == 0.0
    clock.advance(1_500)
    assert clock.now_ms() == 6_500
    assert clock.monotonic_seconds() == 1.5
    clock.advance(0)
    assert clock.now_ms() == 6_500


@pytest.mark.parametrize("now_ms", [0, 10_000])
def test_a_wall_clock_that_is_set_does_not_move_the_monotonic_one(now_ms: int) -> None:
    clock = ManualClock(5_000)
    clock.advance(250)
    clock.jump_to(now_ms)
    assert clock.now_ms() == now_ms
    assert clock.monotonic_seconds() == 0.25


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(AssertionError, match="time passes forward"):
        ManualClock().advance(-1)


def test_the_machine_tells_milliseconds_since_1970_and_never_goes_back() -> None:
    clock: Clock = SystemClock()
    assert clock.now_ms() > 1_700_000_000_000
    assert clock.now_ms() < 100_000_000_000_000
    moments = [clock.monotonic_seconds() for _ in range(100)]
    assert moments == sorted(moments)


def test_waiting_by_a_manual_clock_takes_no_time_but_passes_it() -> None:
    clock = ManualClock(5_000)
    clock.sleep(1.5)
    assert (clock.now_ms(), clock.monotonic_seconds()) == (6_500, 1.5)


def test_waiting_by_the_machines_clock_takes_at_least_that_long() -> None:
    clock: WaitingClock = SystemClock()
    before = clock.monotonic_seconds()
    clock.sleep(0.002)
    assert clock.monotonic_seconds() - before >= 0.002
