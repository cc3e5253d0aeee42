"""The format `barnabas`, and who serves what."""

from barnabas.spark.data_source import BarnabasDataSource
from barnabas.spark.schema import spark_schema


def test_headers_are_a_column_where_they_are_asked_for() -> None:
    assert BarnabasDataSource.name() == "barnabas"
    assert BarnabasDataSource({}).schema() == spark_schema(include_headers=False)
    assert BarnabasDataSource({"includeHeaders": "TRUE"}).schema() == spark_schema(include_headers=True)
