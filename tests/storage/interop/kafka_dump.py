"""What Kafka's DumpLogSegments says of files, as numbers instead of text.

The tool prints one line an entry, of `name: value` pairs; records of a batch follow it, each after a bar.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.storage.transaction_index import AbortedTransaction
from tests.kafka_peer.peer import complaints_of, dump_log
from tests.kafka_peer.populate import TimestampType

PAIR = re.compile(r"(\w+): (\S+)")
TIMES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """A record as the tool shows it: sizes are -1 for null."""

    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key_size: int
    value_size: int
    sequence: int
    header_keys: tuple[str, ...]
    marker: str
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    """A batch and its records."""

    base_offset: int
    last_offset: int
    count: int
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    codec: str
    records: list[DumpedRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedProducer:
    """An entry of a producer snapshot; -1 is "none"."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    transaction_first_offset: int
    last_timestamp: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0


class KafkaDump:
    """The output of one run of the tool over many files."""

    def __init__(self, files: Iterable[Path], *options: str) -> None:
        self.output = dump_log("--files", ",".join(map(str, files)), *options)
        self._lines: dict[Path, list[str]] = {}
        for line in self.output.splitlines():
            if line.startswith("Dumping "):
                path = Path(line.removeprefix("Dumping "))
                self._lines[path] = []
            elif self._lines:
                self._lines[path].append(line)

    @property
    def complaints(self) -> list[str]:
        """What Kafka finds wrong."""
        return complaints_of(self.output)

    @property
    def files(self) -> set[Path]:
        """The files that the tool looked at."""
        return set(self._lines)

    def _rows(self, path: Path) -> Iterator[tuple[str, dict[str, str]]]:
        for line in self._lines[path]:
            yield line, dict(PAIR.findall(line))

    def passed_sanity_check(self, path: Path) -> bool:
        """Whether the tool found the index sound."""
        return f"{path} passed sanity check." in self._lines[path]

    def batches(self, path: Path) -> list[DumpedBatch]:
        """The batches of a `.log` file."""
        batches: list[DumpedBatch] = []
        for line, row in self._rows(path):
            if line.startswith("baseOffset: "):
                batches.append(_batch(row))
            elif line.startswith("| offset: "):
                batches[-1].records.append(_record(line, row))
        return batches

    def aborted(self, path: Path) -> list[AbortedTransaction]:
        """The entries of a `.txnindex` file."""
        return [
            AbortedTransaction(
                *(int(row[name]) for name in ("producerId", "firstOffset", "lastOffset", "lastStableOffset"))
            )
            for _, row in self._rows(path)
            if "firstOffset" in row
        ]

    def producers(self, path: Path) -> dict[int, DumpedProducer]:
        """The entries of a `.snapshot` file."""
        return {int(row["producerId"]): _producer(row) for _, row in self._rows(path) if "producerId" in row}

    def entries(self, path: Path) -> list[tuple[int, ...]]:
        """The entries of an `.index` (offset, position) or a `.timeindex` (timestamp, offset)."""
        return [tuple(map(int, row.values())) for _, row in self._rows(path) if "offset" in row]


def _batch(row: dict[str, str]) -> DumpedBatch:
    return DumpedBatch(
        base_offset=int(row["baseOffset"]),
        last_offset=int(row["lastOffset"]),
        count=int(row["count"]),
        base_sequence=int(row["baseSequence"]),
        last_sequence=int(row["lastSequence"]),
        producer_id=int(row["producerId"]),
        producer_epoch=int(row["producerEpoch"]),
        leader_epoch=int(row["partitionLeaderEpoch"]),
        is_transactional=row["isTransactional"] == "true",
        is_control=row["isControl"] == "true",
        codec=row["compresscodec"],
    )


def _record(line: str, row: dict[str, str]) -> DumpedRecord:
    time = next((name for name in TIMES if name in row), None)
    keys = re.search(r"headerKeys: \[(.*?)\]", line)
    return DumpedRecord(
        offset=int(row["offset"]),
        # A record without a timestamp is shown with NoTimestampType or with -1.
        timestamp_ms=int(row[time]) if time else -1,
        timestamp_type=TIMES[time or "CreateTime"],
        key_size=int(row["keySize"]),
        value_size=int(row["valueSize"]),
        sequence=int(row["sequence"]),
        header_keys=tuple(keys[1].split(",")) if keys and keys[1] else (),
        marker=row.get("endTxnMarker", ""),
        coordinator_epoch=int(row.get("coordinatorEpoch", -1)),
    )


def _producer(row: dict[str, str]) -> DumpedProducer:
    first_offset = re.fullmatch(r"OptionalLong\[(\d+)\]", row["currentTxnFirstOffset"])
    return DumpedProducer(
        producer_id=int(row["producerId"]),
        epoch=int(row["producerEpoch"]),
        coordinator_epoch=int(row["coordinatorEpoch"]),
        transaction_first_offset=int(first_offset[1]) if first_offset else -1,
        last_timestamp=int(row["lastTimestamp"]),
        last_sequence=int(row.get("lastSequence", -1)),
        last_offset=int(row.get("lastOffset", -1)),
        offset_delta=int(row.get("offsetDelta", 0)),
    )
