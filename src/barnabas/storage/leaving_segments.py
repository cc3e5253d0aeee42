"""LeavingSegments: what was taken out of a log and whose files are still there, under names that others may need.

    retention    00000000000000000042.log.deleted, its indexes by their own names
    the cleaner  00000000000000000042.log.deleted, and its indexes with that ending

They are removed later, by any thread. Until then nobody else may use these names: a segment that begins where one of
these did (cleaned and then deleted, a follower that begins anew, a topic that is made again) has to have them first.

Rule 1: whoever removes files, or needs their names, holds the lock.
Rule 2: after `close` nothing is removed any more: the folder belongs to the next one of that name, or is removed whole.
Rule 3: what could not be removed stays, so that it can be tried again.
"""

from collections.abc import Callable
from threading import Lock

from barnabas.storage.segment import LogSegment


class LeavingSegments:
    """The segments of one log that wait to be removed."""

    def __init__(self) -> None:
        self._by_base_offset: dict[int, LogSegment] = {}
        self._lock = Lock()
        self._is_closed = False

    def make_way(self, base_offset: int) -> None:
        """Remove the files of a segment that has this base offset and still waits, if there is one."""
        if base_offset in self._by_base_offset:
            with self._lock:
                self._remove(base_offset)

    def make_way_for_all(self) -> None:
        """Remove the files of all that wait."""
        with self._lock:
            for base_offset in list(self._by_base_offset):
                self._remove(base_offset)

    def add(self, segment: LogSegment) -> None:
        """Take in a segment whose data has its last name; `make_way` was called before it got that."""
        self._by_base_offset[segment.base_offset] = segment

    def remove(self, segment: LogSegment, then: Callable[[LogSegment], None]) -> None:
        """Remove the files of a segment, on any thread, if they are still there, and then what belongs to it."""
        with self._lock:
            if not self._is_closed and self._by_base_offset.get(segment.base_offset) is segment:
                self._remove(segment.base_offset)
                then(segment)

    def remove_again(self, segment: LogSegment) -> None:
        """Remove what a flush, on any thread, has made of a segment that was removed meanwhile."""
        with self._lock:
            if segment.is_deleted and not self._is_closed:
                segment.delete()

    def close(self) -> None:
        """Leave everything as it is from now on; waits for a removal that is under way."""
        with self._lock:
            self._is_closed = True

    def _remove(self, base_offset: int) -> None:
        segment = self._by_base_offset.get(base_offset)
        if segment is not None and not self._is_closed:
            segment.delete()
            del self._by_base_offset[base_offset]
