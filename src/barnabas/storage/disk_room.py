"""Room on the disks: a reserve in every log directory for the moment when there is none, and whether there is any.

    .barnabas-reserve    bytes that are allocated and never written; they go when a write finds no room

So checkpoints, rolls, the metadata and recovery, which need little, go on while clients are refused.

Rule 1: a directory is full from the first write that finds no room until its reserve is taken again, and as much room
is left beside it. Whatever is freed in small pieces does not let clients in and out all the time.
Rule 2: whether there is room is tried, and not only asked for: a quota does not show in what the disk has free.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterable

from barnabas.storage.files import Files
from barnabas.storage.log_directory import LogDirectory

logger = logging.getLogger(__name__)

FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a write answers with that finds no room."""

RESERVE_FILE = ".barnabas-reserve"
PROBE_FILE = ".barnabas-probe"
ROOM_BYTES_MIN = 1 << 20
"""With less than this a disk is full, whatever the reserve."""


Guard = Callable[[LogDirectory, Callable[[], None]], bool]
"""Runs something that writes to a directory, takes it offline where the disk fails, and tells whether it ran."""


class DiskRoom:
    """Takes and gives up the reserves, and says which directories are full."""

    def __init__(self, files: Files, reserve_bytes: int, guard: Guard, on_full: Callable[[LogDirectory], None]) -> None:
        self._files = files
        self._guard = guard
        self._on_full = on_full
        self.reserve_bytes = reserve_bytes

    def note_full(self, directory: LogDirectory, error: OSError | None = None) -> bool:
        """Note, on any thread, that a write found no room, and tell whether giving up the reserve made some."""
        if directory.failure is not None:
            return False
        made_room = self._give_up_reserve(directory)
        if not directory.is_full:
            directory.is_full = True
            reason = error.strerror if error is not None else "too little is free"
            logger.error("%s is full, and takes no records until there is room: %s", directory.path, reason)
            self._on_full(directory)
        return made_room

    def has_room_again(self, directory: LogDirectory) -> bool:
        """Tell whether a full directory can take records again, with its reserve, and let it if so."""
        if not self._ask(directory, self._make_reserve):
            return False
        directory.is_full = False
        logger.info("%s has room again, and takes records", directory.path)
        return True

    def take_reserves(self, directories: Iterable[LogDirectory]) -> None:
        """Have a reserve in every directory that is not full; one that has no room for it is."""
        for directory in directories:
            if directory.failure is None and not directory.is_full and not self._ask(directory, self._make_reserve):
                self.note_full(directory)

    def check(self, directories: Iterable[LogDirectory]) -> None:
        """Give up the reserve where so little is free that a start would not find the room that it needs."""
        for directory in directories:
            if directory.failure is None and self._ask(directory, self._is_low):
                self.note_full(directory)

    def free_bytes(self, directory: LogDirectory) -> int:
        """Return how much is free, 0 where nobody can say."""
        try:
            return self._files.disk_space(directory.path)[1]
        except OSError:
            return 0

    def _ask(self, directory: LogDirectory, question: Callable[[LogDirectory], bool]) -> bool:
        answers: list[bool] = []
        return self._guard(directory, lambda: answers.append(question(directory))) and answers[-1]

    def _give_up_reserve(self, directory: LogDirectory) -> bool:
        """Let others have the room of the reserve, and tell whether there was one."""
        path = os.path.join(directory.path, RESERVE_FILE)
        try:
            if not self._files.exists(path):
                return False
            self._files.remove(path)
        except OSError:
            return False  # Whoever writes next says what is wrong with the disk.
        return True

    def _is_low(self, directory: LogDirectory) -> bool:
        """Tell whether so little is free that not even the metadata can be relied on to find room."""
        return self._files.disk_space(directory.path)[1] < ROOM_BYTES_MIN

    def _make_reserve(self, directory: LogDirectory) -> bool:
        """Have the reserve and as much room beside it; tells whether there is so much. Raises OSError for the rest."""
        margin = max(self.reserve_bytes, ROOM_BYTES_MIN)
        path = os.path.join(directory.path, RESERVE_FILE)
        has_reserve = self._files.exists(path) and self._size(path) == self.reserve_bytes
        needed = margin if has_reserve else margin + self.reserve_bytes
        if self._files.disk_space(directory.path)[1] < needed:
            return False
        if not self.reserve_bytes:
            self._files.remove(path)
        elif not has_reserve and not self._allocate(path, self.reserve_bytes):
            return False
        probe = os.path.join(directory.path, PROBE_FILE)
        try:
            return not directory.is_full or self._allocate(probe, margin)
        finally:
            self._files.remove(probe)

    def _size(self, path: str) -> int:
        file = self._files.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _allocate(self, path: str, size: int) -> bool:
        """Make a file of a size; one for which there is no room is removed again."""
        try:
            file = self._files.open(path, writable=True)
            try:
                file.truncate(0)
                file.allocate(size)
            finally:
                file.close()
        except OSError as error:
            self._files.remove(path)
            if error.errno in FULL_ERRORS:
                return False
            raise
        return True
