"""The disk, as the storage layer sees it: every operation on a file or folder goes through here.

It is a seam. `OsFiles` is the real disk; the tests have one that stops at the k-th operation, loses what was not
synced and tears pages, so that what is promised after a crash is shown for every point at which one can happen.

Rule 1: data is written at a known position and read at a known position; no file has a cursor.
Rule 2: `write_at` writes everything or raises; after an error the caller truncates back what may have been written.
Rule 3: a name (created, renamed, removed) is durable after `sync_directory` of its folder, bytes after `sync`.
Rule 4: a File closes itself when its last holder lets go, so that a reader of a segment that was deleted or dropped
from the cache of open files reads on undisturbed.
"""

import contextlib
import errno
import fcntl
import functools
import mmap
import os
import shutil
import threading
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap

PASSING_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})
"""Errors that say nothing of the disk itself and pass: no room on it, or too many open files."""


COPIED_BYTES_MAX = 64 << 10
PROBE_BYTES = 512 << 10
"""Logs are read and forgotten in order, so the page cache has all of a piece where it has some bytes of it."""


class Entry(NamedTuple):
    """One name in a folder."""

    name: str
    is_directory: bool
    size: int


class File(Protocol):
    """An open file."""

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`."""
        ...

    def read_at(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position` and return how many bytes there were; fewer only at the end of the file."""
        ...

    def read_cached(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` as far as that needs no waiting for the disk, and return how far; 0 may also be the end."""
        ...

    def send_cached(self, socket: int, size: int, position: int) -> int:
        """Send up to `size` bytes, and return how many the socket took: 0 at the end, or if the disk made us wait.

        A socket that takes nothing now raises BlockingIOError.
        """
        ...

    def size(self) -> int:
        """Return the length of the file."""
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        ...

    def allocate(self, size: int) -> None:
        """Reserve room for `size` bytes and make the file that long."""
        ...

    def reserve_ahead(self, position: int, size: int) -> bool:
        """Reserve room behind the end of the file, which stays as long as it is; False if that is not worth it here."""
        ...

    def has_room_ahead(self) -> bool:
        """Tell whether there is room behind its end, which a `truncate` to its own length gives back."""
        ...

    def sync(self) -> None:
        """Return when the bytes written are on the disk."""
        ...

    def close(self) -> None:
        """Let go of the file now rather than when it is forgotten."""
        ...


class DirectoryLock(Protocol):
    """A folder that this broker holds against all others."""

    def release(self) -> None:
        """Let another broker have it."""
        ...


class Files(Protocol):
    """A disk."""

    def open(self, path: str, *, writable: bool = False) -> File:
        """Open a file; one that is opened for writing is created where it does not exist."""
        ...

    def map(self, path: str) -> Buffer:
        """Map a whole file for reading."""
        ...

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        ...

    def entries(self, path: str) -> Iterator[Entry]:
        """Yield the names in a folder with what they are, which takes a system call each."""
        ...

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or folder of that name."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return when a file was last written, in milliseconds since 1970."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a folder and those above it, where they do not exist."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name; a file of that name is replaced in one step."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error, since a crash may have come between."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it."""
        ...

    def sync_directory(self, path: str) -> None:
        """Return when the names in a folder are on the disk."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Let a file be as old as another, whose content it has."""
        ...

    def disk_space(self, path: str) -> tuple[int, int]:
        """Return how many bytes the file system of a folder has in all, and how many of them this process may use."""
        ...

    def device(self, path: str) -> int:
        """Return a number that all folders of one file system have in common."""
        ...

    def lock_directory(self, path: str) -> DirectoryLock:
        """Take the folder for this broker, or raise DirectoryLockedError."""
        ...


