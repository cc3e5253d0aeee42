"""What a log is made from, and what its calls return; the log itself is in log.py."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from barnabas.clock import Clock
from barnabas.config import LogConfig
from barnabas.model import NO_OFFSET, TopicPartition
from barnabas.storage.files import Files
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_directory import LogDirectory
from barnabas.storage.producers import ProducerStateManager
from barnabas.storage.segment import ActiveSegment, LogSegment, OpenSegments, SegmentOptions
from barnabas.storage.segments import LogSegments

if TYPE_CHECKING:
    from barnabas.storage.log import Log


class LogAppendInfo(NamedTuple):
    """What an append did."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    log_start_offset: int
    size_bytes: int
    record_count: int
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What a log needs from outside."""

    files: Files
    clock: Clock
    directory: str
    config: LogConfig
    open_segments: OpenSegments
    on_flush_due: "Callable[[Log], None] | None" = None
    """Called when `flush.messages` is reached; without it the append flushes by itself."""
    on_roll: "Callable[[Log], None] | None" = None
    """Called after a roll, so that the sealed segment is flushed in the background."""

    def segment_options(self) -> SegmentOptions:
        """Return what its segments need."""
        return SegmentOptions(
            self.files,
            self.directory,
            self.open_segments,
            self.config.segment_index_bytes,
            self.config.decompressed_bytes_max,
        )


@dataclass(slots=True, kw_only=True)
class LogState:
    """What loading found on the disk, and a log starts from."""

    segments: LogSegments
    log_start_offset: int
    recovery_point: int
    log_end_offset: int
    leader_epochs: LeaderEpochs
    producers: ProducerStateManager
    first_dirty_offset: int = NO_OFFSET
    is_changed: bool
    """Whether files had to be made or mended, and have to be written before a clean shutdown."""


class PendingFlush(NamedTuple):
    """The part of a flush that waits for the disk; it may run on any thread, while the log goes on."""

    log: "Log"
    end_offset: int
    sealed: list[LogSegment]
    active: ActiveSegment
    name_changes: int
    truncations: int

    def run(self) -> None:
        """Return when everything below `end_offset` is on the disk that was not cut off or deleted in between."""
        for segment in self.sealed:
            if not segment.is_leaving:
                self._flush(segment)
        self.active.sync()
        if self.name_changes:
            self.log.sync_directory()

    def _flush(self, segment: LogSegment) -> None:
        try:
            segment.flush()
        except FileNotFoundError:
            if not segment.is_deleted and not segment.is_leaving:
                raise
        if segment.is_deleted and self.log.truncations == self.truncations:
            self.log.leaving.remove_again(segment)  # It went meanwhile, and a flush makes indexes that are missing.


@dataclass(slots=True)
class ManagedLog:
    """A log, where it is and whose it is."""

    log: "Log"
    directory: LogDirectory
    partition: TopicPartition
    topic_id: UUID | None
