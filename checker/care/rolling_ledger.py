"""What is known of a topic whose old records are deleted: which records must still be there, and which may be gone.

    writer:   acknowledged(offset, size, created_ms)
    remover:  asks_to_delete(offset) --> deleted(low_watermark)          DeleteRecords
    reader:   told_start(log_start_offset, now_ms), takes(position, offsets)

Rule 1: retention by size leaves at least `retention.bytes`, because it takes whole segments and only while what is left
is that much. How much a record takes on the disk is not known here; OVERHEAD_BYTES is more than it can be.
Rule 2: retention by time takes a segment when its newest record is older than `retention.ms`.
Rule 3: what DeleteRecords was asked to delete may be gone, and what it was said to have deleted is gone for good.
Rule 4: between the start and the end there is a record at every offset.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

OVERHEAD_BYTES = 200
"""The most that a record has on the disk beside its value: the header of its batch, its own, key and headers."""
VALUE_BYTES_MAX = 1000
"""No value is larger; so much is assumed of one whose acknowledgement is still on its way."""
CLOCK_MS = 50
"""The broker's clock is the same, but it looks at it a little earlier or later."""

Complain = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a topic is allowed to lose; None: nothing by that rule."""

    size_bytes: int | None = None
    age_ms: int | None = None


@dataclass(slots=True)
class _Kept:
    """What is known of the records that may be there, by offset."""

    sizes: dict[int, int] = field(default_factory=dict)
    created_ms: dict[int, int] = field(default_factory=dict)


class RollingLedger:
    """The records of one partition, told by any thread."""

    def __init__(self, name: str, retention: Retention, complain: Complain) -> None:
        self.name = name
        self._retention = retention
        self._complain = complain
        self._mutex = threading.Lock()
        self._kept = _Kept()
        self._asked_to_delete = 0
        self._deleted = 0
        self.end_offset = 0
        """Behind everything that was acknowledged."""
        self.start_offset = 0
        """The largest start that anybody was told of."""

    @property
    def deleted(self) -> int:
        """Below this everything is gone for good, as DeleteRecords was answered."""
        return self._deleted

    def acknowledged(self, offset: int, size: int, created_ms: int) -> None:
        """Note what a writer was told."""
        with self._mutex:
            self._kept.sizes[offset] = size
            self._kept.created_ms[offset] = created_ms
            self.end_offset = max(self.end_offset, offset + 1)

    def asks_to_delete(self, offset: int) -> None:
        """Note that records below an offset are about to be deleted."""
        with self._mutex:
            self._asked_to_delete = max(self._asked_to_delete, offset)

    def deleted_up_to(self, low_watermark: int) -> None:
        """Note that they are."""
        with self._mutex:
            self._deleted = max(self._deleted, low_watermark)

    def told_start(self, who: str, log_start_offset: int, deleted_before: int, end_offset: int, now_ms: int) -> bool:
        """Judge where the log starts, as a reader was told just now; tells whether retention has moved it.

        Args:
            who: The reader.
            log_start_offset: What it was told.
            deleted_before: What was deleted for good when it asked.
            end_offset: The end of the log, as it was told.
            now_ms: The time when it was told.
        """
        with self._mutex:
            sentences = []
            if log_start_offset < deleted_before:
                sentence = f"the log starts at {log_start_offset}, but records below {deleted_before} were deleted"
                sentences.append(("deleted-is-back", sentence))
            is_moved = log_start_offset > max(self._asked_to_delete, self.start_offset)
            if is_moved:
                sentences += self._too_much(log_start_offset, end_offset, now_ms)
            if log_start_offset > self.start_offset:
                self._forget_before(log_start_offset)
        for kind, sentence in sentences:
            self._complain(kind, f"{who}, {self.name}: {sentence}")
        return is_moved

    def _too_much(self, start: int, end: int, now_ms: int) -> list[tuple[str, str]]:
        found = []
        size, age = self._retention.size_bytes, self._retention.age_ms
        if size is not None:
            left = sum(self._kept.sizes.get(offset, VALUE_BYTES_MAX) + OVERHEAD_BYTES for offset in range(start, end))
            if left < size:
                sentence = f"the log starts at {start} and ends at {end}: at most {left} bytes are left of {size}"
                found.append(("deleted-too-much", sentence))
        newest = max((at for offset, at in self._kept.created_ms.items() if offset < start), default=None)
        if age is not None and newest is not None and now_ms - newest < age - CLOCK_MS:
            sentence = f"the log starts at {start}, but a record below is {now_ms - newest} ms old, not {age}"
            found.append(("deleted-too-early", sentence))
        if size is None and age is None:
            found.append(("deleted-too-much", f"the log starts at {start}, and nobody was to delete anything"))
        return found

    def _forget_before(self, start: int) -> None:
        self.start_offset = start
        for table in (self._kept.sizes, self._kept.created_ms):
            for offset in [offset for offset in table if offset < start]:
                del table[offset]

    def takes(self, who: str, position: int, log_start_offset: int, offsets: Sequence[int]) -> None:
        """Judge what a reader was given that had asked for the records from `position` on."""
        if offsets and min(offsets) < log_start_offset:
            sentence = f"offset {min(offsets)} was given, but the log starts at {log_start_offset}"
            self._complain("below-start", f"{who}, {self.name}: {sentence}")
        expected = list(range(position, position + len(offsets)))
        if list(offsets) != expected:
            wrong, right = next(pair for pair in zip(offsets, expected, strict=True) if pair[0] != pair[1])
            sentence = f"offset {wrong} was given where {right} comes next (from {position} on)"
            self._complain("gap", f"{who}, {self.name}: {sentence}")
