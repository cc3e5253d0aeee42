"""The format `barnabas-segments`: log directories as DataFrames, without a broker."""

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter
from pyspark.sql.types import StructType

from barnabas.spark.schema import spark_schema


class SegmentsDataSource(DataSource):
    """The options of a query, and who serves it."""

    @classmethod
    def name(cls) -> str:
        """The name in `format("barnabas-segments")`."""
        return "barnabas-segments"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source."""
        return spark_schema(include_headers=self.options.get("includeHeaders", "false").lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Serve `spark.read`."""
        from barnabas.spark.segments.reader import SegmentsReader

        return SegmentsReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Serve `df.write`."""
        from barnabas.spark.segments.writer import SegmentsWriter

        return SegmentsWriter(self.options, schema, overwrite=overwrite)
