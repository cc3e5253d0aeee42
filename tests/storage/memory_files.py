"""MemoryFiles: a disk in memory that keeps the rules of `Files`, and can stop, crash and fail on demand.

    disk = MemoryFiles(stop_at_step=17)
    with pytest.raises(DiskStoppedError):
        scripted_history(disk)
    for keep in KEEPS:
        reopen(disk.crash(keep))

Every change is a step, counted in `steps` and told in `performed`: a run that is not stopped says how many there are.
A call that changes nothing (a name removed that is not there, a folder made that exists) is no step.

Rule 1: a change is seen at once by everybody, and is `pending` until it is synced.
Rule 2: `sync` makes the bytes and the length of one file durable, and not its name.
Rule 3: `sync_directory`, of whatever folder, makes all names durable, in the order in which they were changed. Without
it a name is lost, even that of a file that was synced.
Rule 4: step `stop_at_step` raises DiskStoppedError, as does everything after it. It changes nothing; with `stop_torn` a
write of that step leaves its first half, and a removed tree has lost some of its names.
Rule 5: `crash` leaves the disk as it is and returns the one that the next process finds. A Keep decides which of the
pending changes are on it. After a power cut they are durable; after a kill of the process (EVERYTHING) they are still
pending, so that a second crash can take them.
Rule 6: a `sync` that fails drops the bytes it was to make durable, as Linux does: they are still read, no later sync
saves them, and no crash keeps them. Whoever retries a failed sync and trusts it loses data.
Rule 7: folders are listed in an order of their own that is neither sorted nor that of creation, and always the same.
Rule 8: `map` gives a copy of the file as it is then; later writes do not show in it, as they would in a real map.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias
from zlib import crc32

from barnabas.clock import Clock, ManualClock
from barnabas.storage.files import LOCK_FILE, Buffer, DirectoryLockedError, Entry

PAGE_BYTES = 4096


class DiskStoppedError(Exception):
    """The disk stopped, as the test wanted. It is no OSError, so that nothing handles it as a fault of the disk."""


class Inode:
    """A file without its name: what is read from it, and what of that a power cut leaves."""

    __slots__ = ("ahead_end", "content", "durable", "modified_ms")

    def __init__(self, durable: bytes | bytearray, modified_ms: int) -> None:
        self.durable = bytearray(durable)
        self.content = bytearray(durable)
        self.modified_ms = modified_ms
        self.ahead_end = 0


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes of a file were replaced; a gap before them is zeros."""

    inode: Inode
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A file was cut, or extended with zeros."""

    inode: Inode
    size: int


@dataclass(frozen=True, slots=True)
class Create:
    """A name was given to a file, or to a folder where there is no inode."""

    path: str
    inode: Inode | None


@dataclass(frozen=True, slots=True)
class Rename:
    """A name was changed, with all names below it."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Remove:
    """A name was removed."""

    path: str


BytesChange: TypeAlias = Write | Resize
NameChange: TypeAlias = Create | Rename | Remove
Change: TypeAlias = BytesChange | NameChange
Names: TypeAlias = dict[str, Inode | None]


def change_bytes(content: bytearray, change: BytesChange) -> None:
    """Apply a change to the bytes of a file."""
    if isinstance(change, Resize):
        del content[change.size :]
        content.extend(bytes(change.size - len(content)))
    elif change.data:
        content.extend(bytes(max(0, change.position - len(content))))
        content[change.position : change.position + len(change.data)] = change.data


def change_names(names: Names, change: NameChange) -> None:
    """Apply a change to the names of a disk."""
    match change:
        case Create(path, inode):
            names[path] = inode
        case Remove(path):
            names.pop(path)
        case Rename(source, target):
            for path in [path for path in names if path == source or path.startswith(source + "/")]:
                names[target + path.removeprefix(source)] = names.pop(path)


@dataclass(frozen=True, slots=True)
class Keep:
    """What of the pending changes outlives a crash."""

    name: str
    survivors: Callable[[list[Change]], list[Change]]

    def __str__(self) -> str:
        return self.name


def _torn(fill: Callable[[int], bytes]) -> Callable[[list[Change]], list[Change]]:
    def survivors(pending: list[Change]) -> list[Change]:
        for index in reversed(range(len(pending))):
            change = pending[index]
            if isinstance(change, Write) and change.data:
                torn = replace(change, data=tear(change.data, change.position, fill))
                return [*pending[:index], torn, *pending[index + 1 :]]
        return pending

    return survivors


