"""Columns that can be written, and those that can not."""

import pytest
from pyspark.sql.types import DataType, StructType

from barnabas.spark.errors import PipelineError
from barnabas.spark.sink.schema import check_schema

# Types are read from text by Spark itself.
pytestmark = pytest.mark.usefixtures("spark")


def schema(text: str) -> StructType:
    parsed = DataType.fromDDL(text)
    assert isinstance(parsed, StructType)
    return parsed


@pytest.mark.parametrize(
    ("text", "topic", "columns"),
    [
        ("value binary", "t", {"value"}),
        ("KEY string, Value string, topic string, other double", None, {"key", "value", "topic"}),
        (
            "key binary, value binary, topic string, partition int, timestamp timestamp, "
            "headers array<struct<key: string, value: binary>>, offset bigint",
            "t",
            {"key", "value", "topic", "partition", "timestamp", "headers"},
        ),
    ],
)
def test_known_columns_are_found_and_others_left_out(text: str, topic: str | None, columns: set[str]) -> None:
    assert check_schema(schema(text), topic) == columns


@pytest.mark.parametrize(
    ("text", "topic", "sentence"),
    [
        ("key string", "t", "the DataFrame has no column 'value', which is needed to write records"),
        ("value string", None, "no topic is named: give the option 'topic', or a column 'topic'"),
        ("value int", "t", "column 'value' is int, but has to be string or binary to be written"),
        ("value string, key double", "t", "column 'key' is double, but has to be string or binary to be written"),
        ("value string, topic int", None, "column 'topic' is int, but has to be string to be written"),
        ("value string, partition bigint", "t", "column 'partition' is bigint, but has to be int to be written"),
        ("value string, timestamp bigint", "t", "column 'timestamp' is bigint, but has to be timestamp to be written"),
        (
            "value string, headers map<string, binary>",
            "t",
            "column 'headers' is map<string,binary>, but has to be "
            "array<struct<key string, value binary>> to be written",
        ),
        (
            "value string, headers array<struct<key: string, value: string>>",
            "t",
            "column 'headers' is array<struct<key:string,value:string>>, but has to be "
            "array<struct<key string, value binary>> to be written",
        ),
        ("value string, VALUE string", "t", "the DataFrame has two columns 'value'; leave one of them out"),
    ],
)
def test_what_can_not_be_written_is_said_in_a_sentence(text: str, topic: str | None, sentence: str) -> None:
    with pytest.raises(PipelineError) as raised:
        check_schema(schema(text), topic)
    assert str(raised.value) == sentence
