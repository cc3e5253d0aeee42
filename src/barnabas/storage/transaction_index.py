"""TransactionIndex: the transactions that were aborted in a segment, for readers that see committed records only.

The file exists only where transactions aborted. Entries are appended in the order in which the transactions ended, so
their last offsets increase.

    0      2              10             18             26             34
    | ver- | producer id  | first offset | last offset  | last stable  |
    | sion |              |              |              | offset       |
"""

import contextlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from barnabas.storage.files import Files, FileTooLargeError, read_whole
from barnabas.storage.index import CorruptIndexError, check_length

ABORTED_ENTRY = Struct(">hqqqq")
assert ABORTED_ENTRY.size == 34
VERSION = 0
# A segment has at most 2**31 bytes, and an aborted transaction takes 78 of them for its marker alone.
FILE_BYTES_MAX = 2**31 // 78 * ABORTED_ENTRY.size


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its records lie from first to last offset, the last being its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    """Every transaction that started below it had ended when this one was aborted."""


class TransactionIndex:
    """The aborted transactions of one segment."""

    __slots__ = ("_entries", "_files", "_is_absent", "base_offset", "path")

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        self._files = files
        self.path = path
        self.base_offset = base_offset
        # Aborts are rare, so all entries are kept once they were read; None is "not read yet".
        self._entries: list[AbortedTransaction] | None = None
        # Whether there is no file for sure, so that nobody need ask the disk for it.
        self._is_absent = False

    def begin(self) -> None:
        """Note that the segment is a new one, which has no file."""
        self._entries = []
        self._is_absent = True

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries; raises CorruptIndexError when the file is damaged."""
        if self._entries is None:
            self._entries = list(decode_aborted(self._read(), self.path, self.base_offset))
        return self._entries

    def _read(self) -> bytes:
        if not self._files.exists(self.path):
            return b""
        try:
            return read_whole(self._files, self.path, FILE_BYTES_MAX)
        except FileTooLargeError as error:
            raise CorruptIndexError(self.path, 0, error.reason) from None

    def append(self, aborted: AbortedTransaction) -> None:
        """Add a transaction that ended after all others."""
        entries = self.entries()
        assert not entries or aborted.last_offset > entries[-1].last_offset
        self._is_absent = False
        file = self._files.open(self.path, writable=True)
        try:
            file.write_at(ABORTED_ENTRY.pack(VERSION, *aborted), len(entries) * ABORTED_ENTRY.size)
        finally:
            file.close()
        entries.append(aborted)

    def collect(self, start_offset: int, end_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions that touch a range, and whether later segments can hold no more of them."""
        found = []
        for aborted in self.entries():
            if aborted.last_offset >= start_offset and aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Keep the transactions that ended below `offset`."""
        kept = [aborted for aborted in self.entries() if aborted.last_offset < offset]
        if len(kept) == len(self.entries()):
            return
        file = self._files.open(self.path, writable=True)
        try:
            file.truncate(len(kept) * ABORTED_ENTRY.size)
        finally:
            file.close()
        self._entries = kept

    def reset(self) -> None:
        """Remove the file, before the log is walked again and its aborts are added anew."""
        self._files.remove(self.path)
        self._entries = []

    def flush(self) -> None:
        """Return when the entries are on the disk."""
        if self._files.exists(self.path):
            file = self._files.open(self.path, writable=True)
            try:
                file.sync()
            finally:
                file.close()

    def rename(self, path: str) -> None:
        """Give the file another name, where there is one."""
        if not self._is_absent:
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Remove the file."""
        self._files.remove(self.path)


def decode_aborted(data: bytes, path: str, base_offset: int) -> Iterator[AbortedTransaction]:
    """Yield the entries of a file; raises CorruptIndexError where they can not be right."""
    last_offset = base_offset - 1
    whole = len(data) - len(data) % ABORTED_ENTRY.size
    for slot, (version, *numbers) in enumerate(ABORTED_ENTRY.iter_unpack(data[:whole])):
        position = slot * ABORTED_ENTRY.size
        if version != VERSION:
            raise CorruptIndexError(path, position, f"the entry has version {version}, but only {VERSION} is known")
        aborted = AbortedTransaction(*numbers)
        if aborted.last_offset <= last_offset:
            reason = f"the entry's last offset {aborted.last_offset} does not lie after {last_offset}"
            raise CorruptIndexError(path, position, reason)
        if not 0 <= aborted.first_offset <= aborted.last_offset:
            reason = f"the entry says offsets {aborted.first_offset} to {aborted.last_offset}, which is no range"
            raise CorruptIndexError(path, position, reason)
        last_offset = aborted.last_offset
        yield aborted
    check_length(path, len(data), ABORTED_ENTRY)