def tear(data: bytes, position: int, fill: Callable[[int], bytes]) -> bytes:
    """Return what is left of a write: all before its last page, but at least half of it."""
    page_start = (position + len(data) - 1) // PAGE_BYTES * PAGE_BYTES - position
    kept = max(page_start, len(data) // 2)
    return data[:kept] + fill(len(data) - kept)


def garbage(size: int) -> bytes:
    """Return bytes that are neither zero nor text, the same ones every time."""
    return bytes(0x80 | (number * 37 & 0x7F) for number in range(size))


def _zeroed(pending: list[Change]) -> list[Change]:
    return [
        replace(change, data=bytes(len(change.data))) if isinstance(change, Write) else change for change in pending
    ]


# The process was killed, the machine runs on.
EVERYTHING = Keep("everything", lambda pending: pending)
# All others are power cuts. Nothing was written back yet:
SYNCED_ONLY = Keep("synced-only", lambda pending: [])
# Names were written back and bytes were not, or the other way round:
NAMES_ONLY = Keep("names-only", lambda pending: [it for it in pending if not isinstance(it, BytesChange)])
BYTES_ONLY = Keep("bytes-only", lambda pending: [it for it in pending if isinstance(it, BytesChange)])
# Files have their lengths, and zeros where bytes were not synced:
ZEROED = Keep("zeroed", _zeroed)
# All was written back but the end of the last write, which is missing, zeros, or something else:
TORN_SHORT = Keep("torn-short", _torn(lambda size: b""))
TORN_ZEROS = Keep("torn-zeros", _torn(bytes))
TORN_GARBAGE = Keep("torn-garbage", _torn(garbage))

KEEPS = [EVERYTHING, SYNCED_ONLY, NAMES_ONLY, BYTES_ONLY, ZEROED, TORN_SHORT, TORN_ZEROS, TORN_GARBAGE]


def prefix(count: int) -> Keep:
    """Keep the first `count` of the pending changes."""
    return Keep(f"prefix-{count}", lambda pending: pending[:count])


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that operations on paths under a folder or file answer with, once or until healed."""

    operations: tuple[str, ...]
    code: int
    under: str
    after_bytes: int
    once: bool

    def hits(self, operation: str, path: str) -> bool:
        """Tell whether this operation fails."""
        under = path == self.under or path.startswith(self.under.rstrip("/") + "/")
        return under and (not self.operations or operation in self.operations)


class MemoryFile:
    """An open file of a MemoryFiles."""

    def __init__(self, disk: "MemoryFiles", path: str, inode: Inode, *, writable: bool) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._writable = writable
        self._open = True

    def _check(self, *, writing: bool = False) -> None:
        if not self._open or (writing and not self._writable):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`."""
        self._check(writing=True)
        self._disk.write(self._path, self._inode, bytes(data), position)

    def read_at(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        self._check()
        self._disk.look("read", self._path)
        return bytes(self._inode.content[position : position + size])

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position` and return how many bytes there were."""
        data = self.read_at(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def read_cached(self, buffer: memoryview, position: int) -> int:
        """Fill `buffer` from `position`: a disk in memory never makes anybody wait."""
        return self.read_into(buffer, position)

    def send_cached(self, socket: int, size: int, position: int) -> int:
        """Send up to `size` bytes."""
        return os.write(socket, self.read_at(size, position))

    def size(self) -> int:
        """Return the length of the file."""
        self._check()
        self._disk.look("size", self._path)
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        """Cut or extend the file to `size` bytes."""
        self._check(writing=True)
        self._disk.resize("truncate", self._path, self._inode, size)
        self._inode.ahead_end = 0

    def allocate(self, size: int) -> None:
        """Reserve room for `size` bytes and make the file that long; one that is longer stays so."""
        self._check(writing=True)
        if size <= 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
        self._disk.resize("allocate", self._path, self._inode, max(size, len(self._inode.content)))

    def reserve_ahead(self, position: int, size: int) -> bool:
        """Reserve room behind the end of the file; only `has_room_ahead` sees anything of it: it is no step."""
        self._check(writing=True)
        self._inode.ahead_end = position + size
        return True

    def has_room_ahead(self) -> bool:
        """Tell whether there is room behind its end."""
        return self._inode.ahead_end > len(self._inode.content)

    def sync(self) -> None:
        """Return when the bytes written are on the disk."""
        self._check()
        self._disk.sync(self._path, self._inode)

    def close(self) -> None:
        """Let go of the file; it is no change, and a disk that stopped allows it."""
        self._open = False


class MemoryDirectoryLock:
    """A folder that one broker holds."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path: str | None = path

    def release(self) -> None:
        """Let another broker have it."""
        if self._path is not None:
            self._held.discard(self._path)
            self._path = None


class MemoryFiles:
    """A disk in memory. `/` is there; relative paths are relative to it."""

    def __init__(self, *, stop_at_step: int | None = None, stop_torn: bool = False, clock: Clock | None = None) -> None:
        self.stop_at_step = stop_at_step
        self.stop_torn = stop_torn
        self.performed: list[str] = []
        # Called before every step, so that a test can take the disk as a crash at that very moment would leave it.
        self.before_step: Callable[[], None] = lambda: None
        self.pending: list[Change] = []
        self._clock = clock or ManualClock()
        # What `disk_space` tells; a write beyond it does not fail.
        self.capacity_bytes = 1 << 40
        self._names: Names = {"/": None}
        self._durable_names: Names = {"/": None}
        self._faults: list[Fault] = []
        self._locks: set[str] = set()
        # Logs are loaded by several threads.
        self._mutex = threading.RLock()

    @property
    def steps(self) -> int:
        """How many changes were made, or tried, so far."""
        return len(self.performed)

    # What tests do to the disk.

    def fail(
        self, *operations: str, code: int = errno.EIO, under: str = "/", after_bytes: int = 0, once: bool = True
    ) -> None:
        """Let the named operations (none named: all) under a path fail, the next time or until `heal`."""
        self._faults.append(Fault(operations, code, _path(under), after_bytes, once))

    def fail_next_sync(self, code: int = errno.EIO, *, under: str = "/") -> None:
        """Let the next sync of a file fail."""
        self.fail("sync", code=code, under=under)

    def fail_next_write(self, code: int = errno.ENOSPC, *, after_bytes: int = 0, under: str = "/") -> None:
        """Let the next write fail, after some of its bytes were written."""
        self.fail("write", code=code, after_bytes=after_bytes, under=under)

    def fail_directory(self, path: str, code: int = errno.EIO) -> None:
        """Let everything under a folder fail, reads too, until `heal`."""
        self.fail(code=code, under=path, once=False)

    def heal(self) -> None:
        """Take back all faults."""
        self._faults.clear()

    def crash(self, keep: Keep) -> "MemoryFiles":
        """Return the disk that is found after a crash now; this one stays as it is."""
        with self._mutex:
            found = MemoryFiles(clock=self._clock)
            copies: dict[int, Inode] = {}

            def copy(inode: Inode) -> Inode:
                return copies.setdefault(id(inode), Inode(inode.durable, inode.modified_ms))

            for path, inode in self._durable_names.items():
                found._names[path] = found._durable_names[path] = None if inode is None else copy(inode)
            for change in keep.survivors(list(self.pending)):
                if isinstance(change, NameChange) and not (isinstance(change, Create) and change.inode):
                    found._change(change)
                else:
                    assert change.inode is not None
                    found._change(replace(change, inode=copy(change.inode)))
            if keep is not EVERYTHING:
                found.sync_everything()
            return found

    def sync_everything(self) -> None:
        """Make all changes durable, without a step."""
        for change in self.pending:
            self._settle(change)
        self.pending.clear()

    def contents(self) -> dict[str, bytes | None]:
        """Return every path with its bytes, None for a folder."""
        return {path: None if inode is None else bytes(inode.content) for path, inode in sorted(self._names.items())}

    # The operations of a File, which knows its inode.

    def write(self, path: str, inode: Inode, data: bytes, position: int) -> None:
        """Write all of `data`; what a fault or a stop leaves of it is written too."""
        with self._mutex:
            try:
                fault = self._begin("write", path, f"{position}+{len(data)}")
            except DiskStoppedError:
                if self.stop_torn and self.steps == self.stop_at_step:
                    self._change(Write(inode, position, data[: len(data) // 2]))
                raise
            if fault is not None:
                self._change(Write(inode, position, data[: fault.after_bytes]))
                raise _error(fault, path)
            self._change(Write(inode, position, data))

    def resize(self, operation: str, path: str, inode: Inode, size: int) -> None:
        """Change the length of a file."""
        with self._mutex:
            self._step(operation, path, str(size))
            self._change(Resize(inode, size))

    def sync(self, path: str, inode: Inode) -> None:
        """Make the bytes of a file durable."""
        with self._mutex:
            fault = self._begin("sync", path)
            for change in self.pending:
                if fault is None and isinstance(change, BytesChange) and change.inode is inode:
                    self._settle(change)
            self.pending = [it for it in self.pending if not (isinstance(it, BytesChange) and it.inode is inode)]
            if fault is not None:
                raise _error(fault, path)

    def look(self, operation: str, path: str) -> None:
        """Raise what an operation that changes nothing has to raise."""
        if self.stop_at_step is not None and self.steps >= self.stop_at_step:
            raise DiskStoppedError(f"the disk stopped before this: {operation} {path}")
        fault = self._fault(operation, path)
        if fault is not None:
            raise _error(fault, path)

    # The operations of Files.

    def open(self, path: str, *, writable: bool = False) -> MemoryFile:
        """Open a file; one that is opened for writing is created where it does not exist."""
        path = _path(path)
        with self._mutex:
            self.look("open", path)
            if path not in self._names and writable:
                self._folder(os.path.dirname(path))
                self._step("create", path)
                self._change(Create(path, Inode(b"", self._clock.now_ms())))
            inode = self._node(path)
            if inode is None:
                raise _os_error(errno.EISDIR, path)
            return MemoryFile(self, path, inode, writable=writable)

    def map(self, path: str) -> Buffer:
        """Return the content of a file as it is now."""
        file = self.open(path)
        return file.read_at(file.size(), 0)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        return [entry.name for entry in self.entries(path)]

    def entries(self, path: str) -> Iterator[Entry]:
        """Yield the names in a folder."""
        path = _path(path)
        with self._mutex:
            self.look("entries", path)
            self._folder(path)
            found = [name for name in self._names if os.path.dirname(name) == path and name != "/"]
            nodes = [(os.path.basename(name), self._names[name]) for name in found]
        for name, inode in sorted(nodes, key=lambda node: crc32(node[0].encode())):
            yield Entry(name, inode is None, 0 if inode is None else len(inode.content))

    def exists(self, path: str) -> bool:
        """Tell whether there is a file or folder of that name."""
        with self._mutex:
            self.look("exists", _path(path))
            return _path(path) in self._names

    def modified_ms(self, path: str) -> int:
        """Return when a file was last written, by the clock of this disk."""
        with self._mutex:
            self.look("modified_ms", _path(path))
            inode = self._node(_path(path))
            return 0 if inode is None else inode.modified_ms

    def make_directory(self, path: str) -> None:
        """Create a folder and those above it, where they do not exist."""
        path = _path(path)
        with self._mutex:
            self.look("exists", path)
            missing = []
            while path not in self._names:
                missing.append(path)
                path = os.path.dirname(path)
            if self._names[path] is not None:
                raise _os_error(errno.ENOTDIR if missing else errno.EEXIST, path)
            if missing:
                self._step("make_directory", missing[0])
            for path in reversed(missing):
                self._change(Create(path, None))

    def rename(self, source: str, target: str) -> None:
        """Give a file or folder another name; a file of that name is replaced in one step."""
        source, target = _path(source), _path(target)
        with self._mutex:
            self.look("exists", source)
            inode = self._node(source)
            self._folder(os.path.dirname(target))
            if target.startswith(source + "/"):
                raise _os_error(errno.EINVAL, source)
            if target in self._names and target != source:
                self._check_replaceable(inode, target)
            self._step("rename", source, target)
            if target != source:
                self._change(Rename(source, target))

    def _check_replaceable(self, inode: Inode | None, target: str) -> None:
        if inode is not None and self._names[target] is None:
            raise _os_error(errno.EISDIR, target)
        if inode is None and self._names[target] is not None:
            raise _os_error(errno.ENOTDIR, target)
        if inode is None and any(path.startswith(target + "/") for path in self._names):
            raise _os_error(errno.ENOTEMPTY, target)

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        path = _path(path)
        with self._mutex:
            self.look("exists", path)
            if path not in self._names and self._reason_missing(path) == errno.ENOENT:
                return
            if self._node(path) is None:
                raise _os_error(errno.EISDIR, path)
            self._step("remove", path)
            self._change(Remove(path))

    def remove_tree(self, path: str) -> None:
        """Remove a folder with everything in it, the innermost first."""
        path = _path(path)
        with self._mutex:
            self.look("exists", path)
            if path not in self._names and self._reason_missing(path) == errno.ENOENT:
                return
            self._folder(path)
            doomed = sorted((it for it in self._names if it == path or it.startswith(path + "/")), reverse=True)
            try:
                self._step("remove_tree", path)
            except DiskStoppedError:
                for it in doomed[: len(doomed) // 2 if self.stop_torn and self.steps == self.stop_at_step else 0]:
                    self._change(Remove(it))
                raise
            for it in doomed:
                self._change(Remove(it))

    def sync_directory(self, path: str) -> None:
        """Make all names durable."""
        path = _path(path)
        with self._mutex:
            self.look("exists", path)
            self._folder(path)
            self._step("sync_directory", path)
            for change in self.pending:
                if not isinstance(change, BytesChange):
                    self._settle(change)
            self.pending = [change for change in self.pending if isinstance(change, BytesChange)]

    def disk_space(self, path: str) -> tuple[int, int]:
        """Return `capacity_bytes`, and what of it no file has: a file that is open but has no name takes none."""
        with self._mutex:
            self.look("disk_space", _path(path))
            used = sum(len(inode.content) for inode in self._names.values() if inode is not None)
            return self.capacity_bytes, max(0, self.capacity_bytes - used)

    def device(self, path: str) -> int:
        """Return 0: everything is on one disk."""
        return 0

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Let a file be as old as another."""
        with self._mutex:
            inode = self._names.get(_path(path))
            if inode is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode.modified_ms = modified_ms

    def lock_directory(self, path: str) -> MemoryDirectoryLock:
        """Take the folder for this broker, or raise DirectoryLockedError; a crash frees it."""
        path = _path(path)
        with self._mutex:
            self.open(os.path.join(path, LOCK_FILE), writable=True).close()
            if path in self._locks:
                raise DirectoryLockedError(path, "another broker in this process")
            self._locks.add(path)
            return MemoryDirectoryLock(self._locks, path)

    # Within.

    def _begin(self, operation: str, path: str, detail: str = "") -> Fault | None:
        """Count a step, stop at the one at which to stop, and return the fault that hits it."""
        stopped = self.stop_at_step is not None and self.steps >= self.stop_at_step
        if not stopped:
            self.before_step()
            self.performed.append(f"{operation} {path} {detail}".rstrip())
        if self.stop_at_step is not None and self.steps >= self.stop_at_step:
            raise DiskStoppedError(f"step {self.stop_at_step}: {self.performed[-1]}")
        return self._fault(operation, path)

    def _step(self, operation: str, path: str, detail: str = "") -> None:
        fault = self._begin(operation, path, detail)
        if fault is not None:
            raise _error(fault, path)

    def _fault(self, operation: str, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.hits(operation, path):
                if fault.once:
                    self._faults.remove(fault)
                return fault
        return None

    def _change(self, change: Change) -> None:
        """Let a change be seen, and remember that it is not durable."""
        self.pending.append(change)
        if isinstance(change, BytesChange):
            change_bytes(change.inode.content, change)
            change.inode.modified_ms = self._clock.now_ms()
        else:
            change_names(self._names, change)

    def _settle(self, change: Change) -> None:
        if isinstance(change, BytesChange):
            change_bytes(change.inode.durable, change)
        else:
            change_names(self._durable_names, change)

    def _node(self, path: str) -> Inode | None:
        if path not in self._names:
            raise _os_error(self._reason_missing(path), path)
        return self._names[path]

    def _reason_missing(self, path: str) -> int:
        while path not in self._names:
            path = os.path.dirname(path)
        return errno.ENOENT if self._names[path] is None else errno.ENOTDIR

    def _folder(self, path: str) -> None:
        if self._node(path) is not None:
            raise _os_error(errno.ENOTDIR, path)


def _path(path: str) -> str:
    return os.path.normpath(os.path.join("/", path))


def _os_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _error(fault: Fault, path: str) -> OSError:
    return _os_error(fault.code, path)