class DirectoryLockedError(Exception):
    """Another broker holds the folder."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(f"{path} is in use by {holder}; stop that broker or choose another folder")
        self.path = path


class FileTooLargeError(Exception):
    """A file that is read as a whole has a size that nobody can have given it on purpose."""

    def __init__(self, path: str, size: int, size_max: int) -> None:
        self.path = path
        self.reason = f"the file has {size} bytes, but one of its kind has at most {size_max}"
        super().__init__(f"{path}: {self.reason}")


LOCK_FILE = ".lock"
TEMPORARY_SUFFIX = ".tmp"
# What is read as a whole: checkpoints of two million partitions are smaller than this.
SMALL_FILE_BYTES_MAX = 64 * 1024 * 1024


def _sync_failed(error: OSError) -> OSError:
    # What was to be written is lost even where the reason was a full disk, so nobody may take it for one that is full,
    # and try again: the second sync would return without an error, and the bytes would still be gone.
    return OSError(errno.EIO, f"a sync failed: {error.strerror}")


# Linux has a request of every file system's files that makes them no longer, unlike posix_fallocate:
#
#     | type i16 | whence i16 | (4) | start i64 | length i64 | (4 + 4 + 16) |      whence 0: from the beginning
_RESERVE_REQUEST = 0x4030582A
_RESERVATION = Struct("=8xqq24x")
assert _RESERVATION.size == 48
AHEAD_TIMES_FREE_MIN = 64
"""Nothing is reserved on a disk that does not have so much more: others need that room now."""
AHEAD_BYTES_SEEN = 1 << 20
"""Less than that may be what a file system keeps about the file."""
STAT_BLOCK_BYTES = 512


@functools.cache
def _gains_by_room_ahead(device: int) -> bool:
    """Tell whether that is an ext4, where it was measured. A file system in memory would only lose by it."""
    return file_system_of(device) == "ext4"


def file_system_of(device: int, mounts: str = "/proc/self/mountinfo") -> str:
    """Return what kind of file system a device has, or nothing where that is not known."""
    with contextlib.suppress(OSError), open(mounts, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            # 22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
            mount, _, source = line.partition(" - ")
            if mount.split()[2] == f"{os.major(device)}:{os.minor(device)}":
                return source.split()[0]
    return ""


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor, for whoever reads with system calls of their own."""
        return self._descriptor

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`."""
        written = os.pwrite(self._descriptor, data, position)
        if written != len(data):
            self._write_rest(memoryview(data), position, written)

    def _write_rest(self, data: memoryview, position: int, written: int) -> None:
        # A short write is how a disk that is filling up says so; the next call gives the error its name.
        while written < len(data):
            count = os.pwrite(self._descriptor, data[written:], position + written)
            if count == 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            written += count

    def read_at(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        data = os.pread(self._descriptor, size, position)
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position` and return how many bytes there were."""
        count = 0
        while count < len(buffer):
            read = os.preadv(self._descriptor, [buffer[count:]], position + count)
            if read == 0:
                break
            count += read
        return count

    def read_cached(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from the page cache as far as it has the bytes, and return how far."""
        try:
            return os.preadv(self._descriptor, [buffer], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return 0
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            # Such a file system (tmpfs is one) has everything in memory, or nobody can ask it not to wait.
            return os.preadv(self._descriptor, [buffer], position)

    def send_cached(self, socket: int, size: int, position: int) -> int:
        """Have the system send up to `size` bytes of the page cache, and return how many the socket took."""
        if not self._is_cached(size, position):
            return 0
        try:
            return os.sendfile(socket, self._descriptor, position, size)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # A file system that can not: the bytes go through here.
            return os.write(socket, os.pread(self._descriptor, min(size, COPIED_BYTES_MAX), position))

    def _is_cached(self, size: int, position: int) -> bool:
        """Tell whether the page cache has these bytes, as far as a few of them can tell."""
        byte = memoryview(bytearray(1))
        last = position + size - 1
        return all(self.read_cached(byte, at) for at in (*range(position, last, PROBE_BYTES), last))

    def size(self) -> int:
        """Return the length of the file."""
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        os.ftruncate(self._descriptor, size)

    def allocate(self, size: int) -> None:
        """Reserve room for `size` bytes and make the file that long."""
        os.posix_fallocate(self._descriptor, 0, size)

    def reserve_ahead(self, position: int, size: int) -> bool:
        """Reserve room behind the end of the file, on a file system that gains by it and has plenty."""
        try:
            if not _gains_by_room_ahead(os.fstat(self._descriptor).st_dev):
                return False
            found = os.fstatvfs(self._descriptor)
            if found.f_bavail * found.f_frsize < AHEAD_TIMES_FREE_MIN * size:
                return False
            fcntl.ioctl(self._descriptor, _RESERVE_REQUEST, _RESERVATION.pack(position, size))
        except OSError:
            return False  # Whatever is wrong with the disk, the write that follows says it better.
        return True

    def has_room_ahead(self) -> bool:
        """Tell whether there is room behind its end."""
        found = os.fstat(self._descriptor)
        return found.st_blocks * STAT_BLOCK_BYTES - found.st_size > AHEAD_BYTES_SEEN

    def sync(self) -> None:
        """Return when the bytes written are on the disk."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise _sync_failed(error) from error

    def close(self) -> None:
        """Let go of the file now rather than when it is forgotten."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class OsDirectoryLock:
    """`.lock` in a folder, locked the way Java locks files, so that a Kafka on the same folder is kept out too.

    Such a lock belongs to the process: the same process can take it again, and loses it when any descriptor of the
    file is closed. So the process keeps a register of its own, and opens the file only while it is not in there.
    """

    _held: dict[str, "OsDirectoryLock"] = {}  # noqa: RUF012 (one register a process is the point)
    _register = threading.Lock()

    def __init__(self, directory: str) -> None:
        self._key = os.path.realpath(directory)
        with self._register:
            if self._key in self._held:
                raise DirectoryLockedError(directory, "another broker in this process")
            self._descriptor = os.open(os.path.join(directory, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):  # What POSIX lets a lock say that somebody else holds.
                os.close(self._descriptor)
                raise DirectoryLockedError(directory, _lock_holder(directory)) from None
            self._held[self._key] = self

    def release(self) -> None:
        """Let another broker have it."""
        with self._register:
            if self._held.get(self._key) is self:
                del self._held[self._key]
                os.close(self._descriptor)


def _lock_holder(directory: str) -> str:
    # The kernel lists who waits for and holds which inode; the pid is all that can be told of a foreign process.
    found = os.stat(os.path.join(directory, LOCK_FILE))
    inode = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError), open("/proc/locks", encoding="ascii") as locks:
        for line in locks:
            words = line.split()
            if len(words) > 5 and words[5] == inode:
                return f"process {words[4]}"
    return "another process"


class OsFiles:
    """The real disk."""

    def open(self, path: str, *, writable: bool = False) -> OsFile:
        """Open a file; one that is opened for writing is created where it does not exist."""
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        return OsFile(os.open(path, flags | os.O_CLOEXEC, 0o644))

    def map(self, path: str) -> Buffer:
        """Map a whole file for reading; an empty file can not be mapped and is empty bytes."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size == 0:
                return b""
            return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return os.listdir(path)

    def entries(self, path: str) -> Iterator[Entry]:
        """Yield the names in a folder with what they are, which takes a system call each."""
        with os.scandir(path) as found:
            for entry in found:
                if entry.is_dir():
                    yield Entry(entry.name, True, 0)
                    continue
                # A file that was just removed, or a link to nowhere, is no reason not to see the others.
                try:
                    size = entry.stat().st_size
                except FileNotFoundError:
                    continue
                yield Entry(entry.name, False, size)

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or folder of that name."""
        return os.path.exists(path)

    def modified_ms(self, path: str) -> int:
        """Return when a file was last written, in milliseconds since 1970."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Let a file be as old as another, whose content it has."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def make_directory(self, path: str) -> None:
        """Create a folder and those above it, where they do not exist."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name; a file of that name is replaced in one step."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error, since a crash may have come between."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_directory(self, path: str) -> None:
        """Return when the names in a folder are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise _sync_failed(error) from error
        finally:
            os.close(descriptor)

    def disk_space(self, path: str) -> tuple[int, int]:
        """Return how many bytes the file system of a folder has in all, and how many of them this process may use."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def device(self, path: str) -> int:
        """Return a number that all folders of one file system have in common."""
        return os.stat(path).st_dev

    def lock_directory(self, path: str) -> OsDirectoryLock:
        """Take the folder for this broker, or raise DirectoryLockedError."""
        return OsDirectoryLock(path)


def read_whole(files: Files, path: str, size_max: int = SMALL_FILE_BYTES_MAX) -> bytes:
    """Return the content of a small file; raises FileTooLargeError for one that would not fit into memory."""
    file = files.open(path)
    try:
        size = file.size()
        if size > size_max:
            raise FileTooLargeError(path, size, size_max)
        return file.read_at(size, 0)
    finally:
        file.close()


def write_whole(files: Files, path: str, data: Buffer, *, durable: bool = True) -> None:
    """Make `data` the content of `path` in one step: after a crash the file is the old one or the new one, whole.

    A file that is checked when it is read, and can be made again, need not be `durable`: it is then no slower than a
    write to memory, and a crash of the machine may leave it damaged or missing.
    """
    temporary = path + TEMPORARY_SUFFIX
    file = files.open(temporary, writable=True)
    try:
        file.truncate(0)
        file.write_at(data, 0)
        if durable:
            file.sync()
    finally:
        file.close()
    files.rename(temporary, path)
    if durable:
        files.sync_directory(os.path.dirname(path))
