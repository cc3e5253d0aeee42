"""LoadJournal: which bulk loads were adopted, and what is still to be done for one that a crash interrupted.

It is the file `bulk-loads.json` in the first log directory. A load is adopted from the moment on at which it is in
here: that is one write for all its partitions, so that a crash leaves all of the load or nothing. Its files are renamed
into the logs after that, by whoever runs then: the broker that decided, or the next one at its start.

    {"version": 1, "loads": [{"id": "nightly-7", "topic": "orders", "topic_id": "...", "is_complete": false,
      "partitions": [{"partition": 0, "base_offset": 4821, "end_offset": 9000, "leader_epoch": 3, "segments": [...]}]}]}

Rule 1: before a decision is written, what it speaks of is stamped and on the disk.
Rule 2: an id stays in here for good, so that the same load is never adopted twice.
Rule 3: a journal that can not be read is a reason not to start: half a load could be taken for a whole log.
"""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from barnabas.model import TopicPartition
from barnabas.storage.checkpoint import (
    PARTITION_METADATA,
    CheckpointError,
    decode_topic_id,
    encode_topic_id,
    read_partition_metadata,
)
from barnabas.storage.files import TEMPORARY_SUFFIX, Files, FileTooLargeError, read_whole, write_whole
from barnabas.storage.staged_load import LoadError, StagedPartition, StagedSegment, clear, place, read_segments, stamp

logger = logging.getLogger(__name__)

JOURNAL = "bulk-loads.json"
VERSION = 1


class LoadJournalError(Exception):
    """The journal does not say what it should; the message is one sentence with its path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedPartition:
    """Where the records of a load are in a partition."""

    partition: int
    base_offset: int
    end_offset: int
    leader_epoch: int
    segments: tuple[StagedSegment, ...] = ()
    """What is to be placed; empty once the load is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedLoad:
    """A load that was decided."""

    load_id: str
    topic: str
    topic_id: UUID | None
    partitions: tuple[AdoptedPartition, ...]
    is_complete: bool = False


class LoadJournal:
    """The loads of a broker."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = os.path.join(directory, JOURNAL)
        self._loads: dict[str, AdoptedLoad] = {}

    def read(self) -> None:
        """Read what is there; raises LoadJournalError."""
        if not self._files.exists(self._path):
            return
        try:
            content = json.loads(read_whole(self._files, self._path))
            if content["version"] != VERSION:
                raise ValueError(f"its version is {content['version']}, but only {VERSION} is known")
            loads = [_decode(row, self._path) for row in content["loads"]]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, LoadError, FileTooLargeError) as error:
            raise LoadJournalError(f"{self._path} can not be read: {error}") from None
        self._loads = {load.load_id: load for load in loads}

    def find(self, load_id: str) -> AdoptedLoad | None:
        """Return a load that was adopted, or None."""
        return self._loads.get(load_id)

    def decide(self, load: AdoptedLoad) -> None:
        """Adopt a load; when this returns, no crash takes it back."""
        self._write({**self._loads, load.load_id: load})

    def complete(self, load_id: str) -> None:
        """Note that everything of a load is in its place, on the disk."""
        load = self._loads[load_id]
        partitions = tuple(
            AdoptedPartition(
                partition=one.partition,
                base_offset=one.base_offset,
                end_offset=one.end_offset,
                leader_epoch=one.leader_epoch,
            )
            for one in load.partitions
        )
        done = AdoptedLoad(
            load_id=load.load_id,
            topic=load.topic,
            topic_id=load.topic_id,
            partitions=partitions,
            is_complete=True,
        )
        self._write({**self._loads, load_id: done})

    def _write(self, loads: Mapping[str, AdoptedLoad]) -> None:
        content = {"version": VERSION, "loads": [_encode(load) for load in loads.values()]}
        write_whole(self._files, self._path, json.dumps(content).encode())
        self._loads = dict(loads)

    def finish(self, directories: Iterable[str], offline: int = 0) -> None:
        """Place what a crash left, before the logs in these folders are opened.

        A log that is gone, or that is another topic's by now, needs nothing any more. With folders that are `offline` a
        load stays unfinished, since a log may be in one of them.
        """
        self._files.remove(self._path + TEMPORARY_SUFFIX)  # What a crash left of a decision that was not made.
        for load in [load for load in self._loads.values() if not load.is_complete]:
            logger.info("load %s of %s was interrupted and is finished now", load.load_id, load.topic)
            left = len(load.partitions)
            for directory in directories:
                left -= sum(self._finish_partition(directory, load, one) for one in load.partitions)
            if left == 0 or not offline:
                self.complete(load.load_id)

    def _finish_partition(self, directory: str, load: AdoptedLoad, one: AdoptedPartition) -> bool:
        """Place the segments of one partition if its log is in this folder; tell whether it is."""
        name = TopicPartition(load.topic, one.partition)
        folder = os.path.join(directory, str(name))
        if not self._files.exists(folder):
            return False
        try:
            topic_id = read_partition_metadata(self._files, os.path.join(folder, PARTITION_METADATA))
        except CheckpointError:
            topic_id = None
        if None not in (topic_id, load.topic_id) and topic_id != load.topic_id:
            return False
        staged = StagedPartition(load_id=load.load_id, partition=name, directory=folder, segments=one.segments)
        stamp(self._files, staged, one.base_offset, one.leader_epoch)
        place(self._files, staged, one.base_offset)
        clear(self._files, staged)
        return True


def _encode(load: AdoptedLoad) -> dict[str, Any]:
    return {
        "id": load.load_id,
        "topic": load.topic,
        "topic_id": None if load.topic_id is None else encode_topic_id(load.topic_id),
        "is_complete": load.is_complete,
        "partitions": [
            {
                "partition": one.partition,
                "base_offset": one.base_offset,
                "end_offset": one.end_offset,
                "leader_epoch": one.leader_epoch,
                "segments": [segment._asdict() for segment in one.segments],
            }
            for one in load.partitions
        ],
    }


def _decode(row: dict[str, Any], path: str) -> AdoptedLoad:
    return AdoptedLoad(
        load_id=str(row["id"]),
        topic=str(row["topic"]),
        topic_id=None if row["topic_id"] is None else decode_topic_id(row["topic_id"]),
        is_complete=bool(row["is_complete"]),
        partitions=tuple(
            AdoptedPartition(
                partition=int(one["partition"]),
                base_offset=int(one["base_offset"]),
                end_offset=int(one["end_offset"]),
                leader_epoch=int(one["leader_epoch"]),
                segments=read_segments(one["segments"], path) if one["segments"] else (),
            )
            for one in row["partitions"]
        ),
    )
