"""Sums of Hadoop beside a file, as Spark itself writes them: damage is seen where it is, and nowhere else."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.segments.hadoop_checksums import is_sound


@pytest.fixture
def file(spark: SparkSession, tmp_path: Path) -> Path:
    rows = spark.range(0, 2000, 1, 1).selectExpr("concat('value-', id) AS value")
    rows.write.option("compression", "none").text(str(tmp_path / "rows"))
    (found,) = (tmp_path / "rows").glob("part-*")
    assert (found.parent / f".{found.name}.crc").exists()
    return found


def test_what_spark_wrote_is_sound_until_it_is_changed(file: Path) -> None:
    size = file.stat().st_size
    assert size % 512, "the last sum is of fewer bytes"
    assert is_sound(str(file), 0, size)
    content = bytearray(file.read_bytes())
    content[5000] ^= 1
    file.write_bytes(content)
    assert not is_sound(str(file), 0, size)
    assert not is_sound(str(file), 5000, 5001)
    assert not is_sound(str(file), 5119, 5120)
    assert is_sound(str(file), 5120, size)
    assert is_sound(str(file), 0, 4608)
    content[5000] ^= 1
    file.write_bytes(content + b"more")
    assert not is_sound(str(file), 0, size + 4)
    file.write_bytes(content[:-600])
    assert not is_sound(str(file), size - 600, size)


def test_without_sums_everything_is_sound(file: Path) -> None:
    sums = file.parent / f".{file.name}.crc"
    file.write_bytes(bytes(file.stat().st_size))
    for content in (b"", b"abc", b"xrc\0\0\0\2\0", b"crc\0\0\0\0\0"):
        sums.write_bytes(content)
        assert is_sound(str(file), 0, 1000)
    sums.unlink()
    assert is_sound(str(file), 0, 1000)


def test_a_file_that_is_gone_is_an_error(file: Path) -> None:
    file.unlink()
    with pytest.raises(FileNotFoundError):
        is_sound(str(file), 0, 10)
