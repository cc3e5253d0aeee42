"""When the loop stays awake between requests, and when it gives up."""

from collections.abc import Callable

from barnabas.clock import ManualClock
from barnabas.server.busy_poll import AWAKE_SECONDS, CLOSE_SECONDS, IN_VAIN_MAX, REST_TURNS, BusyPoll


class Rounds(ManualClock):
    """A loop whose rounds take a microsecond each, and that counts those it did not sleep before."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0
        self.soon: list[Callable[[], None]] = []
        self.poll = BusyPoll(self.soon.append, self)

    def monotonic_seconds(self) -> float:
        return self.seconds

    def turn(self, after: float) -> None:
        self.seconds += after
        self.poll.turn_ended()

    def run(self, seconds: float) -> int:
        """Go on for so long at most, and return how many rounds there were before the loop went to sleep."""
        end, count = self.seconds + seconds, 0
        while self.soon and self.seconds < end:
            self.seconds += 1e-6
            count += 1
            for callback in [self.soon.pop() for _ in range(len(self.soon))]:
                callback()
        return count


def test_a_request_after_a_long_time_lets_the_loop_sleep_again() -> None:
    rounds = Rounds()
    for _ in range(5):
        rounds.turn(after=CLOSE_SECONDS * 2)
        assert rounds.run(1.0) == 0


def test_requests_that_follow_closely_keep_it_awake_until_none_comes() -> None:
    rounds = Rounds()
    rounds.turn(after=1.0)
    rounds.turn(after=CLOSE_SECONDS / 2)
    for _ in range(10):
        assert rounds.run(AWAKE_SECONDS / 2) > 10
        rounds.turn(after=0.0)
    assert len(rounds.soon) == 1  # However many requests: one look a round.
    assert rounds.run(1.0) * 1e-6 < AWAKE_SECONDS * 1.1
    assert rounds.soon == []


def test_who_stays_awake_in_vain_does_not_try_for_a_while() -> None:
    rounds = Rounds()
    rounds.turn(after=1.0)
    for _ in range(IN_VAIN_MAX):
        rounds.turn(after=AWAKE_SECONDS / 2)
        assert rounds.run(1.0) > 10
    for _ in range(REST_TURNS):
        rounds.turn(after=AWAKE_SECONDS / 2)
        assert rounds.run(1.0) == 0
    rounds.turn(after=AWAKE_SECONDS / 2)
    assert rounds.run(1.0) == 0  # The turns before were not looked at.
    rounds.turn(after=AWAKE_SECONDS / 2)
    assert rounds.run(1.0) > 10


def test_a_success_makes_up_for_what_was_in_vain() -> None:
    rounds = Rounds()
    rounds.turn(after=1.0)
    for _ in range(5 * IN_VAIN_MAX):
        rounds.turn(after=AWAKE_SECONDS / 2)
        assert rounds.run(AWAKE_SECONDS / 2) > 10
        rounds.turn(after=0.0)
        assert rounds.run(1.0) > 10
