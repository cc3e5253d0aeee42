"""Leader epochs: which leader's records start where, so that a follower can find where its log parts from the leader's.

    epoch 0 starts at 0, epoch 3 at 120, epoch 4 at 155, log end 160
    the end of epoch 0 is 120, of epoch 1 also 120 (it wrote nothing), of epoch 3 155, of epoch 4 160

Kept in the text file `leader-epoch-checkpoint`, which is written before the recovery point moves: the batches behind
that point carry their epoch, and say the same after a crash. What is forgotten is written at once: no batch says that.
"""

import os

from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET
from barnabas.storage.checkpoint import LEADER_EPOCH_CHECKPOINT, CheckpointError, read_epochs, write_epochs
from barnabas.storage.files import Files


class LeaderEpochs:
    """The leader epochs of one log, in order of epoch and of start offset."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = os.path.join(directory, LEADER_EPOCH_CHECKPOINT)
        # Invariant: both epochs and start offsets increase from entry to entry.
        self.entries: list[tuple[int, int]] = []
        self._is_durable = True
        # Whether the file has entries at its beginning that were forgotten here.
        self._is_trimmed = False

    def load(self) -> None:
        """Read the file; raises CheckpointError when it is damaged."""
        if self.exist() and self._files.open(self._path).size() == 0:
            # The name was durable before the bytes; nobody writes an empty file.
            raise CheckpointError(self._path, 1, "the file is empty")
        for epoch, start_offset in read_epochs(self._files, self._path):
            self._add(epoch, start_offset)

    def exist(self) -> bool:
        """Tell whether there is a file."""
        return self._files.exists(self._path)

    @property
    def latest(self) -> int:
        """The epoch of the newest records, or -1 when there are none."""
        return self.entries[-1][0] if self.entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that records of `epoch` begin at `start_offset`; what contradicts that is forgotten.

        It is written with the next flush. Until then the batches say it themselves, to whoever recovers the log.
        """
        if epoch < 0 or (self.entries and self.entries[-1][0] == epoch):
            return
        self._add(epoch, start_offset)
        self._is_durable = False

    def _add(self, epoch: int, start_offset: int) -> None:
        while self.entries and (self.entries[-1][0] >= epoch or self.entries[-1][1] >= start_offset):
            self.entries.pop()
        self.entries.append((epoch, start_offset))

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch <= `epoch` and the offset at which it ends, (-1, -1) when that is not known."""
        if epoch < 0 or epoch > self.latest:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        floor = epoch
        for known, start_offset in self.entries:
            if known > epoch:
                return floor, start_offset
            floor = known
        raise AssertionError("an epoch below the latest has one above it")

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs whose records were all cut off at the end."""
        kept = [entry for entry in self.entries if entry[1] < end_offset]
        if len(kept) != len(self.entries):
            self.entries = kept
            self._forgot()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs whose records were all deleted at the start; the one in which it lies now starts there."""
        before = [entry for entry in self.entries if entry[1] <= start_offset]
        if not before or (before[-1][1] == start_offset and len(before) == 1):
            return
        # The file may go on telling of them until the log is closed: whoever loads it forgets them again, and
        # retention, which comes by here for every log with old records, need not wait for the disk.
        self.entries = [(before[-1][0], start_offset), *self.entries[len(before) :]]
        self._is_trimmed = True

    def clear(self) -> None:
        """Forget everything, because the log starts anew."""
        if self.entries:
            self.entries = []
            self._forgot()

    def _forgot(self) -> None:
        self._is_durable = False
        self.flush()

    def flush(self, *, only_new: bool = False) -> None:
        """Return when the entries are on the disk; with `only_new` it may still have older ones than these."""
        if not self._is_durable or (self._is_trimmed and not only_new):
            write_epochs(self._files, self._path, self.entries)
            self._is_durable = True
            self._is_trimmed = False
