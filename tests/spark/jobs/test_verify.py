"""The job `verify`: it finds what `barnabas verify` finds, segment by segment."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.job import Progress
from barnabas.spark.jobs.verify import verify
from barnabas.storage.files import OsFiles
from barnabas.storage.verifier import Fault, partition_folders, verify_partition
from tests.spark.segments.writing import Directory
from tests.storage.builders import batch_of


def test_sound_directories_and_damaged_ones(spark: SparkSession, tmp_path: Path) -> None:
    directory = Directory(tmp_path / "data", segment_bytes=3000, index_interval_bytes=200)
    for partition in range(2):
        directory.append(*[batch_of(5) for _ in range(40)], partition=partition)
    directory.close()
    told: list[Progress] = []
    result = verify(spark, [directory.path], report=told.append, segments_per_job=4)
    logs = sorted(directory.path.glob("*/*.log"))
    assert result.is_fine
    assert result.sentence().endswith(": no faults.")
    assert (result.partitions, result.segments, result.batches, result.records) == (2, len(logs), 80, 400)
    assert result.size_bytes == sum(path.stat().st_size for path in logs)
    assert (told[0].done, told[0].total) == (0, len(logs))
    assert (told[-1].done, told[-1].unit) == (len(logs), "segments")
    assert len(told) == 1 + -(-len(logs) // 4)
    content = bytearray(logs[0].read_bytes())
    content[100] ^= 1
    logs[0].write_bytes(content)
    logs[-1].with_suffix(".index").write_bytes(b"123")
    (directory.path / "orders-1" / f"{7:020d}.timeindex").write_bytes(b"")
    (directory.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 900\n")
    (directory.path / "orders-0" / "leader-epoch-checkpoint").write_text("x")
    damaged = verify(spark, [directory.path])
    expected: list[Fault] = []
    for folder in partition_folders(OsFiles(), str(directory.path), expected.append):
        list(verify_partition(OsFiles(), folder, expected.append, is_clean=True))
    assert set(expected) < set(damaged.faults)
    assert len(damaged.faults) == len(expected) + 1, "and the checkpoint that says more than there is"
    assert not damaged.is_fine
    assert damaged.as_dict()["faults"][0]["path"] == damaged.rows()[0][0] == damaged.faults[0].path
    assert {Path(fault.path).name for fault in damaged.faults} >= {logs[0].name, "replication-offset-checkpoint"}


def test_what_is_no_log_directory_is_refused(tmp_path: Path) -> None:
    spark: SparkSession = None  # type: ignore[assignment]
    with pytest.raises(PipelineError, match="is no folder, or does not exist"):
        verify(spark, [tmp_path / "missing"])
    with pytest.raises(PipelineError, match=f"{tmp_path} is no log directory"):
        verify(spark, [tmp_path])
