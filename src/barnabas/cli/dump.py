"""`barnabas dump FILE...`: what is in the files of a log directory, one line an entry, as text or as JSON.

The kind of a file is told by its name; the endings that a broker adds while it deletes or replaces files (`.deleted`,
`.cleaned`, `.swap`) are looked through. Nothing is changed, and a damaged file is shown up to the damage.
"""

import argparse
import base64
import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from struct import Struct
from typing import Any

from barnabas.records.batch import CODEC_MASK, MAGIC, BatchHeader, CorruptRecordError
from barnabas.records.builder import MARKER_KEY, read_marker
from barnabas.records.codecs import Codec
from barnabas.records.record import DECOMPRESSED_BYTES_MAX, Record
from barnabas.storage.batches import CorruptLogError, LogFile, records_of, scan_batches
from barnabas.storage.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    CheckpointError,
    encode_topic_id,
    iterate_epochs,
    iterate_offsets,
    iterate_properties,
    read_partition_metadata,
)
from barnabas.storage.files import Files, FileTooLargeError, OsFiles, read_whole
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY, CorruptIndexError, check_length
from barnabas.storage.producer_replay import SNAPSHOT_BYTES_MAX
from barnabas.storage.producers import CorruptSnapshotError, decode_snapshot
from barnabas.storage.transaction_index import decode_aborted
from barnabas.storage.verifier import INDEX_BYTES_MAX

Row = dict[str, Any]


class RecordRow(Row):
    """A record, which belongs to the batch before it."""


PASSING_SUFFIXES = (".deleted", ".cleaned", ".swap")
# The types of the control records that end a transaction, abort and commit. Kafka's own metadata log has others.
MARKER_TYPES = (0, 1)

