"""One folder of `log.dirs`: its lock, its identity, its checkpoints, and the names of the folders in it.

    meta.properties                      who the folder belongs to
    .lock                                held while a broker uses it
    .barnabas-reserve                    room for the moment when there is none: see disk_room.py
    .kafka_cleanshutdown                 there only while no broker runs and the last one stopped in order
    recovery-point-offset-checkpoint     and the other checkpoints: see checkpoint.py
    orders-0/                            the log of a partition
    orders-0.<32 hex digits>-future/     the same log on its way from another directory
    orders-0.<32 hex digits>-delete/     a log that is deleted, waiting to be removed
    orders-0.<32 hex digits>-stray/      a log that a Kafka put aside because it is not this broker's

Rule 1: a folder is refused in one sentence before anything in it is touched.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple
from uuid import uuid4

from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import (
    CLEAN_SHUTDOWN_MARKER,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    encode_topic_id,
    read_offsets,
    read_properties,
    write_clean_shutdown_marker,
    write_offsets,
    write_properties,
)
from barnabas.storage.files import TEMPORARY_SUFFIX, DirectoryLock, Files

logger = logging.getLogger(__name__)

# Folders that Kafka or a file system keeps in the same place, and that hold no partition of ours.
FOREIGN_FOLDERS = ("remote-log-index-cache", "__cluster_metadata-0", "lost+found")
NAME_BYTES_MAX = 255

MISSED_CHECKPOINTS = {
    RECOVERY_POINT_CHECKPOINT: "the logs are trusted without it",
    HIGH_WATERMARK_CHECKPOINT: "the high watermarks are found anew",
    LOG_START_OFFSET_CHECKPOINT: "logs start at their first segments, so that deleted records may be back",
}
"""What every stop in order writes, and what it means that one is missing."""

_PARTITION_FOLDER = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]+)(?:\.(?P<id>[0-9a-f]{32})-(?P<kind>delete|future|stray))?"
)


class LogDirectoryError(Exception):
    """A folder can not be used for logs; the message says which and why."""


class FolderKind(Enum):
    """What the folder of a partition is for."""

    CURRENT = ""
    FUTURE = "future"
    DELETE = "delete"
    STRAY = "stray"


class PartitionFolder(NamedTuple):
    """A folder of a partition, by its name."""

    name: str
    partition: TopicPartition
    kind: FolderKind


def parse_folder(name: str) -> PartitionFolder | None:
    """Return what a folder's name says, or None for one that is no partition's."""
    found = _PARTITION_FOLDER.fullmatch(name)
    if found is None:
        return None
    partition = TopicPartition(found["topic"], int(found["partition"]))
    return PartitionFolder(name, partition, FolderKind(found["kind"] or ""))


def folder_name(partition: TopicPartition, kind: FolderKind) -> str:
    """Return a name for a folder of a partition; all but the current one have an id, so that several can exist."""
    if kind is FolderKind.CURRENT:
        return str(partition)
    suffix = f"-{partition.partition}.{uuid4().hex}-{kind.value}"
    if kind is FolderKind.FUTURE:
        return partition.topic + suffix  # It is loaded by its name, so all of that is needed.
    # The id makes the name unique, so a long topic may lose its end; Kafka does the same.
    return partition.topic[: NAME_BYTES_MAX - len(suffix)] + suffix


class LogDirectory:
    """A folder that holds logs, from taking its lock to giving it back."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self.had_clean_shutdown = False
        # Why it is not used any more until a restart, or None while it works.
        self.failure: OSError | None = None
        # Whether a write found no room in it, and there has been none since.
        self.is_full = False
        # The folders of partitions in it, by their names; None until they could be listed.
        self.listed: list[PartitionFolder] | None = None
        # Whether nobody has used it before this start, as far as meta.properties tells.
        self.is_new = False
        # How many logs are in it or on their way into it.
        self.log_count = 0
        # Checkpoints that say more than is true, until they are written again.
        self.stale: set[str] = set()
        self._lock: DirectoryLock | None = None

    @property
    def is_taken(self) -> bool:
        """Whether this broker holds it."""
        return self._lock is not None

    def take(self) -> None:
        """Create the folder where it is missing, and lock it."""
        try:
            self._files.make_directory(self.path)
            self._lock = self._files.lock_directory(self.path)
        except (FileExistsError, NotADirectoryError):
            raise LogDirectoryError(f"{self.path} is not a folder") from None
        except PermissionError as error:
            raise LogDirectoryError(f"{self.path} can not be used: {error.strerror}") from None

    def check_identity(self, identity: Mapping[str, str]) -> dict[str, str]:
        """Check whose folder it is, without touching it, and return what meta.properties says."""
        path = os.path.join(self.path, META_PROPERTIES)
        found = read_properties(self._files, path)
        for name, expected in identity.items():
            if found.get(name, expected) != expected:
                raise LogDirectoryError(f"{path} has {name}={found[name]}, but this broker has {name}={expected}")
        return found

    def identify(self, identity: Mapping[str, str]) -> dict[str, str]:
        """Check whose folder it is, make it ours where it is new, and return what meta.properties says then."""
        found = self.check_identity(identity)
        wanted = {"version": "1", "directory.id": encode_topic_id(uuid4()), **identity, **found}
        if wanted != found:
            if self.listed:
                # There are logs, so this is no new folder: somebody removed the file, or a part of it.
                lacking = ", ".join(name for name in wanted if name not in found)
                path = os.path.join(self.path, META_PROPERTIES)
                logger.warning("%s says nothing of %s; it is written again for this broker", path, lacking)
            write_properties(self._files, os.path.join(self.path, META_PROPERTIES), wanted)
        return wanted

    def begin(self) -> None:
        """Note whether the last broker stopped cleanly, and take the mark away before anything is written."""
        marker = os.path.join(self.path, CLEAN_SHUTDOWN_MARKER)
        self.had_clean_shutdown = self._files.exists(marker)
        if self.had_clean_shutdown:
            self._files.remove(marker)
            self._files.sync_directory(self.path)

    def remove_unfinished(self) -> None:
        """Remove what a crash, or a full disk, left of the files that were to be replaced."""
        for name in (*OFFSET_CHECKPOINTS, META_PROPERTIES, CLEAN_SHUTDOWN_MARKER):
            self._files.remove(os.path.join(self.path, name + TEMPORARY_SUFFIX))

    def list_folders(self) -> list[str]:
        """Note the folders of partitions, and return the names of those that are nothing of the kind."""
        found = []
        foreign = []
        for entry in self._files.entries(self.path):
            if not entry.is_directory or entry.name in FOREIGN_FOLDERS:
                continue
            folder = parse_folder(entry.name)
            if folder is None:
                foreign.append(entry.name)
            else:
                found.append(folder)
        self.listed = sorted(found)
        return sorted(foreign)

    def folders(self) -> list[PartitionFolder]:
        """Return the folders of partitions; a folder that is nothing of the kind is refused."""
        for name in self.list_folders():
            reason = "its name is not that of a partition; move it out of the way"
            raise LogDirectoryError(f"{os.path.join(self.path, name)} can not be loaded: {reason}")
        assert self.listed is not None
        return self.listed

    def read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Return a checkpoint; one that is damaged counts as empty, which costs time but no record."""
        path = os.path.join(self.path, name)
        if self.had_clean_shutdown and name in MISSED_CHECKPOINTS and not self._files.exists(path):
            logger.warning("%s is gone, though the last stop was clean; %s", path, MISSED_CHECKPOINTS[name])
        try:
            return read_offsets(self._files, path)
        except CheckpointError as error:
            logger.warning("%s; the checkpoint is not used", error)
            if name == RECOVERY_POINT_CHECKPOINT:
                self.had_clean_shutdown = False
            return {}

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint; when this returns it is on the disk."""
        write_offsets(self._files, os.path.join(self.path, name), offsets)
        self.stale.discard(name)

    def remove_checkpoint(self, name: str) -> None:
        """Let a checkpoint say nothing, which needs no room on the disk."""
        self._files.remove(os.path.join(self.path, name))
        self._files.sync_directory(self.path)
        self.stale.discard(name)

    def mark_clean(self) -> None:
        """Say that everything in the folder is as it should be."""
        write_clean_shutdown_marker(self._files, self.path)

    def release(self) -> None:
        """Let another broker have the folder."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def distinct_paths(paths: Iterable[str]) -> list[str]:
    """Return the folders, absolute; one that is named twice is refused, since it would be used twice."""
    absolute: list[str] = []
    for path in paths:
        resolved = os.path.realpath(path)
        if resolved in absolute:
            raise LogDirectoryError(f"log.dirs names {path} twice")
        absolute.append(resolved)
    return absolute
