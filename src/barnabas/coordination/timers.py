"""Deadlines by key: which have come, and when the next one comes.

Members send heartbeats all the time, and each moves a deadline. So a deadline that moves to later is only noted; the
heap keeps the earlier entry, and arms it anew when its time has come:

    set(a, 10)   deadline {a: 10}   heap [(10, a)]
    set(a, 25)   deadline {a: 25}   heap [(10, a)]        nothing is pushed
    due(10)      deadline {a: 25}   heap [(25, a)]        nobody is due, the entry moved

Rule 1: a key has one deadline; to set it again replaces it.
Rule 2: `due` takes a key out before it gives it, one after the other, so that whoever handles one may set and cancel
others, and those that were canceled are not given any more.
"""

from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple


class TimerKey(NamedTuple):
    """What a deadline is for. The kinds of consumer groups (KIP-848) begin with `consumer-`, no others do."""

    kind: str
    group_id: str
    member_id: str = ""
    """Empty if the deadline is the group's."""


class Timers:
    """The deadlines of one shard."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerKey, int] = {}
        # The earliest entry that the heap has for a key, also if the key was canceled meanwhile.
        # Invariant: _armed[key] <= _deadlines[key], so an entry is never too late.
        self._armed: dict[TimerKey, int] = {}
        # The number keeps the order of keys with the same deadline, and keys from being compared.
        self._heap: list[tuple[int, int, TimerKey]] = []
        self._pushes = 0

    @property
    def armings(self) -> int:
        """As long as this number stays the same, no deadline has come nearer, and nobody needs to look again."""
        return self._pushes

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        """Note when a key's time comes; replaces what was noted before."""
        self._deadlines[key] = deadline_ms
        armed = self._armed.get(key)
        if armed is None or deadline_ms < armed:
            self._pushes += 1
            self._armed[key] = deadline_ms
            heappush(self._heap, (deadline_ms, self._pushes, key))

    def cancel(self, key: TimerKey) -> None:
        """Forget a key; it need not be known."""
        self._deadlines.pop(key, None)

    def deadline_of(self, key: TimerKey) -> int | None:
        """Return when a key's time comes."""
        return self._deadlines.get(key)

    def due(self, now_ms: int) -> Iterator[TimerKey]:
        """Take out and give the keys whose time has come, the earliest first."""
        while True:
            earliest = self.next_deadline_ms
            if earliest is None or earliest > now_ms:
                return
            key = heappop(self._heap)[2]
            del self._armed[key]
            del self._deadlines[key]
            yield key

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next key's time comes."""
        heap = self._heap
        while heap:
            entry_ms, _, key = heap[0]
            if self._armed.get(key) != entry_ms:
                heappop(heap)  # An earlier entry has taken its place.
                continue
            deadline_ms = self._deadlines.get(key)
            if deadline_ms == entry_ms:
                return deadline_ms
            if deadline_ms is None:
                heappop(heap)
                del self._armed[key]
            else:
                self._pushes += 1
                self._armed[key] = deadline_ms
                heapreplace(heap, (deadline_ms, self._pushes, key))
        return None
