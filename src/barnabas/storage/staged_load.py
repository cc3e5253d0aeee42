"""A bulk load on its way into a log: sealed segments in a folder of their own, and a manifest that names them.

    orders-0/                                 the log
      .load-<load id>/                        written by whoever loads; Kafka and our loader leave folders in here alone
        manifest.json                         which of the files count, and in which order: written last, in one step
        <name>.log, .index, .timeindex        a sealed segment whose batches have offsets from 0 on
      .adopting-<load id>/                    the same folder, once a broker has taken it

Segments get into the log by a rename within the file system. What is in their batches and depends on the place in the
log lies outside of the checksums (base offset, leader epoch) and is stamped before; indexes count from the base offset
of their segment and stay as they are.

Rule 1: names come from a manifest, which anybody may have written: a name is one word, so that nothing outside of the
folder can be meant by it.
Rule 2: nothing of a load is believed before `check` has walked over all of it.
Rule 3: `stamp` and `place` can be done again after a crash at any point, and end the same.
"""

import json
import os
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from barnabas.config import LogConfig
from barnabas.model import NO_TIMESTAMP, TopicPartition
from barnabas.records import kernel
from barnabas.records.batch import MAGIC, PREFIX, BatchHeader, CorruptRecordError
from barnabas.records.record import check_body, records_body
from barnabas.storage.batches import CorruptLogError, LogFile, scan_batches, scan_headers
from barnabas.storage.files import Files, FileTooLargeError, read_whole, write_whole
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY, CorruptIndexError, check_length
from barnabas.storage.log import Log
from barnabas.storage.retention import is_out_of_time
from barnabas.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    RELATIVE_OFFSET_MAX,
    TIME_INDEX_SUFFIX,
    segment_file,
)

MANIFEST = "manifest.json"
STAGING_PREFIX = ".load-"
ADOPTING_PREFIX = ".adopting-"
VERSION = 1
SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)
"""In the order of the renames: a segment is there when its data is."""
INDEX_BYTES_MAX = 1 << 30

_LOAD_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class LoadError(Exception):
    """A load can not be adopted; the message is one sentence that names the load or its file."""


class StagedSegment(NamedTuple):
    """One sealed segment of a load."""

    name: str
    size: int
    records: int


class SegmentSizes(NamedTuple):
    """A segment in its place, and the sizes of its files."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPartition:
    """What a load has for one partition."""

    load_id: str
    partition: TopicPartition
    directory: str
    """The folder of the partition's log."""
    segments: tuple[StagedSegment, ...]

    @property
    def records(self) -> int:
        """How many offsets it takes."""
        return sum(segment.records for segment in self.segments)

    def file(self, segment: StagedSegment, suffix: str) -> str:
        """Return where a file of a segment is before it is placed."""
        return os.path.join(adopting_folder(self.directory, self.load_id), segment.name + suffix)

    def placed(self, base_offset: int) -> Iterator[tuple[StagedSegment, int]]:
        """Yield each segment with its base offset, in a log that goes on at `base_offset`."""
        for segment in self.segments:
            yield segment, base_offset
            base_offset += segment.records


def check_load_id(load_id: str) -> None:
    """Raise LoadError for an id that can not be part of a file's name."""
    if _LOAD_ID.fullmatch(load_id) is None:
        raise LoadError(
            f"{load_id[:120]!r} is no load id, which has up to 100 letters, digits, dots, dashes and underscores"
        )


def staging_folder(directory: str, load_id: str) -> str:
    """Return the folder in a partition's folder that a load is written to."""
    return os.path.join(directory, STAGING_PREFIX + load_id)


def adopting_folder(directory: str, load_id: str) -> str:
    """Return the name of the same folder once a broker has taken it, so that nobody else takes it away."""
    return os.path.join(directory, ADOPTING_PREFIX + load_id)


# The manifest.


def write_manifest(files: Files, staged: StagedPartition) -> None:
    """Say which segments count; when this returns it is on the disk."""
    content = {
        "version": VERSION,
        "load_id": staged.load_id,
        "topic": staged.partition.topic,
        "partition": staged.partition.partition,
        "segments": [segment._asdict() for segment in staged.segments],
    }
    path = os.path.join(staging_folder(staged.directory, staged.load_id), MANIFEST)
    write_whole(files, path, json.dumps(content, indent=1).encode())


