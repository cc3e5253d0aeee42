"""What is known of a compacted topic: which values writers gave to keys, and whether a reading of it can be right.

Every key has one writer, who gives it the numbers 1, 2, 3 and so on. The number is in a header of the record; from it
follows whether the record is a tombstone, and what its value is, so that no byte has to be remembered.

    writer:   intends(key, number) --> the record is sent --> acknowledged(key, number, offset)
    reader:   begin_pass(start_offset) --> takes(record) ... --> ends()

Rule 1: of every key a pass from some offset on sees its last record that was acknowledged before the pass began and
that lies there, or a later one. A key may be missing only where a tombstone, that last one or a later one, may be gone.
Rule 2: an older record must not come back: whoever sees one sees a newer one too.
Rule 3: offsets ascend, and a record lies where its writer was told, in every pass.
Rule 4: a tombstone may go `delete.retention.ms` after it was cleaned. A pass that takes longer may miss it, and is not
judged by rule 2.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from zlib import crc32

TOMBSTONE_EVERY = 7
REMEMBERED_OFFSETS = 8

Complain = Callable[[str, str], None]
"""Takes the kind of a finding and a sentence."""


def is_tombstone(key: str, number: int) -> bool:
    """Whether a key's record of a number deletes it."""
    return crc32(f"{key} {number}".encode()) % TOMBSTONE_EVERY == 0


def value_of(key: str, number: int) -> bytes | None:
    """The value of a key's record of a number."""
    if is_tombstone(key, number):
        return None
    text = f"{key} {number} ".encode()
    return text + b"." * (crc32(text) % 400)


@dataclass(slots=True)
class _Key:
    """What is known of one key of one partition."""

    intended: int = 0
    tombstone: int = 0
    """The last tombstone that was intended."""
    acknowledged: int = 0
    offset: int = -1
    """Where the acknowledged one is."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Where the last few are, by number."""


class KeyedLedger:
    """The keys of one partition, told by any thread."""

    def __init__(self, name: str, complain: Complain) -> None:
        self.name = name
        self._complain = complain
        self._keys: dict[str, _Key] = {}
        self._mutex = threading.Lock()
        self.end_offset = 0
        """Behind everything that was acknowledged."""

    def intends(self, key: str) -> int:
        """Note that the next record of a key is about to be sent, and return its number."""
        with self._mutex:
            found = self._keys.setdefault(key, _Key())
            found.intended += 1
            if is_tombstone(key, found.intended):
                found.tombstone = found.intended
            return found.intended

    def acknowledged(self, key: str, number: int, offset: int) -> None:
        """Note what a writer was told."""
        with self._mutex:
            found = self._keys[key]
            found.acknowledged, found.offset = number, offset
            found.offsets[number] = offset
            while len(found.offsets) > REMEMBERED_OFFSETS:
                del found.offsets[min(found.offsets)]
            self.end_offset = max(self.end_offset, offset + 1)

    def begin_pass(self, who: str, start_offset: int) -> "Pass":
        """Begin to read from an offset on."""
        with self._mutex:
            due = {key: found.acknowledged for key, found in self._keys.items() if found.offset >= start_offset}
            return Pass(self, who, start_offset, self.end_offset, due)

    def look_up(self, key: str) -> _Key | None:
        """What is known of a key now."""
        with self._mutex:
            found = self._keys.get(key)
            if found is None:
                return None
            return _Key(found.intended, found.tombstone, found.acknowledged, found.offset, dict(found.offsets))

    def complain(self, kind: str, who: str, sentence: str) -> None:
        """Say what may not be."""
        self._complain(kind, f"{who}, {self.name}: {sentence}")


class Pass:
    """One reading of a partition, from an offset to its end at some moment after it was begun."""

    def __init__(self, ledger: KeyedLedger, who: str, start_offset: int, end_offset: int, due: dict[str, int]) -> None:
        self._ledger = ledger
        self._who = who
        self._next_offset = start_offset
        self.end_offset = end_offset
        self._due = due
        self._seen: dict[str, int] = {}
        self.is_over_cleaned = False
        """Whether offsets were missing, because compaction took their records."""

    def takes(self, offset: int, key: str, number: int, value: bytes | None) -> None:
        """Take in one record."""
        where = f"offset {offset} has number {number} of {key}"
        if offset < self._next_offset:
            self._complain("offset-order", f"{where}, after offset {self._next_offset - 1}")
        self.is_over_cleaned = self.is_over_cleaned or offset > self._next_offset
        self._next_offset = offset + 1
        known = self._ledger.look_up(key)
        if known is None or number > known.intended:
            self._complain("unsent", f"{where}, which nobody sent")
            return
        if value != value_of(key, number):
            self._complain("wrong-value", f"{where}, with the value {value!r}")
        told = known.offsets.get(number)
        if told is not None and told != offset:
            self._complain("changed-offset", f"{where}, which was acknowledged at {told}")
        before = self._seen.get(key, 0)
        if number <= before:
            self._complain("key-order", f"{where}, after number {before}")
        self._seen[key] = max(number, before)

    def ends(self, *, is_slow: bool = False) -> None:
        """Compare what was seen with what had to be seen."""
        for key, due in self._due.items():
            seen = self._seen.get(key, 0)
            if seen >= due:
                continue
            known = self._ledger.look_up(key)
            assert known is not None
            may_be_gone = known.tombstone >= due
            if not may_be_gone:
                self._complain("lost-key", f"{key} has number {due}, but only {seen or 'nothing'} was read")
            elif seen and not is_slow:
                sentence = f"{key} was deleted with number {known.tombstone} or earlier, and number {seen} is there"
                self._complain("resurrected", sentence)

    def _complain(self, kind: str, sentence: str) -> None:
        self._ledger.complain(kind, self._who, sentence)
