"""Asking again: a deadline, and waits that grow between attempts."""

from barnabas.client.options import ClientOptions
from barnabas.clock import WaitingClock


class Retry:
    """The attempts of one operation. The first is free; before each further one `pause` is called with the reason."""

    def __init__(self, clock: WaitingClock, options: ClientOptions, timeout_ms: int | None = None) -> None:
        self._clock = clock
        self._backoff_seconds = options.retry_backoff_ms / 1000
        self._backoff_seconds_max = options.retry_backoff_max_ms / 1000
        timeout_ms = options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        self._deadline = clock.monotonic_seconds() + timeout_ms / 1000

    @property
    def seconds_left(self) -> float:
        """How long further attempts may take; never negative."""
        return max(0.0, self._deadline - self._clock.monotonic_seconds())

    def pause(self, reason: Exception) -> None:
        """Wait before the next attempt, or raise the reason when there is no time left for one."""
        if self.seconds_left == 0.0:
            raise reason
        self._clock.sleep(min(self._backoff_seconds, self.seconds_left))
        self._backoff_seconds = min(self._backoff_seconds * 2, self._backoff_seconds_max)
