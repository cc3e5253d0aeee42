"""Small files through Hadoop, on the file system of this machine."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives.files import ExistsError, Files
from barnabas.spark.errors import PipelineError


def test_files_are_written_once(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path / "lake"))
    assert not files.exists("a/b.json")
    files.create("a/b.json", "Grüße")
    assert files.read("a/b.json") == "Grüße"
    with pytest.raises(ExistsError):
        files.create("a/b.json", "other")
    assert files.read("a/b.json") == "Grüße"
    assert files.names("a") == ["b.json"]
    assert files.names("nowhere") == []
    assert {name: size for name, size in files.sizes("a").items() if not name.endswith(".crc")} == {"a/b.json": 7}
    assert files.path("a/b.json") == (tmp_path / "lake/a/b.json").as_uri().replace("file:///", "file:/")
    files.delete("a")
    assert not files.exists("a")


def test_what_can_not_be_used_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"nosuch://lake/a can not be used: No FileSystem for scheme"):
        Files(spark, "nosuch://lake/a")
    with pytest.raises(PipelineError, match=r"nothing can not be read: .*nothing"):
        Files(spark, str(tmp_path)).read("nothing")


def test_a_folder_gets_another_name_unless_that_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, str(tmp_path))
    files.create("draft/a", "1")
    files.move("draft", "done")
    assert (files.read("done/a"), files.exists("draft")) == ("1", False)
    files.create("draft/a", "2")
    with pytest.raises(ExistsError):
        files.move("draft", "done")
    assert files.read("done/a") == "1"
    with pytest.raises(PipelineError, match="nothing can not be moved"):
        files.move("nothing", "somewhere")