DESCRIPTION = "Show what is in a segment (.log), an index, a snapshot, a checkpoint or a metadata file."
EXAMPLES = """\
examples:
  barnabas dump data/orders-0/00000000000000000000.log            the batches of a segment
  barnabas dump --records data/orders-0/00000000000000000000.log  and every record in them
  barnabas dump data/orders-0/*.index data/orders-0/*.timeindex   where offsets and times are found
  barnabas dump --json data/recovery-point-offset-checkpoint      one JSON object an entry
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = DESCRIPTION
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file of a log directory")
    parser.add_argument("--records", action="store_true", help="for .log files, show every record as well")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def run(arguments: argparse.Namespace) -> int:
    """Print every file; the exit code is 1 when one of them is missing or damaged."""
    files = OsFiles()
    complaints = 0
    for path in arguments.files:
        if not arguments.json:
            print(path)
        row: Row | str | None = None
        for row in _until_damage(rows_of(files, path, with_records=arguments.records), path):
            if isinstance(row, str):
                complaints += 1
                sys.stdout.flush()
                print(f"barnabas dump: {row}", file=sys.stderr)
            else:
                print(json.dumps({"file": path, **row}) if arguments.json else as_text(row))
        if row is None and not arguments.json:
            print("  (nothing)")
    return 1 if complaints else 0


def _until_damage(rows: Iterator[Row], path: str) -> Iterator[Row | str]:
    """Yield the rows, and at the end the sentence that says why there are no more, where that is not the file's end.

    Only reading is guarded here: an error of the output is not one of the file.
    """
    try:
        yield from rows
    except (CorruptLogError, CorruptIndexError, CheckpointError, FileTooLargeError) as error:
        yield str(error)
    except CorruptSnapshotError as error:
        yield f"{path}, position 0: {error}"
    except UnknownFileError as error:
        yield f"{path}: {error}"
    except OSError as error:
        yield f"{path}: {error.strerror}"


class UnknownFileError(Exception):
    """The name of a file does not say what is in it."""


def rows_of(files: Files, path: str, *, with_records: bool) -> Iterator[Row]:
    """Yield the entries of a file, whatever kind it is of."""
    if os.path.isdir(path):
        raise UnknownFileError("this is a folder; name the files in it, or check it with `barnabas verify`")
    name = os.path.basename(path)
    for suffix in PASSING_SUFFIXES:
        name = name.removesuffix(suffix)
    if name.endswith(".log"):
        yield from _log_rows(files, path, with_records)
        return
    kinds: dict[str, Callable[[Files, str], Iterator[Row]]] = {
        ".index": _offset_index_rows,
        ".timeindex": _time_index_rows,
        ".txnindex": _transaction_index_rows,
        ".snapshot": _snapshot_rows,
        LEADER_EPOCH_CHECKPOINT: _epoch_rows,
        PARTITION_METADATA: _partition_metadata_rows,
        META_PROPERTIES: _property_rows,
        **dict.fromkeys(OFFSET_CHECKPOINTS, _checkpoint_rows),
    }
    for ending, rows in kinds.items():
        if name.endswith(ending):
            yield from rows(files, path)
            return
    known = ", ".join([".log", *kinds])
    raise UnknownFileError(f"the name does not say what is in the file; it should end in one of {known}")


def as_text(row: Row) -> str:
    """Return an entry as an indented line of `name value` pairs for people; what is false is left out."""
    indentation = "    " if isinstance(row, RecordRow) else "  "
    words = []
    for name, value in row.items():
        if value is True:
            words.append(name)
        elif name.endswith("timestamp"):
            words.append(f"{name} {_readable_time(value)}")
        elif value is not False:
            words.append(f"{name} {_readable(name, value)}")
    return indentation + "  ".join(words)


def _readable(name: str, value: Any) -> str:
    """Return a value on one line; what clients wrote is quoted, so that it can not be taken for something else."""
    if value is None:
        return "null"
    if name == "headers":
        return "{" + ", ".join(": ".join(_readable_part(*part) for part in header.items()) for header in value) + "}"
    if name in ("key", "value"):
        return '"' + "".join(map(_readable_character, value)) + '"'
    return str(value)


def _readable_part(name: str, value: Any) -> str:
    return f"base64 {value}" if name.endswith("_base64") else _readable(name, value)


def _readable_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    # A line break would look like an entry, and an escape sequence would be obeyed by the terminal.
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _readable_time(timestamp: int) -> str:
    if timestamp < 0:
        return "none"
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)  # A time after the year 9999.
    return f"{timestamp} ({moment.isoformat(timespec='milliseconds').replace('+00:00', 'Z')})"


def _base_offset(path: str) -> int:
    """Return the base offset in a segment file's name, or 0 for a file that was renamed."""
    stem = os.path.basename(path)[:20]
    return int(stem) if len(stem) == 20 and stem.isdecimal() else 0


# One function a kind of file.


def _log_rows(files: Files, path: str, with_records: bool) -> Iterator[Row]:
    file = files.open(path)
    try:
        for position, batch, view in scan_batches(LogFile(file, path, file.size())):
            yield _batch_row(position, batch)
            if with_records:
                try:
                    for record in records_of(view, batch, DECOMPRESSED_BYTES_MAX):
                        yield RecordRow(_record_row(record, batch))
                except CorruptRecordError as error:
                    raise CorruptLogError(path, position + error.position, error.reason) from None
    finally:
        file.close()


def _batch_row(position: int, batch: BatchHeader) -> Row:
    row: Row = {
        "position": position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "size": batch.size,
        "magic": batch.magic,
        "codec": Codec(batch.attributes & CODEC_MASK).name.lower(),
        "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
        "max_timestamp": batch.max_timestamp,
        "crc": batch.crc,
    }
    if batch.magic < MAGIC:
        return row
    row["leader_epoch"] = batch.leader_epoch
    if batch.producer_id >= 0:
        row["producer_id"] = batch.producer_id
        row["producer_epoch"] = batch.producer_epoch
        row["base_sequence"] = batch.base_sequence
        row["last_sequence"] = batch.last_sequence
    row["transactional"] = batch.is_transactional
    row["control"] = batch.is_control
    if batch.has_delete_horizon:
        row["delete_horizon_timestamp"] = batch.base_timestamp
    return row


