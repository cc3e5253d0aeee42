"""Disks that behave as real ones do on a bad day: an fsync that takes long, pages not in memory, lost bytes."""

import os
import threading

from barnabas.storage.files import OsFile, OsFiles
from tests.server.raw import DEADLINE_S


class OddFile(OsFile):
    """A file of such a disk."""

    __slots__ = ("disk",)

    def __init__(self, descriptor: int, disk: "OddFiles") -> None:
        super().__init__(descriptor)
        self.disk = disk

    def sync(self) -> None:
        """Return when the disk lets it be."""
        self.disk.syncs += 1
        assert self.disk.may_sync.wait(DEADLINE_S)
        super().sync()

    def read_cached(self, buffer: memoryview, position: int) -> int:
        """Find nothing in memory, if the disk is cold."""
        return 0 if self.disk.is_cold else super().read_cached(buffer, position)

    def send_cached(self, socket: int, size: int, position: int) -> int:
        """Fail, if the disk does, or once as a socket may."""
        if self.disk.send_error:
            code, self.disk.send_error = self.disk.send_error, 0
            raise OSError(code, os.strerror(code))
        if self.disk.fails and not self.disk.is_cold:
            raise OSError(5, "the disk is gone")
        return super().send_cached(socket, size, position)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Wait for the disk."""
        self.disk.waits += 1
        if self.disk.fails:
            raise OSError(5, "the disk is gone")
        return 0 if self.disk.is_cut_off else super().read_into(buffer, position)


class OddFiles(OsFiles):
    """The real disk, until it is told to be odd."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.syncs = 0
        self.is_cold = False
        self.is_cut_off = False
        self.fails = False
        self.send_error = 0
        self.waits = 0

    def open(self, path: str, *, writable: bool = False) -> OddFile:
        """Open a file."""
        file = super().open(path, writable=writable)
        return OddFile(os.dup(file.fileno()), self)
