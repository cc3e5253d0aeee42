"""Faults that a test asks for: the next requests of an API fail, are answered late, or end their connection.

    broker.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    broker.faults.delay("Fetch", 500)
    broker.faults.drop("Metadata")

Rule 1: a fault may be asked for on any thread; it is taken on the loop, once for each request it is for.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode

ALWAYS = -1


class Fault(NamedTuple):
    """What happens to a request."""

    error: ErrorCode | None = None
    delay_ms: int = 0
    is_dropped: bool = False


class Faults:
    """The faults that were asked for and have not happened yet."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        self.call_later = call_later
        self._lock = threading.Lock()
        self._waiting: defaultdict[str, deque[list[object]]] = defaultdict(deque)
        self._names = {api.name for api in APIS.values()}
        self.is_any_waiting = False
        """Whether a request may meet a fault; until one is asked for, everything goes the way it goes without them."""

    def error(self, api: str, code: ErrorCode, *, times: int = 1) -> None:
        """Answer the next requests of an API with an error, without doing what they ask for."""
        self._add(api, Fault(error=code), times)

    def delay(self, api: str, milliseconds: int, *, times: int = 1) -> None:
        """Answer the next requests of an API later; what they ask for is done at once."""
        self._add(api, Fault(delay_ms=milliseconds), times)

    def drop(self, api: str, *, times: int = 1) -> None:
        """Close the connection instead of serving the next requests of an API."""
        self._add(api, Fault(is_dropped=True), times)

    def clear(self) -> None:
        """Take back every fault."""
        with self._lock:
            self._waiting.clear()
            self.is_any_waiting = False

    def _add(self, api: str, fault: Fault, times: int) -> None:
        if api not in self._names:
            raise ValueError(f"there is no API {api!r}; there are {', '.join(sorted(self._names))}")
        if times != ALWAYS and times < 1:
            raise ValueError(f"a fault happens once or more often, or ALWAYS ({ALWAYS}), not {times} times")
        with self._lock:
            self._waiting[api].append([fault, times])
            self.is_any_waiting = True

    def take(self, api: str) -> Fault | None:
        """Return what is to happen to a request of an API."""
        with self._lock:
            waiting = self._waiting.get(api)
            if not waiting:
                return None
            fault, times = waiting[0]
            assert isinstance(fault, Fault)
            assert isinstance(times, int)
            if times > 0:
                waiting[0][1] = times - 1
                if times == 1:
                    waiting.popleft()
                    self.is_any_waiting = any(self._waiting.values())
            return fault
