"""The checkpoints of log directories: where the logs in each start, are flushed up to, and can be read up to.

Rule 1: a checkpoint never says more than is on the disk. It is lowered before records go, and written again at the
start when loading found less than it says.
Rule 2: of a log that is still loading they say what they said before.
Rule 3: one that could not be written because the disk is full is stale, and is written before anything happens that it
would say something wrong of.
"""

import logging
from collections.abc import Callable, Mapping

from barnabas.model import NO_OFFSET, TopicPartition
from barnabas.storage.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from barnabas.storage.files import PASSING_ERRORS
from barnabas.storage.log import Log
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.log_loading import LoadingLog
from barnabas.storage.log_types import ManagedLog

logger = logging.getLogger(__name__)

CHECKPOINTS: dict[str, Callable[[Log], int]] = {
    RECOVERY_POINT_CHECKPOINT: lambda log: log.recovery_point,
    LOG_START_OFFSET_CHECKPOINT: lambda log: log.log_start_offset,
    HIGH_WATERMARK_CHECKPOINT: lambda log: log.high_watermark.message_offset,
    CLEANER_OFFSET_CHECKPOINT: lambda log: log.first_dirty_offset,
}
"""What each checkpoint tells of a log."""


class LogCheckpoints:
    """Writes the checkpoints of the current logs."""

    def __init__(
        self, current_logs: Mapping[TopicPartition, ManagedLog], loading: Mapping[TopicPartition, LoadingLog]
    ) -> None:
        self._current_logs = current_logs
        self._loading = loading

    def write(
        self,
        directory: LogDirectory,
        name: str,
        lowered: tuple[TopicPartition, int] | None = None,
        *,
        joining: ManagedLog | None = None,
    ) -> None:
        """Write a checkpoint of a folder, with an offset that is to be `lowered` as if it were so already.

        A log that is `joining` is in it before it is in the folder.
        """
        offset_of = CHECKPOINTS[name]
        # Of a log that is still loading it goes on saying what it said.
        offsets = {
            one.partition: one.checkpoints[name]
            for one in self._loading.values()
            if one.directory is directory and name in one.checkpoints
        }
        offsets |= {
            managed.partition: offset_of(managed.log)
            for managed in self._current_logs.values()
            if managed.directory is directory and _is_written(name, managed.log)
        }
        if joining is not None:
            offsets[joining.partition] = offset_of(joining.log)
        if lowered is not None and lowered[0] in offsets:
            offsets[lowered[0]] = min(offsets[lowered[0]], lowered[1])
        directory.write_checkpoint(name, offsets)

    def write_all(self, directory: LogDirectory) -> None:
        """Write every checkpoint of a folder."""
        for name in CHECKPOINTS:
            self.write(directory, name)

    def write_stale(self, directory: LogDirectory) -> None:
        """Write those that say more than is true."""
        for name in sorted(directory.stale):
            self.write(directory, name)

    def lower(self, managed: ManagedLog, offset: int) -> None:
        """Let no checkpoint say anything of the records from `offset` on, before they go."""
        if offset < 0:
            raise ValueError(f"a log can not be cut at offset {offset}")  # A checkpoint that says so can not be read.
        managed.log.recovery_point = min(managed.log.recovery_point, offset)
        # Where the log starts is lowered by the cut itself: without it, deleted records would be seen again.
        names = [RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT]
        if managed.log.first_dirty_offset > offset:
            names.append(CLEANER_OFFSET_CHECKPOINT)
        for name in names:
            self.write(managed.directory, name, (managed.partition, offset))

    def correct(self, directory: LogDirectory, checkpoints: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        """Write those checkpoints again that say more than loading found, before anything is appended.

        What a log reaches later must not be vouched for by what another, or the same before a loss, had reached.
        """
        for name, offsets in checkpoints.items():
            found = {
                m.partition: CHECKPOINTS[name](m.log) for m in self._current_logs.values() if m.directory is directory
            }
            if any(
                offset > found.get(partition, NO_OFFSET)
                for partition, offset in offsets.items()
                if partition not in self._loading
            ):
                directory.stale.add(name)
        try:
            self.write_stale(directory)
        except OSError as error:
            if error.errno not in PASSING_ERRORS:
                raise
            logger.warning("%s can not be written to for now: %s", directory.path, error)
            if RECOVERY_POINT_CHECKPOINT in directory.stale:
                # Without recovery points the next start reads more than it must, with wrong ones less.
                directory.remove_checkpoint(RECOVERY_POINT_CHECKPOINT)


def _is_written(name: str, log: Log) -> bool:
    """Tell whether a log is in a checkpoint: where it starts is known from its first segment as a rule."""
    if name == CLEANER_OFFSET_CHECKPOINT:
        return log.first_dirty_offset != NO_OFFSET
    return name != LOG_START_OFFSET_CHECKPOINT or log.log_start_offset > log.segments.first.base_offset
