"""GatedFiles: the real disk with a gate before the sync of segments, which a test closes, opens, or lets fail.

    gate = Gate()
    with Broker(in_process=True, files=GatedFiles(gate)) as broker:
        gate.close()
        ...                                     # whoever syncs a segment waits
        gate.open()

Only segments wait at the gate. Checkpoints are synced on the broker's loop, which would stand still.
"""

import errno
import os
import threading

from barnabas.storage.files import OsFile, OsFiles
from barnabas.storage.segment import LOG_SUFFIX
from tests.broker.turning import WAIT_SECONDS


class Gate:
    """Where syncs pass, wait or fail."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_open = True
        self._failing = ""
        self.waiting = 0
        self.syncs = 0

    def close(self) -> None:
        """Let everybody wait from now on, and count anew."""
        with self._condition:
            self._is_open = False
            self.syncs = 0

    def open(self, *, failing: str = "") -> None:
        """Let everybody through. Syncs under the path `failing` fail, those that wait and those that come later."""
        with self._condition:
            self._is_open = True
            self._failing = failing
            self._condition.notify_all()

    def enter(self, path: str) -> None:
        """Pass, wait or fail."""
        with self._condition:
            self.syncs += 1
            self.waiting += 1
            assert self._condition.wait_for(lambda: self._is_open, WAIT_SECONDS), "nobody opened the gate"
            self.waiting -= 1
            if self._failing and path.startswith(self._failing):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)


class GatedFile(OsFile):
    """A segment of the real disk."""

    __slots__ = ("_gate", "_path")

    def __init__(self, descriptor: int, gate: Gate, path: str) -> None:
        super().__init__(descriptor)
        self._gate = gate
        self._path = path

    def sync(self) -> None:
        """Go through the gate, and then to the disk."""
        self._gate.enter(self._path)
        super().sync()


class GatedFiles(OsFiles):
    """The real disk, but for the sync of segments."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def open(self, path: str, *, writable: bool = False) -> OsFile:
        """Open a file; a segment gets a gate."""
        file = super().open(path, writable=writable)
        if not path.endswith(LOG_SUFFIX):
            return file
        descriptor = os.dup(file.fileno())
        file.close()
        return GatedFile(descriptor, self._gate, path)
