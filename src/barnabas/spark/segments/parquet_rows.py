"""Rows of Parquet files on a disk that every task sees, read by the tasks of a bulk load themselves.

Spark's JVM would make rows of the columns in a file and hand them to Python, where columns are made of them again. Here
they stay columns: a load of files takes half the time.

    driver   plan_files   a path  ->  the row groups that each task reads, or None where Spark has to do it
    task     rows_of      row groups  ->  RecordBatches

Rule 1: this is for files that Spark would read in the same way, and for nothing else. Patterns, folders inside of
folders, files that differ from each other and types that Spark reads by rules of its own are left to Spark, and so is
saying what is wrong with a path.
Rule 2: the order is that of the files' names, and of the rows in them.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from barnabas.spark.errors import PipelineError
from barnabas.spark.segments.planning import pack

# What Spark does not read, and what it takes for a pattern or for another file system.
_HIDDEN = ("_", ".")
_SPECIAL = frozenset("*?[]{}\\:")
_COLUMNS = frozenset(("key", "value", "headers", "partition", "timestamp"))
_TEXT = (pa.binary(), pa.string())
_HEADER_FIELDS = (("key", pa.string()), ("value", pa.binary()))
_INT96 = "INT96"
_INSTANT = pa.timestamp("us", "UTC")

_TASK_BYTES_MAX = 256 * 1024 * 1024
_BATCH_ROWS_MAX = 16 * 1024
_BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A row group of a file; its size is that of the columns that are read, decompressed."""

    path: str
    number: int
    rows: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesPlan:
    """What is read: these columns of all files, in these tasks."""

    schema: pa.Schema
    tasks: tuple[tuple[RowGroup, ...], ...]

    def spark_schema(self) -> StructType:
        """The columns as Spark would have them."""
        return from_arrow_schema(self.schema)


def plan_files(path: str, task_count: int) -> FilesPlan | None:
    """Return what about so many tasks read, on the driver; None where Spark has to read the path."""
    schema: pa.Schema | None = None
    groups: list[RowGroup] = []
    for file in _files(path):
        try:
            with pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as opened:
                found = _columns_of(opened)
                if found is None or (schema is not None and not found.equals(schema)):
                    return None
                schema = found
                groups += _row_groups(file, opened.metadata, found)
        except (OSError, pa.ArrowException):
            return None
    if schema is None or not groups:
        return None
    bytes_max = min(_TASK_BYTES_MAX, -(-sum(group.size for group in groups) // max(1, task_count)))
    return FilesPlan(schema=schema, tasks=tuple(pack(groups, bytes_max)))


def _files(path: str) -> list[str]:
    """Return the files of a path, in order; none where it is more than a file or a folder of files."""
    if _SPECIAL.intersection(path):
        return []
    path = os.path.abspath(path)
    if os.path.isfile(path):
        return [path]
    try:
        entries = [entry for entry in os.scandir(path) if not entry.name.startswith(_HIDDEN)]
    except OSError:
        return []
    if not all(entry.is_file() for entry in entries):
        return []
    return sorted(entry.path for entry in entries)


def _columns_of(file: pq.ParquetFile) -> pa.Schema | None:
    """Return the columns of records that a file has; None where they are not such as both readers read alike."""
    fields: dict[str, pa.Field] = {}
    for field in file.schema_arrow:
        name = field.name.lower()
        if name not in _COLUMNS:
            continue
        if name in fields or not _is_plain(name, field.type, file):
            return None
        fields[name] = field.with_type(_INSTANT) if name == "timestamp" else field
    return pa.schema(fields.values()) if "value" in fields else None


def _is_plain(name: str, kind: pa.DataType, file: pq.ParquetFile) -> bool:
    if name in ("key", "value"):
        return kind in _TEXT
    if name == "partition":
        return bool(kind == pa.int32())
    if name == "timestamp":
        # A time without a zone is none to Spark, but for the oldest of its formats, which are all in UTC.
        is_known = pa.types.is_timestamp(kind) and kind.unit in ("ms", "us")
        return is_known and (kind.tz is not None or _physical_type(file, name) == _INT96)
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    header = kind.value_type
    return tuple((header[i].name, header[i].type) for i in range(header.num_fields)) == _HEADER_FIELDS


def _physical_type(file: pq.ParquetFile, name: str) -> str:
    columns = (file.schema.column(number) for number in range(len(file.schema.names)))
    return next(str(column.physical_type) for column in columns if column.path.lower() == name)


def _row_groups(path: str, metadata: pq.FileMetaData, schema: pa.Schema) -> Iterator[RowGroup]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(index) for index in range(group.num_columns))
        size = sum(each.total_uncompressed_size for each in columns if _root(each.path_in_schema) in schema.names)
        yield RowGroup(path=path, number=number, rows=group.num_rows, size=size)


def _root(path_in_schema: str) -> str:
    return path_in_schema.partition(".")[0]


def rows_of(groups: tuple[RowGroup, ...], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups, in a task; raises PipelineError for a file that can not be read."""
    for group in groups:
        row_bytes = max(1, group.size // max(1, group.rows))
        batch_size = max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES // row_bytes))
        try:
            with pq.ParquetFile(group.path, memory_map=True, coerce_int96_timestamp_unit="us") as file:
                yield from file.iter_batches(batch_size, [group.number], columns, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(f"{group.path} can not be read: {error}") from None
