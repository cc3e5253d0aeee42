"""Parquet files that tasks read themselves: which those are, what is left to Spark, and in which order rows come."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from barnabas.spark.errors import PipelineError
from barnabas.spark.segments import parquet_rows
from barnabas.spark.segments.parquet_rows import FilesPlan, plan_files, rows_of

NOON = datetime(2025, 5, 1, 12, tzinfo=UTC)


def write(path: Path, first: int, count: int, row_group_size: int = 10, **more: Any) -> Path:
    columns = {"value": [f"v{number}" for number in range(first, first + count)], **more}
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def values(plan: FilesPlan | None) -> list[list[str]]:
    assert plan is not None
    return [
        [value for batch in rows_of(task, plan.schema.names) for value in batch.column("value").to_pylist()]
        for task in plan.tasks
    ]


def numbers(start: int, end: int) -> list[str]:
    return [f"v{number}" for number in range(start, end)]


def test_row_groups_become_tasks_in_the_order_of_files(tmp_path: Path) -> None:
    write(tmp_path / "b.parquet", 30, 20)
    write(tmp_path / "a.parquet", 0, 30)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".a.parquet.crc").write_text("not read")
    assert values(plan_files(str(tmp_path), 1)) == [numbers(0, 50)]
    # No task gets more than its share, and row groups stay whole.
    assert values(plan_files(str(tmp_path), 2)) == [numbers(0, 20), numbers(20, 40), numbers(40, 50)]
    assert values(plan_files(str(tmp_path), 100)) == [numbers(start, start + 10) for start in range(0, 50, 10)]
    assert values(plan_files(str(tmp_path / "b.parquet"), 1)) == [numbers(30, 50)]


@pytest.mark.parametrize("name", ["_x=1.parquet", "b.parquet._COPYING_", "_metadata", "_common_metadata"])
def test_a_folder_with_names_that_spark_has_rules_for_is_left_to_it(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.parquet", 0, 5)
    assert plan_files(str(tmp_path), 1) is not None
    write(tmp_path / name, 5, 5)
    assert plan_files(str(tmp_path), 1) is None


def test_a_file_whose_own_name_is_hidden_is_left_to_spark(tmp_path: Path) -> None:
    for name in ("_rows.parquet", ".rows.parquet"):
        assert plan_files(str(write(tmp_path / name, 0, 5)), 1) is None


def test_dictionaries_do_not_hide_how_large_rows_are(tmp_path: Path) -> None:
    """The dictionary is in the file once; 16,384 rows of it at once would be 1.6 GB."""
    value = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), ["x" * 100_000])
    pq.write_table(pa.table({"value": value}), tmp_path / "rows.parquet", store_schema=False)
    plan = plan_files(str(tmp_path), 1)
    assert plan is not None
    assert [batch.num_rows for batch in rows_of(plan.tasks[0], ["value"])] == [1024, 1024, 952]


def test_another_schema_that_spark_has_noted_is_left_to_it(tmp_path: Path) -> None:
    table = pa.table({"value": ["x"], "key": ["k"]})
    noted = StructType([StructField("value", StringType()), StructField("other", StringType())])
    for schema, is_read in (
        (noted, False),
        (noted.add("key", BinaryType()), False),
        (StructType([StructField("key", StringType(), False), StructField("value", StringType())]), True),
    ):
        metadata = {"org.apache.spark.sql.parquet.row.metadata": schema.json()}
        pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "rows.parquet")
        assert (plan_files(str(tmp_path), 1) is not None) == is_read, schema
    damaged = {"org.apache.spark.sql.parquet.row.metadata": "no JSON"}
    pq.write_table(table.replace_schema_metadata(damaged), tmp_path / "rows.parquet")
    assert plan_files(str(tmp_path), 1) is None


def test_large_rows_come_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "_BATCH_BYTES", 1000)
    large = pa.table({"value": [bytes([number]) * 300 for number in range(20)]})
    pq.write_table(large, tmp_path / "rows.parquet", use_dictionary=False)
    plan = plan_files(str(tmp_path), 1)
    assert plan is not None
    assert [batch.num_rows for batch in rows_of(plan.tasks[0], ["value"])] == [2] * 10


@pytest.mark.parametrize("times", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_times_are_instants_in_all_formats_of_spark(tmp_path: Path, times: str) -> None:
    array = pa.array([NOON], pa.timestamp("us", "UTC"))
    table = pa.table({"Value": [b"v"], "TIMESTAMP": array, "other": [1.5]})
    options: dict[str, Any] = {"use_deprecated_int96_timestamps": True} if times == "INT96" else {}
    if times == "TIMESTAMP_MILLIS":
        options["coerce_timestamps"] = "ms"
    # The Arrow schema, which Spark does not write, is left out: what counts is the type in the file.
    pq.write_table(table, tmp_path / "rows.parquet", store_schema=False, **options)
    plan = plan_files(str(tmp_path), 1)
    assert plan is not None
    assert plan.spark_schema().simpleString() == "struct<Value:binary,TIMESTAMP:timestamp>"
    (batch,) = rows_of(plan.tasks[0], plan.schema.names)
    assert batch.column("TIMESTAMP").cast(pa.timestamp("us", "UTC")).to_pylist() == [NOON]


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
OTHER_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("column", "is_read"),
    [
        (("headers", pa.array([[("a", b"1")], None], HEADERS)), True),
        (("headers", pa.array([[("a", b"1")], None], OTHER_HEADERS)), False),
        (("headers", pa.array(["a", "b"])), False),
        (("key", pa.array([None, b"k"], pa.binary())), True),
        (("key", pa.array([1, 2])), False),
        (("key", pa.array(["a", "b"], pa.large_string())), False),
        (("key", pa.array(["a", "b"]).dictionary_encode()), False),
        (("partition", pa.array([1, 2], pa.int32())), True),
        (("partition", pa.array([1, 2], pa.int64())), False),
        (("timestamp", pa.array([NOON.replace(tzinfo=None)] * 2, pa.timestamp("us"))), False),
        (("timestamp", pa.array([NOON] * 2, pa.timestamp("ns", "UTC"))), False),
        (("timestamp", pa.array([1, 2])), False),
        (("VALUE", pa.array(["a", "b"])), False),
        (("other", pa.array([1, 2])), True),
    ],
)
def test_types_that_spark_may_read_differently_are_left_to_it(
    tmp_path: Path, column: tuple[str, pa.Array], is_read: bool
) -> None:
    name, array = column
    pq.write_table(pa.table({"value": ["x", "y"], name: array}), tmp_path / "rows.parquet")
    plan = plan_files(str(tmp_path), 1)
    assert (plan is not None) == is_read
    if plan is not None and name != "other":
        (batch,) = rows_of(plan.tasks[0], plan.schema.names)
        assert batch.column(name).to_pylist() == array.to_pylist()


def test_paths_that_are_more_than_files_are_left_to_spark(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    assert plan_files(str(folder), 1) is None
    write(folder / "a.parquet", 0, 5)
    assert plan_files(str(folder), 1) is not None
    for path in (f"{folder}/*", f"file://{folder}", f"{tmp_path}/{{rows}}", str(tmp_path), str(tmp_path / "none")):
        assert plan_files(path, 1) is None, path
    for path in ("", "rows", f"/{folder}"):
        assert plan_files(path, 1) is None, path
    write(folder / "b.parquet", 5, 5, key=["k"] * 5)
    assert plan_files(str(folder), 1) is None, "files that differ"
    (folder / "b.parquet").write_text("no Parquet")
    assert plan_files(str(folder), 1) is None
    (folder / "b.parquet").unlink()
    pq.write_table(pa.table({"key": ["k"]}), folder / "a.parquet")
    assert plan_files(str(folder), 1) is None, "no values"


def test_a_file_that_is_damaged_or_gone_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", 0, 1000, 1000)
    plan = plan_files(str(tmp_path), 1)
    assert plan is not None
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(200) + content[204:])
    with pytest.raises(PipelineError, match=rf"{path} can not be read: "):
        list(rows_of(plan.tasks[0], plan.schema.names))
    path.unlink()
    with pytest.raises(PipelineError, match=rf"{path} can not be read: "):
        list(rows_of(plan.tasks[0], plan.schema.names))
