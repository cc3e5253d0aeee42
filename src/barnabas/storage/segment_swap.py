"""Puts a cleaned segment into the place of those that it was made from.

    1. `.cleaned` becomes `.swap`, the data last       from here on the next start would finish what follows
    2. the old segments become `.deleted`
    3. `.swap` loses its suffix, the data first        the log reads the new segment

All of it is renames, on the thread that owns the log, so that nothing comes between. They become durable in this order
(STORAGE.md, what is taken for granted): a power cut before step 1 is done leaves the old segments, one after it leaves
those, or the new one, or the new one and such old ones behind its last offset, whose records are only out of date.

Rule 1: the files of the new segment are on the disk before this begins, and `Log.sync_directory` makes it last.
Rule 2: whoever reads an old segment reads on: its file stays open, and is removed later.
Rule 3: a clean of segments that changed, went, or may have been appended to again is thrown away.
"""

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.storage.files import Files
from barnabas.storage.producer_replay import snapshot_path
from barnabas.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_KINDS,
    SWAP_SUFFIX,
    LogSegment,
    SegmentOptions,
    segment_file,
)
from barnabas.storage.segments import LogSegments

if TYPE_CHECKING:
    from barnabas.storage.log import Log


def are_current(log: "Log", sources: Sequence[LogSegment], sizes: Sequence[int]) -> bool:
    """Tell whether segments are still neighbours in a log, closed, and as long as they were."""
    found = log.segments.from_offset(sources[0].base_offset)[: len(sources)]
    is_same = len(found) == len(sources) and all(one is other for one, other in zip(found, sources, strict=True))
    if log.is_closed or not is_same or sources[-1] is log.segments.last:
        return False
    return all(source.size == size for source, size in zip(sources, sizes, strict=True))


def swap_files(options: SegmentOptions, sources: Sequence[LogSegment], sizes: tuple[int, int, int]) -> LogSegment:
    """Rename everything, and return the new segment; `sizes` are those of its log and its indexes."""
    files, directory, base_offset = options.files, options.directory, sources[0].base_offset
    try:
        for kind in reversed(SEGMENT_KINDS):
            _rename(files, segment_file(directory, base_offset, kind), CLEANED_SUFFIX, SWAP_SUFFIX)
    except OSError:
        # Those first that a start would put in place were there no `.cleaned` any more.
        for suffix in (SWAP_SUFFIX, CLEANED_SUFFIX):
            for kind in SEGMENT_KINDS:
                files.remove(segment_file(directory, base_offset, kind + suffix))
        raise
    try:
        for source in sources:
            source.change_suffix("", DELETED_SUFFIX)
        for kind in SEGMENT_KINDS:
            _rename(files, segment_file(directory, base_offset, kind), SWAP_SUFFIX, "")
    except OSError as error:
        # Half of it is done, and only a start can finish it; nobody may take this for a disk that is full for now.
        raise OSError(errno.EIO, f"a swap in {directory} was interrupted: {error.strerror}") from error
    for source in sources[1:]:
        # The one of the first is that of the new segment. These would be in nobody's way, but stay for ever.
        files.remove(snapshot_path(directory, source.base_offset))
    cleaned = LogSegment(options, base_offset, sources[0].created_ms)
    cleaned.open(*sizes)
    return cleaned


def _rename(files: Files, path: str, old: str, new: str) -> None:
    # Only the transaction index may be missing.
    if path.endswith(SEGMENT_KINDS[:3]) or files.exists(path + old):
        files.rename(path + old, path + new)


def put_in_place(segments: LogSegments, sources: Sequence[LogSegment], cleaned: LogSegment) -> None:
    """Let the list of a log's segments have the new one."""
    for source in sources:
        segments.remove(source)
    segments.add(cleaned)


def remove_cleaned(files: Files, directory: str, base_offsets: Sequence[int]) -> None:
    """Remove what a clean wrote that is not wanted any more."""
    assert SEGMENT_KINDS[0] == LOG_SUFFIX
    for base_offset in base_offsets:
        for kind in SEGMENT_KINDS:
            files.remove(segment_file(directory, base_offset, kind + CLEANED_SUFFIX))
