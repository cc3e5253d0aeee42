"""The format `barnabas`: topics of any Kafka-compatible cluster as DataFrames, batch and streaming, both directions.

Spark makes one of these from the options of a query, on the driver, asks it for a reader or a writer, and pickles that
to the tasks. What is read and how is in `source`, what is written in `sink`.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from barnabas.spark.schema import spark_schema


class BarnabasDataSource(DataSource):
    """The options of a query, and who serves it."""

    @classmethod
    def name(cls) -> str:
        """The name in `format("barnabas")`."""
        return "barnabas"

    def schema(self) -> StructType:
        """The columns of Spark's Kafka source."""
        return spark_schema(include_headers=self.options.get("includeHeaders", "false").lower() == "true")

    def reader(self, schema: StructType) -> DataSourceReader:
        """Serve `spark.read`."""
        from barnabas.spark.source.reader import BatchReader

        return BatchReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Serve `spark.readStream`."""
        from barnabas.spark.source.stream_reader import StreamReader

        return StreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Serve `df.write`."""
        from barnabas.spark.sink.writer import BatchWriter

        return BatchWriter(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """Serve `df.writeStream`."""
        from barnabas.spark.sink.stream_writer import StreamWriter

        return StreamWriter(self.options, schema)
