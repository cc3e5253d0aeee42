"""The small text files of a log directory: checkpoints, partition.metadata, meta.properties, the shutdown marker.

A checkpoint is a table in text, replaced as a whole:

    0                      version
    2                      number of lines that follow
    orders 0 4821          one entry a line; here topic, partition and offset
    orders 1 907

Rule 1: a file that is missing or empty has no entries. A file that says anything else than it should raises
CheckpointError with path and line, and the caller decides whether what it holds can be made again.
"""

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from barnabas.model import ZERO_TOPIC_ID, TopicPartition
from barnabas.storage.files import Files, FileTooLargeError, read_whole, write_whole

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
VERSION = "0"
OFFSET_MAX = 2**63 - 1


class CheckpointError(Exception):
    """A small file of the log directory does not say what it should."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}, line {line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


def _read_text(files: Files, path: str) -> str:
    if not files.exists(path):
        return ""
    try:
        return read_whole(files, path).decode()
    except FileTooLargeError as error:
        raise CheckpointError(path, 1, error.reason) from None
    except UnicodeDecodeError:
        raise CheckpointError(path, 1, "the file is not text") from None


def _read_table(files: Files, path: str, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and words of every entry."""
    text = _read_text(files, path)
    lines = text.splitlines()
    if not lines:
        return
    if not text.endswith("\n"):
        raise CheckpointError(path, len(lines), "the last line is cut off")
    if lines[0].strip() != VERSION:
        raise CheckpointError(path, 1, f"the version is {lines[0]!r}, but only {VERSION} is known")
    if len(lines) < 2 or not lines[1].strip().isdecimal():
        raise CheckpointError(path, 2, "the number of entries is missing")
    expected = _number(path, 2, lines[1])
    if expected != len(lines) - 2:
        raise CheckpointError(path, 2, f"{expected} entries are announced, but {len(lines) - 2} follow")
    for number, line in enumerate(lines[2:], 3):
        words = line.split()
        if len(words) != columns:
            raise CheckpointError(path, number, f"an entry has {columns} words, but {line!r} has {len(words)}")
        yield number, words


def _write_table(files: Files, path: str, rows: Sequence[Iterable[object]]) -> None:
    lines = [VERSION, str(len(rows)), *(" ".join(map(str, row)) for row in rows)]
    write_whole(files, path, ("\n".join(lines) + "\n").encode())


def _number(path: str, line: int, word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise CheckpointError(path, line, f"{word!r} is not a number") from None


def iterate_offsets(files: Files, path: str) -> Iterator[tuple[TopicPartition, int]]:
    """Yield partition and offset of every entry of a checkpoint, up to the first that is bad."""
    for line, (topic, partition, offset) in _read_table(files, path, 3):
        value = _number(path, line, offset)
        if not 0 <= value <= OFFSET_MAX:
            raise CheckpointError(path, line, f"{value} is not an offset")
        yield TopicPartition(topic, _number(path, line, partition)), value


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """Return the offset of every partition in a checkpoint."""
    return dict(iterate_offsets(files, path))


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace a checkpoint; when this returns it is on the disk."""
    _write_table(files, path, [(*partition, offset) for partition, offset in sorted(offsets.items())])


def iterate_epochs(files: Files, path: str) -> Iterator[tuple[int, int]]:
    """Yield leader epoch and start offset of every entry, up to the first that is bad."""
    for line, (epoch, offset) in _read_table(files, path, 2):
        yield _number(path, line, epoch), _number(path, line, offset)


def read_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    """Return (leader epoch, start offset) in the order of the file."""
    return list(iterate_epochs(files, path))


def write_epochs(files: Files, path: str, epochs: Sequence[tuple[int, int]]) -> None:
    """Replace the leader epochs of a log."""
    _write_table(files, path, epochs)


def encode_topic_id(topic_id: UUID) -> str:
    """Return the 22 characters in which Kafka writes a topic id."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def decode_topic_id(text: str) -> UUID:
    """Return the topic id that 22 characters stand for; raises ValueError."""
    try:
        data = base64.b64decode(text.encode() + b"==", altchars=b"-_", validate=True)
    except ValueError:
        data = b""
    if len(text) != 22 or len(data) != 16:
        raise ValueError(f"{text!r} is not a topic id, which has 22 letters, digits, - and _")
    return UUID(bytes=data)


def read_partition_metadata(files: Files, path: str) -> UUID | None:
    """Return the topic id of a partition's folder, or None where Kafka before 2.8 wrote it."""
    text = _read_text(files, path)
    if not text:
        return None
    lines = text.splitlines()
    fields = [line.split(": ", 1) for line in lines]
    if len(lines) != 2 or fields[0] != ["version", VERSION] or len(fields[1]) != 2 or fields[1][0] != "topic_id":
        raise CheckpointError(path, 1, "the file should hold version: 0 and topic_id:")
    try:
        topic_id = decode_topic_id(fields[1][1])
    except ValueError as error:
        raise CheckpointError(path, 2, str(error)) from None
    if topic_id == ZERO_TOPIC_ID:
        raise CheckpointError(path, 2, "the topic id is zero, which no topic has")
    return topic_id


def write_partition_metadata(files: Files, path: str, topic_id: UUID) -> None:
    """Record which topic a folder belongs to; Kafka ends the file without a newline."""
    write_whole(files, path, f"version: {VERSION}\ntopic_id: {encode_topic_id(topic_id)}".encode())


def iterate_properties(files: Files, path: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of every line of a meta.properties, up to the first that is bad."""
    for number, line in enumerate(_read_text(files, path).splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, separator, value = stripped.partition("=")
        if not separator:
            raise CheckpointError(path, number, f"{line!r} is not of the form name=value")
        yield name.strip(), value.strip()


def read_properties(files: Files, path: str) -> dict[str, str]:
    """Return what a meta.properties says; empty where there is none."""
    return dict(iterate_properties(files, path))


def write_properties(files: Files, path: str, properties: Mapping[str, str]) -> None:
    """Replace a meta.properties."""
    lines = [f"{name}={value}" for name, value in properties.items()]
    write_whole(files, path, ("#\n" + "\n".join(lines) + "\n").encode())


def write_clean_shutdown_marker(files: Files, directory: str) -> None:
    """Say that everything in the directory is as it should be; only that the file exists counts."""
    content = json.dumps({"version": 0, "brokerEpoch": -1}, separators=(",", ":"))
    write_whole(files, os.path.join(directory, CLEAN_SHUTDOWN_MARKER), content.encode())
