"""From a log to the job of a clean, and from what the clean made back into the log.

    log_view(log) -> cleanable_part -> PreparedClean -> job ... LogCleaning ... group -> swap(group) -> the log

Everything here runs on the thread that owns the log; only the clean itself, which knows the job alone, runs elsewhere.

Rule 1: a clean of a log that was truncated, closed, lost a segment meanwhile, or is not to be compacted any more is
thrown away: StaleCleanError.
"""

from dataclasses import dataclass

from barnabas.model import NO_OFFSET
from barnabas.storage.cleaner.choice import Cleanable, LogView
from barnabas.storage.cleaner.job import ActiveProducer, CleanedGroup, CleaningJob, SourceSegment
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.storage.log import Log
from barnabas.storage.segment import LogSegment
from barnabas.storage.segment_swap import are_current


class StaleCleanError(Exception):
    """The log is not any more what was cleaned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerLimits:
    """What the cleaner may use, by the settings `log.cleaner.*`."""

    dedupe_buffer_size: int = 128 << 20
    io_buffer_size: int = 512 << 10
    load_factor: float = 0.9
    bytes_per_second_max: float = float("inf")


def log_view(log: Log) -> LogView:
    """Return what the choice needs to know of a log."""
    return LogView(
        segments=list(log.segments),
        log_start_offset=log.log_start_offset,
        last_stable_offset=log.last_stable.message_offset,
        recovery_point=log.recovery_point,
        first_dirty_offset=log.first_dirty_offset,
        config=log.config,
    )


def active_producers(log: Log) -> tuple[ActiveProducer, ...]:
    """Return what of each remembered producer has to stay in the log."""
    return tuple(
        ActiveProducer(
            entry.producer_id,
            entry.epoch,
            entry.batches[-1].last_offset if entry.batches else NO_OFFSET,
            entry.coordinator_epoch,
            entry.last_timestamp,
        )
        for entry in log.producers.producers.values()
    )


class PreparedClean:
    """A clean of a log: its job, and the way of its results into the log."""

    def __init__(self, log: Log, part: Cleanable, limits: CleanerLimits, now_ms: int) -> None:
        self.log = log
        self._sources = {segment.base_offset: segment for segment in list(log.segments)[: part.segment_count]}
        self._truncations = log.truncations
        config = log.config
        sources = tuple(
            SourceSegment(
                segment.base_offset,
                segment.size,
                segment.offset_index.entry_count * OFFSET_ENTRY.size,
                segment.time_index.entry_count * TIME_ENTRY.size,
            )
            for segment in self._sources.values()
        )
        self._sizes = {source.base_offset: source.size for source in sources}
        self.job = CleaningJob(
            directory=log.directory,
            segments=sources,
            end_offset=part.end_offset,
            first_dirty_offset=part.first_dirty_offset,
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            decompressed_bytes_max=config.decompressed_bytes_max,
            dedupe_buffer_size=limits.dedupe_buffer_size,
            io_buffer_size=limits.io_buffer_size,
            load_factor=limits.load_factor,
            bytes_per_second_max=limits.bytes_per_second_max,
            aborted=tuple(log.aborted_transactions(sources[0].base_offset, part.end_offset)),
            producers=active_producers(log),
        )

    def check_current(self) -> None:
        """Raise StaleCleanError when nothing more can come of this clean."""
        if self.log.is_closed:
            raise StaleCleanError(f"{self.log.directory} was closed, deleted or lost while it was cleaned")
        if self.log.truncations != self._truncations:
            raise StaleCleanError(f"{self.log.directory} was truncated while it was cleaned")
        if not self.log.config.is_compacted:
            raise StaleCleanError(f"{self.log.directory} is not to be compacted any more")
        if any(source.is_leaving for source in self._sources.values()):
            raise StaleCleanError(f"segments of {self.log.directory} were deleted while they were cleaned")

    def swap(self, group: CleanedGroup) -> list[LogSegment]:
        """Put a group into the log, and return the segments that it replaces; their files are still to be removed.

        `Log.sync_directory` makes it last. Raises StaleCleanError, or OSError from the disk, which has failed then.
        """
        self.check_current()
        sources = [self._sources[base_offset] for base_offset in group.base_offsets]
        if not are_current(self.log, sources, [self._sizes[base_offset] for base_offset in group.base_offsets]):
            raise StaleCleanError(f"segments of {self.log.directory} were deleted while they were cleaned")
        if not group.is_changed:
            return []
        self.log.replace_segments(sources, (group.size, group.index_bytes, group.time_index_bytes))
        return sources

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets of all segments that the clean may write files for."""
        return list(self._sources)
