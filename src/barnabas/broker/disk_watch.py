"""DiskWatch: what a broker does about log directories that are full.

    a write finds no room --> the directory is full (storage/disk_room.py) --> produce to it is refused at once
    every second          --> is there room again? then the reserve is taken, and clients may write

Rule 1: one line when a directory becomes full and one when it is well; requests that are refused say nothing.
Rule 2: clients are refused as long as the directory is full. Coordinators, whose records let consumers go on, may use
one half of the reserve; the other is for checkpoints, rolls and the metadata.
Rule 3: room that logs have reserved for themselves is given back as soon as their directory is full.
Rule 4: what could not be flushed for want of room is flushed when there is some.
"""

import asyncio
from collections.abc import Callable

from barnabas.broker.partition import ROOM_FOR_ALL, ROOM_FOR_NONE, ROOM_FOR_OWN
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.scheduler import Scheduler
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_manager import LogManager, NoLogDirectoryError

INTERVAL_MS = 1_000


class DiskWatch:
    """Watches the full log directories of one broker."""

    def __init__(
        self,
        logs: LogManager,
        replica_manager: ReplicaManager,
        scheduler: Scheduler,
        make_room: Callable[[LogDirectory], None],
        on_fatal: Callable[[str], None],
    ) -> None:
        self._logs = logs
        self._replica_manager = replica_manager
        self._scheduler = scheduler
        self._make_room = make_room
        self._on_fatal = on_fatal
        self._watched: set[LogDirectory] = set()
        replica_manager.room_of = self._room_of

    def start(self) -> None:
        """Have the reserves, and watch the directories that are full already."""
        self._logs.disk_room.take_reserves(self._logs.directories)
        for directory in self._logs.directories:
            if directory.is_full:
                self.became_full(directory)

    def became_full(self, directory: LogDirectory) -> None:
        """Refuse what clients write to a directory, until there is room."""
        if directory in self._watched or not directory.is_full:
            return
        self._watched.add(directory)
        self._replica_manager.give_room_back(directory)
        self._tell_partitions(directory)
        self._scheduler.call_later(INTERVAL_MS, lambda: self._look(directory))
        self._make_room(directory)

    def _look(self, directory: LogDirectory) -> None:
        try:
            has_room = directory.failure is None and self._logs.find_room(directory)
        except NoLogDirectoryError as fatal:
            self._on_fatal(str(fatal))
            has_room = False
        if directory.failure is not None:
            self._watched.discard(directory)
            self._replica_manager.forget_offline()
            return
        self._tell_partitions(directory)
        if has_room:
            self._watched.discard(directory)
            self._replica_manager.flush_again(directory)
        else:
            self._make_room(directory)  # Somebody may have deleted a topic since.
            self._scheduler.call_later(INTERVAL_MS, lambda: self._look(directory))

    def _room_of(self, directory: LogDirectory) -> int:
        """Return who may write to a directory."""
        if not directory.is_full:
            return ROOM_FOR_ALL
        disk_room = self._logs.disk_room
        return ROOM_FOR_OWN if disk_room.free_bytes(directory) > disk_room.reserve_bytes // 2 else ROOM_FOR_NONE

    def _tell_partitions(self, directory: LogDirectory) -> None:
        room = self._room_of(directory)
        for partition in self._replica_manager.partitions_in(directory):
            partition.room = room


def on_loop(loop: asyncio.AbstractEventLoop, watch: Callable[[], DiskWatch | None]) -> Callable[[LogDirectory], None]:
    """Return what storage calls, on any thread, when a directory has become full; `watch` may not be there yet."""

    def told(directory: LogDirectory) -> None:
        found = watch()
        if found is not None:
            found.became_full(directory)

    def on_full(directory: LogDirectory) -> None:
        try:
            loop.call_soon_threadsafe(told, directory)
        except RuntimeError:
            pass  # The loop was closed under a broker that was killed.

    return on_full
