"""Words for bulk loads: `stage(files, folder, partition, "one", [[batch_of(3)], [batch_of(2)]])` is two segments."""

from collections.abc import Sequence

from barnabas.model import TopicPartition
from barnabas.records.batch import PREFIX, read_header
from barnabas.storage.files import Files, write_whole
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from barnabas.storage.staged_load import StagedPartition, StagedSegment, staging_folder, write_manifest


def stage(
    files: Files,
    directory: str,
    partition: TopicPartition,
    load_id: str,
    segments: Sequence[Sequence[bytes | bytearray]],
) -> StagedPartition:
    """Write segments of batches beside a log, as whoever loads does it, on any disk."""
    folder = staging_folder(directory, load_id)
    files.make_directory(folder)
    staged = []
    for number, batches in enumerate(segments):
        data, index, newest, next_offset = bytearray(), bytearray(), (-1, 0), 0
        for batch in batches:
            header = read_header(batch)
            last_offset = next_offset + header.last_offset_delta
            if data:
                index += OFFSET_ENTRY.pack(last_offset, len(data))
            stamped = bytearray(batch)
            PREFIX.pack_into(stamped, 0, next_offset, header.batch_length, -1)
            data += stamped
            next_offset = last_offset + 1
            if header.max_timestamp > newest[0]:
                newest = (header.max_timestamp, last_offset)
        for suffix, content in (
            (LOG_SUFFIX, data),
            (INDEX_SUFFIX, index),
            (TIME_INDEX_SUFFIX, TIME_ENTRY.pack(*newest)),
        ):
            write_whole(files, f"{folder}/s{number}{suffix}", content)
        staged.append(StagedSegment(f"s{number}", len(data), next_offset))
    load = StagedPartition(load_id=load_id, partition=partition, directory=directory, segments=tuple(staged))
    write_manifest(files, load)
    return load
