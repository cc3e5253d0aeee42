"""A file of fixed-size, sorted entries: the part that the offset index and the time index have in common.

    entry 0 | entry 1 | ... | entry n-1            every entry `entry.size` bytes, nothing before, between or after

An index is a cache of its log that can be made again at any time. So it carries no checksum, is never synced for its
own sake, and new entries may wait in memory: the newest are kept in `_tail` and written in blocks, the older ones are
mapped when a search first needs them. After a crash the entries of the active segment are made anew from the log.

      mapped when needed                 in memory, the newest of it not yet in the file
    | 0 ............. _tail_slot-1 |    | _tail_slot ...... _written-1 | _written ..... count-1 |

Rule 1: the file is never longer than its entries; it is written by `write_at`, never through a map, because a store
into the map of a full disk kills the process. Recovery on a full disk keeps in memory what finds no room.
Rule 2: searches look at the warm section first, the last 8,192 bytes of entries, where almost all of them end: a
consumer reads near the end, and touching pages of the middle for it would read them from the disk.
"""

import errno
from struct import Struct

from barnabas.storage.files import Buffer, Files

WARM_SECTION_BYTES = 8192


class IndexFullError(Exception):
    """The index has as many entries as `segment.index.bytes` allows; the segment must be rolled first."""


class IndexFile:
    """Sorted entries of one size, appended at the end and searched by their key."""

    __slots__ = (
        "_file_end",
        "_files",
        "_map",
        "_tail",
        "_tail_slot",
        "_written",
        "count",
        "count_max",
        "entry",
        "is_lenient",
        "key",
        "path",
    )

    def __init__(self, files: Files, path: str, entry: Struct, key: Struct) -> None:
        self._files = files
        self.path = path
        self.entry = entry
        # The sorted field that searches compare, which stands at the start of an entry.
        self.key = key
        self.count = 0
        self.count_max = 0
        self._map: Buffer | None = None
        self._tail = bytearray()
        self._tail_slot = 0
        self._written = 0
        # Invariant: the file has no byte past this slot. It lies past `_written` after a write that failed halfway.
        self._file_end = 0
        self.is_lenient = False
        """Whether entries that find no room on the disk may stay in memory: while the index is made anew."""

    def open(self, size_bytes: int, size_bytes_max: int) -> None:
        """Take over the entries of the file that is there, `size_bytes` long."""
        self.resize(size_bytes_max)
        self.count = self._tail_slot = self._written = self._file_end = size_bytes // self.entry.size
        self._tail.clear()
        self._map = None

    def resize(self, size_bytes_max: int) -> None:
        """Change how many entries fit; those that are there stay."""
        self.count_max = size_bytes_max // self.entry.size

    def append(self, entry: bytes) -> None:
        """Add an entry that sorts after all others."""
        if self.count >= self.count_max:
            raise IndexFullError(f"{self.path} is full with {self.count} entries")
        self._tail += entry
        self.count += 1
        if len(self._tail) >= 2 * WARM_SECTION_BYTES:
            self._write_block()

    def extend(self, entries: bytes | bytearray) -> None:
        """Add entries that sort after all others, and after each other; there must be room for them."""
        self._tail += entries
        self.count += len(entries) // self.entry.size
        assert self.count <= self.count_max, f"{self.path} has more entries than fit"
        if len(self._tail) >= 2 * WARM_SECTION_BYTES:
            self._write_block()

    def _write_block(self) -> None:
        try:
            self.write_out()
        except OSError as error:
            if not self.is_lenient or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        else:
            self._trim_tail()

    def _trim_tail(self) -> None:
        keep = WARM_SECTION_BYTES // self.entry.size
        drop = len(self._tail) // self.entry.size - keep
        del self._tail[: drop * self.entry.size]
        self._tail_slot += drop
        self._map = None  # It ends before the entries that were just dropped from memory.

    def write_out(self, *, sync: bool = False) -> None:
        """Put the entries that wait in memory into the file, and create it if it is not there yet."""
        file = self._files.open(self.path, writable=True)
        try:
            waiting = self._tail[(self._written - self._tail_slot) * self.entry.size :]
            if waiting:
                self._file_end = self.count
                file.write_at(waiting, self._written * self.entry.size)
            if sync:
                file.sync()
        finally:
            file.close()
        self._written = self.count

    def at(self, slot: int) -> tuple[int, ...]:
        """Return the fields of one entry."""
        if slot >= self._tail_slot:
            return self.entry.unpack_from(self._tail, (slot - self._tail_slot) * self.entry.size)
        return self.entry.unpack_from(self._mapped(), slot * self.entry.size)

    def _mapped(self) -> Buffer:
        mapped = self._map
        if mapped is None:
            mapped = self._map = self._files.map(self.path)
        return mapped

    def content(self) -> bytes:
        """Return all entries, those too that wait in memory."""
        before = bytes(self._mapped()[: self._tail_slot * self.entry.size]) if self._tail_slot else b""
        return before + bytes(self._tail)

    def release(self) -> None:
        """Give back the map; the next search that needs it maps the file again."""
        self._map = None

    def last_at_most(self, target: int) -> int:
        """Return the slot of the last entry whose key is <= `target`, or -1."""
        if self._tail and self.key.unpack_from(self._tail)[0] <= target:
            return self._tail_slot + self._search(self._tail, target, 0, self.count - self._tail_slot)
        end = self._tail_slot
        if end == 0:
            return -1
        mapped = self._mapped()
        warm = max(0, end - WARM_SECTION_BYTES // self.entry.size)
        if self.key.unpack_from(mapped, warm * self.entry.size)[0] <= target:
            return self._search(mapped, target, warm, end)
        return self._search(mapped, target, 0, warm)

    def _search(self, buffer: Buffer, target: int, low: int, high: int) -> int:
        # Invariant: every slot below `low` has a key <= target, every slot from `high` on has a larger one.
        unpack, size = self.key.unpack_from, self.entry.size
        while low < high:
            middle = (low + high) >> 1
            if unpack(buffer, middle * size)[0] <= target:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= self.count:
            return
        if count < self._file_end:
            file = self._files.open(self.path, writable=True)
            try:
                file.truncate(count * self.entry.size)
            finally:
                file.close()
            self._file_end = count
            self._written = min(self._written, count)
        del self._tail[max(0, count - self._tail_slot) * self.entry.size :]
        self._tail_slot = min(self._tail_slot, count)
        self.count = count
        # A map of a file that was cut faults when it is read past the new end.
        self._map = None

    def rename(self, path: str) -> None:
        """Give the file another name, in one step."""
        if self._written != self.count:
            self.write_out()
        try:
            self._files.rename(self.path, path)
        except FileNotFoundError:
            self.write_out()
            self._files.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Remove the file."""
        self._map = None
        self._files.remove(self.path)

    def close(self) -> None:
        """Write what waits in memory; the entries stay readable from the file."""
        if self._written != self.count or not self._files.exists(self.path):
            try:
                self.write_out()
            except OSError as error:
                if not self.is_lenient or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
        self._map = None

    def cut_zero_tail(self) -> None:
        """Drop the zeros that Kafka leaves after a crash, because it allocates its index files in full."""
        zero = bytes(self.entry.size)
        count = self.count
        # A single entry of zeros may be a true one: the first offset, at the beginning of time.
        if count < 2 or self.entry.pack(*self.at(count - 1)) != zero:
            return
        low, high = 0, count - 1
        # Entries that are not zero are sorted before those that are, so the border can be searched for.
        while low < high:
            middle = (low + high) >> 1
            if self.entry.pack(*self.at(middle)) == zero:
                high = middle
            else:
                low = middle + 1
        self.truncate(low)
