"""The format's name and columns; what it does is tested with its reader and writer."""

from barnabas.spark.segments.data_source import SegmentsDataSource
from barnabas.spark.segments.reader import SegmentsReader


def test_the_format_has_the_columns_of_the_source() -> None:
    source = SegmentsDataSource({"path": "/data", "includeHeaders": "true"})
    assert source.name() == "barnabas-segments"
    assert source.schema().fieldNames()[-1] == "headers"
    assert "headers" not in SegmentsDataSource({}).schema().fieldNames()
    assert isinstance(source.reader(source.schema()), SegmentsReader)
