"""OffsetMap: the last offset of every key in the dirty part of a log, in a block of memory of fixed size.

Rule 1: the memory is what `log.cleaner.dedupe.buffer.size` allows, 24 bytes a key and some room to search in; a log
with more keys is cleaned in several rounds.
Rule 2: keys are known by 128 bits of hash, seeded anew for every map.
"""

import mmap
import os

from barnabas.records import compaction
from barnabas.records.batch import CorruptRecordError
from barnabas.records.kernel import FAULTS

SLOTS_MIN = 8


class OffsetMap:
    """From keys to offsets, until it is full."""

    def __init__(self, size_bytes: int, load_factor: float) -> None:
        slots = max(SLOTS_MIN, size_bytes // compaction.SLOT_BYTES)
        # Pages of such memory come into being when they are first written to: a small log takes few of them.
        memory = mmap.mmap(-1, slots * compaction.SLOT_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # A search touches one place in all of it: with large pages the processor finds it sooner.
        memory.madvise(mmap.MADV_HUGEPAGE)
        self.table = memoryview(memory).cast("Q")
        self._hashes = memoryview(bytearray(0)).cast("Q")
        self.seeds = (int.from_bytes(os.urandom(8), "big"), int.from_bytes(os.urandom(8), "big"))
        self.limit = max(1, min(slots - 1, int(slots * load_factor)))
        self.count = 0

    def hashes(self, count: int) -> memoryview:
        """Return room for the hashes of so many keys, which is used again and again."""
        if len(self._hashes) < 3 * count + 1:
            self._hashes = memoryview(bytearray(8 * (3 * count + 1))).cast("Q")
        return self._hashes

    def put_records(self, body: memoryview, count: int, base_offset: int, start_offset: int) -> int | None:
        """Take in the keys of a batch from an offset on; return the offset that found no room, or None."""
        fault, self.count, full_at = compaction.put_keys(
            self.table,
            self.seeds,
            self.count,
            self.limit,
            self.hashes(min(count, len(body))),
            body,
            count,
            base_offset,
            start_offset,
        )
        if fault:
            raise CorruptRecordError(f"A record {FAULTS[fault]}.", 0)
        return None if full_at < 0 else full_at

    def put(self, key: bytes, offset: int) -> bool:
        """Take in one key; False when it found no room."""
        count = compaction.put_key(self.table, self.seeds, self.count, self.limit, key, offset)
        if count < 0:
            return False
        self.count = count
        return True

    def find(self, key: bytes) -> int:
        """Return the last offset of a key, or -1."""
        return compaction.find_key(self.table, self.seeds, key)