def _record_row(record: Record, batch: BatchHeader) -> Row:
    row: Row = {"offset": record.offset, "timestamp": record.timestamp}
    if batch.is_control:
        return row | _control_fields(record)
    row |= _bytes_field("key", record.key)
    row |= _bytes_field("value", record.value)
    if record.headers:
        row["headers"] = [_bytes_field("key", key) | _bytes_field("value", value) for key, value in record.headers]
    return row


def _control_fields(record: Record) -> Row:
    if record.key is not None and len(record.key) >= MARKER_KEY.size:
        version, control_type = MARKER_KEY.unpack_from(record.key)
        if version >= 0 and control_type not in MARKER_TYPES:
            return {"control_type": control_type, "version": version}
    is_commit, coordinator_epoch = read_marker(record)
    return {"marker": "COMMIT" if is_commit else "ABORT", "coordinator_epoch": coordinator_epoch}


def _bytes_field(name: str, data: bytes | None) -> Row:
    """Return bytes as text where they are text, and in base64 under another name where they are not."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def _offset_index_rows(files: Files, path: str) -> Iterator[Row]:
    base_offset = _base_offset(path)
    for relative, position in _index_entries(files, path, OFFSET_ENTRY):
        yield {"offset": base_offset + relative, "position": position}


def _time_index_rows(files: Files, path: str) -> Iterator[Row]:
    base_offset = _base_offset(path)
    for timestamp, relative in _index_entries(files, path, TIME_ENTRY):
        yield {"timestamp": timestamp, "offset": base_offset + relative}


def _index_entries(files: Files, path: str, entry: Struct) -> Iterator[tuple[int, ...]]:
    data = read_whole(files, path, INDEX_BYTES_MAX)
    size = len(data)
    # Kafka allocates its index files in full; the zeros that are left after a crash are no entries.
    used = -(-len(data.rstrip(b"\0")) // entry.size) * entry.size
    yield from entry.iter_unpack(data[: min(used, size - size % entry.size)])
    check_length(path, size, entry)


def _transaction_index_rows(files: Files, path: str) -> Iterator[Row]:
    for aborted in decode_aborted(read_whole(files, path, INDEX_BYTES_MAX), path, _base_offset(path)):
        yield aborted._asdict()


def _snapshot_rows(files: Files, path: str) -> Iterator[Row]:
    for entry in decode_snapshot(read_whole(files, path, SNAPSHOT_BYTES_MAX)):
        last = entry.batches[-1] if entry.batches else None
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "first_sequence": last.first_sequence if last else -1,
            "last_sequence": last.last_sequence if last else -1,
            "last_offset": last.last_offset if last else -1,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_transaction_first_offset": entry.transaction_first_offset,
        }


def _checkpoint_rows(files: Files, path: str) -> Iterator[Row]:
    files.open(path).close()
    for (topic, partition), offset in iterate_offsets(files, path):
        yield {"topic": topic, "partition": partition, "offset": offset}


def _epoch_rows(files: Files, path: str) -> Iterator[Row]:
    files.open(path).close()
    for epoch, start_offset in iterate_epochs(files, path):
        yield {"leader_epoch": epoch, "start_offset": start_offset}


def _partition_metadata_rows(files: Files, path: str) -> Iterator[Row]:
    files.open(path).close()
    topic_id = read_partition_metadata(files, path)
    if topic_id is not None:
        yield {"topic_id": encode_topic_id(topic_id)}


def _property_rows(files: Files, path: str) -> Iterator[Row]:
    files.open(path).close()
    for name, value in iterate_properties(files, path):
        yield {"name": name, "value": value}
