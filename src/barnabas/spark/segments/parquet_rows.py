"""Rows of Parquet files on a disk that every task sees, read by the tasks of a bulk load themselves.

Spark's JVM would make rows of the columns in a file and hand them to Python, where columns are made of them again. Here
they stay columns: a load of files takes half the time.

    driver   plan_files   a path  ->  the row groups that each task reads, or None where Spark has to do it
    task     rows_of      row groups  ->  RecordBatches

Rule 1: this is for files that Spark would read in the same way, and for nothing else. Patterns, paths that are not
absolute, folders inside of folders, files that differ from each other or have another schema written down than they
have, and types that Spark reads by rules of its own are left to Spark, and so is saying what is wrong with a path.
Rule 2: the order is that of the files' names, and of the rows in them.
Rule 3: what Spark has written is checked against its sums, as Spark would.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from barnabas.spark.errors import PipelineError
from barnabas.spark.segments.hadoop_checksums import is_sound
from barnabas.spark.segments.planning import pack

# What Spark does not read, what it reads in ways of its own, and what it takes for a pattern or another file system.
_HIDDEN = ("_", ".")
_SUMMARIES = ("_metadata", "_common_metadata")
_COPYING = "._COPYING_"
_SPECIAL = frozenset("*?[]{}\\:")
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_MAGIC_AND_LENGTH_BYTES = 8
_COLUMNS = frozenset(("key", "value", "headers", "partition", "timestamp"))
_TEXT = (pa.binary(), pa.string())
_HEADER_FIELDS = (("key", pa.string()), ("value", pa.binary()))
_INT96 = "INT96"
_INSTANT = pa.timestamp("us", "UTC")

_TASK_BYTES_MAX = 256 * 1024 * 1024
_BATCH_ROWS_MAX = 16 * 1024
_BATCH_BYTES = 8 * 1024 * 1024
# A dictionary tells nothing of how large rows are. Writers let one grow to a megabyte.
_DICTIONARY_ROWS_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A row group of a file; its size is that of the columns that are read, decompressed."""

    path: str
    number: int
    rows: int
    size: int
    start_position: int
    end_position: int
    has_dictionary: bool

    @property
    def rows_together(self) -> int:
        """How many rows are decoded at a time."""
        rows_max = _DICTIONARY_ROWS_MAX if self.has_dictionary else _BATCH_ROWS_MAX
        row_bytes = max(1, self.size // max(1, self.rows))
        return max(1, min(rows_max, _BATCH_BYTES // row_bytes))


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
                if not _is_as_written(file, opened.metadata, found):
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
    if not os.path.isabs(path) or path.startswith("//") or _SPECIAL.intersection(path):
        return []
    if os.path.isfile(path):
        return [] if _is_peculiar(os.path.basename(path)) or _is_hidden(path) else [path]
    try:
        entries = list(os.scandir(path))
    except OSError:
        return []
    if any(_is_peculiar(entry.name) for entry in entries):
        return []
    files = [entry for entry in entries if not _is_hidden(entry.path)]
    return sorted(entry.path for entry in files) if all(entry.is_file() for entry in files) else []


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(_HIDDEN)


def _is_peculiar(name: str) -> bool:
    """Tell whether Spark has a rule for such a name: a column's value, a copy under way, a summary of the folder."""
    return (name.startswith("_") and "=" in name) or name.endswith(_COPYING) or name in _SUMMARIES


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


def _is_as_written(path: str, metadata: pq.FileMetaData, schema: pa.Schema) -> bool:
    """Tell whether a footer is sound, and the columns that Spark has written down in it are those of the file."""
    end = os.path.getsize(path)
    if not is_sound(path, end - metadata.serialized_size - _MAGIC_AND_LENGTH_BYTES, end):
        return False
    noted = (metadata.metadata or {}).get(_SPARK_SCHEMA)
    if noted is None:
        return True
    try:
        fields = StructType.fromJson(json.loads(noted)).fields
    except (ValueError, KeyError, TypeError):
        return False
    found = {field.name: field.dataType for field in from_arrow_schema(schema).fields}
    return found == {field.name: field.dataType for field in fields if field.name.lower() in _COLUMNS}


def _row_groups(path: str, metadata: pq.FileMetaData, schema: pa.Schema) -> Iterator[RowGroup]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        every = (group.column(index) for index in range(group.num_columns))
        columns = [each for each in every if each.path_in_schema.partition(".")[0] in schema.names]
        starts = [each.dictionary_page_offset or each.data_page_offset for each in columns]
        yield RowGroup(
            path=path,
            number=number,
            rows=group.num_rows,
            size=sum(each.total_uncompressed_size for each in columns),
            start_position=min(starts),
            end_position=max(start + each.total_compressed_size for start, each in zip(starts, columns, strict=True)),
            has_dictionary=any(each.has_dictionary_page for each in columns),
        )


def rows_of(groups: tuple[RowGroup, ...], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups, in a task; raises PipelineError for a file that can not be read."""
    for group in groups:
        try:
            if not is_sound(group.path, group.start_position, group.end_position):
                raise PipelineError(f"{group.path} can not be read: it is not as it was written, by its checksums")
            with pq.ParquetFile(group.path, coerce_int96_timestamp_unit="us") as file:
                yield from file.iter_batches(group.rows_together, [group.number], columns, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(f"{group.path} can not be read: {error}") from None
