"""Words for tests of log directories: partitions that are written with our own storage, without a broker."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from barnabas.clock import SystemClock
from barnabas.config import LogConfig, LogManagerConfig
from barnabas.model import TopicPartition
from barnabas.spark.segments.options import read_read_options
from barnabas.spark.segments.reader import plan, read_task
from barnabas.storage.files import OsFiles
from barnabas.storage.log import Log
from barnabas.storage.log_manager import LogManager, LogManagerOptions


class Directory:
    """A log directory that is open, as under a running broker."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self._manager = LogManager(
            LogManagerOptions(
                files=OsFiles(),
                clock=SystemClock(),
                config=LogManagerConfig(log_dirs=(str(path),)),
                topic_config=lambda _: LogConfig(**settings),
            )
        )
        self._manager.start()

    def log(self, topic: str = "orders", partition: int = 0) -> Log:
        """The log of a partition, made where there is none."""
        return self._manager.get_or_create_log(TopicPartition(topic, partition))

    def append(self, *batches: bytes | bytearray, topic: str = "orders", partition: int = 0) -> None:
        """Append batches of clients."""
        log = self.log(topic, partition)
        for batch in batches:
            log.append_as_leader(batch, 0)
        log.update_high_watermark(log.log_end_offset)

    def mark(self, marker: bytes | bytearray, topic: str = "orders", partition: int = 0) -> None:
        """Append the end of a transaction."""
        log = self.log(topic, partition)
        log.append_as_leader(marker, 0, is_client=False)
        log.update_high_watermark(log.log_end_offset)

    def checkpoint(self) -> None:
        """Write down where logs start."""
        self._manager.checkpoint_log_start_offsets()

    def close(self) -> None:
        """Stop in order."""
        self._manager.shutdown()


def rows_of(path: Path | str, **options: str) -> list[dict[str, Any]]:
    """The rows that a query would have, read in this process, in order of partition and offset."""
    return sorted(
        (row for batch in batches_of(path, options) for row in batch.to_pylist()),
        key=lambda row: (row["topic"], row["partition"], row["offset"]),
    )


def batches_of(path: Path | str, options: Mapping[str, str]) -> Sequence[pa.RecordBatch]:
    """The same as it is yielded, task by task."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    read = read_read_options({"path": str(path), **named})
    return [batch for task in plan(read) for batch in read_task(task, read)]


def offsets_of(path: Path | str, **options: str) -> list[int]:
    """The offsets of all rows, which are those of one partition."""
    return [row["offset"] for row in rows_of(path, **options)]