def claim(files: Files, directory: str, partition: TopicPartition, load_id: str) -> StagedPartition:
    """Take what was staged for a partition, and return what its manifest says; raises LoadError."""
    check_load_id(load_id)
    source, target = staging_folder(directory, load_id), adopting_folder(directory, load_id)
    if files.exists(source):
        if files.exists(target):
            files.remove_tree(target)  # A broker was killed before it decided, and all was written again since.
        files.rename(source, target)
    elif not files.exists(target):
        raise LoadError(f"{source} does not exist: load {load_id} has nothing for {partition}, or not here")
    return StagedPartition(
        load_id=load_id,
        partition=partition,
        directory=directory,
        segments=_read_manifest(files, os.path.join(target, MANIFEST), partition, load_id),
    )


def unclaim(files: Files, directory: str, load_id: str) -> None:
    """Give back what was claimed and is not adopted."""
    source, target = adopting_folder(directory, load_id), staging_folder(directory, load_id)
    if files.exists(source) and not files.exists(target):
        files.rename(source, target)


def _read_manifest(files: Files, path: str, partition: TopicPartition, load_id: str) -> tuple[StagedSegment, ...]:
    try:
        content = json.loads(read_whole(files, path))
    except FileNotFoundError:
        raise LoadError(f"{path} does not exist: the load was not finished") from None
    except (ValueError, FileTooLargeError, RecursionError) as error:
        raise LoadError(f"{path} can not be read: {error}") from None
    expected = (VERSION, load_id, partition.topic, partition.partition)
    if not isinstance(content, dict):
        raise LoadError(f"{path} is no manifest of a load")
    found = tuple(content.get(name) for name in ("version", "load_id", "topic", "partition"))
    if found != expected:
        raise LoadError(f"{path} is that of version, load, topic and partition {found}, not of {expected}")
    segments = read_segments(content.get("segments"), path)
    if not segments:
        raise LoadError(f"{path} names no segment")
    return segments


def read_segments(rows: Any, path: str) -> tuple[StagedSegment, ...]:
    """Read a list of segments that was JSON; raises LoadError with the path where it is not one."""
    segments: list[StagedSegment] = []
    for row in rows if isinstance(rows, list) else [rows]:
        values: tuple[Any, ...] = ()
        if isinstance(row, dict):
            values = tuple(row.get(name) for name in StagedSegment._fields)
        if [type(value) for value in values] != [str, int, int] or not _NAME.fullmatch(values[0]):
            raise LoadError(f"{path} has a segment that is none: {str(row)[:200]}")
        segment = StagedSegment(*values)
        if segment.size < 0 or not 0 < segment.records <= RELATIVE_OFFSET_MAX:
            raise LoadError(f"{path} has a segment of {segment.size} bytes and {segment.records} records")
        segments.append(segment)
    if len({segment.name for segment in segments}) != len(segments):
        raise LoadError(f"{path} names a segment twice")
    return tuple(segments)


# The segments.


