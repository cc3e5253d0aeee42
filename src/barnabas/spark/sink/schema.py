"""Which columns a DataFrame has to have to be written, and what each may be.

    key string or binary, value string or binary, topic string, partition int, timestamp timestamp,
    headers array<struct<key string, value binary>>

Only value is needed, and topic unless the option `topic` is given. Columns of other names are left out, as Spark's own
sink does it; a column timestamp, which that sink leaves out too, becomes the time of the records.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas.spark.errors import PipelineError

_KINDS = {
    "key": "string or binary",
    "value": "string or binary",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
    "headers": "array<struct<key string, value binary>>",
}


def check_schema(schema: StructType, topic: str | None) -> frozenset[str]:
    """Return which of the columns there are.

    Raises:
        PipelineError: One is missing, is there twice, or has a type that can not be written.
    """
    columns: dict[str, DataType] = {}
    for field in schema.fields:
        name = field.name.lower()
        if name not in _KINDS:
            continue
        if name in columns:
            raise PipelineError(f"the DataFrame has two columns {name!r}; leave one of them out")
        columns[name] = field.dataType
    if "value" not in columns:
        raise PipelineError("the DataFrame has no column 'value', which is needed to write records")
    if "topic" not in columns and topic is None:
        raise PipelineError("no topic is named: give the option 'topic', or a column 'topic'")
    for name, kind in columns.items():
        if not _is_kind(name, kind):
            raise PipelineError(f"column '{name}' is {kind.simpleString()}, but has to be {_KINDS[name]} to be written")
    return frozenset(columns)


def _is_kind(name: str, kind: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(kind, StringType | BinaryType)
    if name == "topic":
        return isinstance(kind, StringType)
    if name == "partition":
        return isinstance(kind, IntegerType)
    if name == "timestamp":
        return isinstance(kind, TimestampType)
    return isinstance(kind, ArrayType) and _is_header(kind.elementType)


def _is_header(kind: DataType) -> bool:
    if not isinstance(kind, StructType) or len(kind.fields) != 2:
        return False
    key, value = kind.fields
    return _is_field(key, "key", StringType) and _is_field(value, "value", BinaryType)


def _is_field(field: StructField, name: str, kind: type[DataType]) -> bool:
    return field.name.lower() == name and isinstance(field.dataType, kind)