def check(
    files: Files, staged: StagedPartition, config: LogConfig, *, check_crcs: bool, now_ms: int | None = None
) -> None:
    """Walk over all segments; raises LoadError where a topic with these settings can not have them.

    When this returns, what was checked is on the disk. With the time it is, records that retention would delete at once
    are refused too.
    """
    topic = staged.partition.topic
    if config.message_timestamp_type == "LogAppendTime":
        raise LoadError(
            f"topic {topic} has message.timestamp.type=LogAppendTime, but records of a load keep their own times: "
            "it is for topics with CreateTime"
        )
    for segment in staged.segments:
        path = staged.file(segment, LOG_SUFFIX)
        try:
            newest_ms = _check_segment(files, staged, segment, config, check_crcs=check_crcs)
        except (CorruptLogError, CorruptIndexError) as error:
            raise LoadError(f"{error.path} can not be adopted: {error.reason} (position {error.position})") from None
        except OSError as error:
            raise LoadError(f"{error.filename or path} can not be adopted: {error.strerror or error}") from None
        if now_ms is not None and newest_ms >= 0 and is_out_of_time(config, newest_ms, now_ms):
            newest = datetime.fromtimestamp(newest_ms // 1000, UTC)
            raise LoadError(
                f"{staged.partition} would lose records at once: a segment's newest is from {newest:%Y-%m-%d}, and "
                f"topic {topic} has retention.ms={config.retention_ms}; set that to -1 or to more before the load"
            )


def _check_segment(
    files: Files, staged: StagedPartition, segment: StagedSegment, config: LogConfig, *, check_crcs: bool
) -> int:
    """Check one segment, and return the time of its newest record."""
    path = staged.file(segment, LOG_SUFFIX)
    file = files.open(path)
    try:
        size = file.size()
        if size != segment.size or size > RELATIVE_OFFSET_MAX:
            raise CorruptLogError(path, size, f"the file has {size} bytes, but the manifest says {segment.size}")
        log = LogFile(file, path, size)
        walk = _Walk(path, config)
        needs_records = config.is_compacted
        if check_crcs or needs_records:
            for position, header, view in scan_batches(log):
                walk.add(position, header)
                if needs_records:
                    _check_keys(path, position, header, view)
        else:
            for position, header in scan_headers(log, 0):
                walk.add(position, header)
        if walk.next_offset != segment.records:
            reason = f"the segment has {walk.next_offset} records, but the manifest says {segment.records}"
            raise CorruptLogError(path, size, reason)
        walk.check_offset_index(*_read_index(files, staged.file(segment, INDEX_SUFFIX), OFFSET_ENTRY))
        walk.check_time_index(*_read_index(files, staged.file(segment, TIME_INDEX_SUFFIX), TIME_ENTRY))
    finally:
        file.close()
    for suffix in SUFFIXES:
        _sync(files, staged.file(segment, suffix))
    return walk.newest_ms


def _read_index(files: Files, path: str, entry: Any) -> tuple[str, list[tuple[int, ...]]]:
    try:
        data = read_whole(files, path, INDEX_BYTES_MAX)
    except FileTooLargeError as error:
        raise CorruptIndexError(path, 0, error.reason) from None
    check_length(path, len(data), entry)
    return path, list(entry.iter_unpack(data))


def _check_keys(path: str, position: int, header: BatchHeader, view: memoryview) -> None:
    """A compacted topic keeps the last record of every key, so that every record must have one."""
    try:
        body = records_body(view, header)
        check_body(body, header, dense=True)
    except CorruptRecordError as error:
        raise CorruptLogError(path, position + error.position, error.reason) from None
    if kernel.check_records(body, header.count, True, header.last_offset_delta)[4]:
        raise CorruptLogError(path, position, "a record has no key, but the topic is compacted")


class _Walk:
    """What was seen of a segment's batches, to hold its indexes against."""

    def __init__(self, path: str, config: LogConfig) -> None:
        self._path = path
        self._config = config
        self._positions: list[int] = []
        self._last_offsets: list[int] = []
        self._max_timestamps: list[int] = []
        self.next_offset = 0

    def add(self, position: int, header: BatchHeader) -> None:
        """Take in a batch; raises CorruptLogError when it is not one that a load may have."""
        reason = None
        # A claim that was given back after an attempt to adopt it has stamped offsets; only their distance counts.
        if header.magic != MAGIC:
            reason = f"the batch has magic {header.magic}, but only {MAGIC} is loaded"
        elif header.producer_id >= 0 or header.is_transactional or header.is_control:
            reason = "the batch is a producer's or a coordinator's, which only they themselves may append"
        elif header.count != header.last_offset_delta + 1:
            reason = f"the batch has {header.count} records for {header.last_offset_delta + 1} offsets"
        elif header.size > self._config.max_message_bytes:
            limit = self._config.max_message_bytes
            reason = f"the batch has {header.size} bytes, but max.message.bytes of the topic is {limit}"
        if reason is not None:
            raise CorruptLogError(self._path, position, reason)
        self.next_offset += header.count
        self._positions.append(position)
        self._last_offsets.append(self.next_offset - 1)
        self._max_timestamps.append(max(self.newest_ms, header.max_timestamp))

    @property
    def newest_ms(self) -> int:
        """The time of the newest record so far."""
        return self._max_timestamps[-1] if self._max_timestamps else NO_TIMESTAMP

    def _slot(self, sorted_values: Sequence[int], value: int) -> int | None:
        slot = bisect_left(sorted_values, value)
        return slot if slot < len(sorted_values) and sorted_values[slot] == value else None

    def check_offset_index(self, path: str, entries: list[tuple[int, ...]]) -> None:
        """Raise CorruptIndexError unless every entry is that of a batch, in order."""
        before = -1
        for number, (offset, position) in enumerate(entries):
            slot = self._slot(self._positions, position)
            if slot is None or self._last_offsets[slot] != offset or offset <= before:
                reason = f"the entry says offset {offset} and position {position}, which no batch has"
                raise CorruptIndexError(path, number * OFFSET_ENTRY.size, reason)
            before = offset

    def check_time_index(self, path: str, entries: list[tuple[int, ...]]) -> None:
        """Raise CorruptIndexError unless every entry tells of the newest record so far, and the last of all."""
        before = NO_TIMESTAMP
        for number, (timestamp, offset) in enumerate(entries):
            slot = self._slot(self._last_offsets, offset)
            if slot is None or self._max_timestamps[slot] != timestamp or timestamp <= before:
                reason = f"the entry says that {timestamp} is the newest time up to offset {offset}, which it is not"
                raise CorruptIndexError(path, number * TIME_ENTRY.size, reason)
            before = timestamp
        if before != self.newest_ms:
            reason = f"the last entry has time {before}, but the newest record has {self.newest_ms}"
            raise CorruptIndexError(path, len(entries) * TIME_ENTRY.size, reason)


def stamp(files: Files, staged: StagedPartition, base_offset: int, leader_epoch: int) -> None:
    """Give every batch that is not placed yet its offset in the log, and the leader's epoch; it is on the disk then."""
    write_stamps(files, staged, base_offset, leader_epoch)
    sync_stamps(files, staged)


def write_stamps(files: Files, staged: StagedPartition, base_offset: int, leader_epoch: int) -> None:
    """Do the first half of `stamp`: what is written may not be on the disk yet."""
    for segment, segment_base_offset in staged.placed(base_offset):
        path = staged.file(segment, LOG_SUFFIX)
        if not files.exists(path):
            continue  # It was placed before a crash, and stamped before that.
        file = files.open(path, writable=True)
        try:
            next_offset = segment_base_offset
            for position, header in scan_headers(LogFile(file, path, segment.size), 0):
                file.write_at(PREFIX.pack(next_offset, header.batch_length, leader_epoch), position)
                next_offset += header.count
        finally:
            file.close()


def sync_stamps(files: Files, staged: StagedPartition) -> None:
    """Do the second half of `stamp`. The system tells whoever opens a file of an error that nobody was told of yet."""
    for segment in staged.segments:
        path = staged.file(segment, LOG_SUFFIX)
        if files.exists(path):
            _sync(files, path)


def _sync(files: Files, path: str) -> None:
    file = files.open(path)
    try:
        file.sync()
    finally:
        file.close()


def place(files: Files, staged: StagedPartition, base_offset: int) -> None:
    """Rename the segments into the log, oldest first; those that are there already stay."""
    for segment, segment_base_offset in staged.placed(base_offset):
        for suffix in SUFFIXES:
            source = staged.file(segment, suffix)
            if files.exists(source):
                files.rename(source, segment_file(staged.directory, segment_base_offset, suffix))


def adopt_into(log: Log, files: Files, staged: StagedPartition, leader_epoch: int) -> None:
    """Place what was stamped for the end of a log, and let the log end behind it."""
    base_offset = log.log_end_offset
    log.roll()
    place(files, staged, base_offset)
    log.adopt(_sizes_of(files, staged, base_offset), base_offset + staged.records, leader_epoch)


def _sizes_of(files: Files, staged: StagedPartition, base_offset: int) -> list[SegmentSizes]:
    """Return the segments as they lie in the log."""
    found = []
    for _, segment_base_offset in staged.placed(base_offset):
        sizes = []
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            file = files.open(segment_file(staged.directory, segment_base_offset, suffix))
            sizes.append(file.size())
            file.close()
        found.append(SegmentSizes(segment_base_offset, *sizes))
    return found


def clear(files: Files, staged: StagedPartition) -> None:
    """Make the renames last, and remove what is left of the load's folder."""
    files.sync_directory(staged.directory)
    files.remove_tree(adopting_folder(staged.directory, staged.load_id))
