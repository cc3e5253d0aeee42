"""Which formats of tables there are, and that what Spark has no jars for is refused."""

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives import table_formats
from barnabas.spark.archives.manifest import ArchiveDescription
from barnabas.spark.archives.table_formats import check_table_format
from barnabas.spark.errors import OptionError, PipelineError


def test_only_what_spark_has_is_taken(spark: SparkSession) -> None:
    check_table_format(spark, "parquet")
    for missing in ("delta", "iceberg"):
        with pytest.raises(OptionError, match=rf"is {missing}, which this Spark does not have; start it with --conf"):
            check_table_format(spark, missing)
    with pytest.raises(OptionError, match="has to be one of: parquet, delta, iceberg"):
        check_table_format(spark, "csv")


def test_jars_for_another_spark_are_said_in_a_sentence() -> None:
    description = ArchiveDescription(topic="t", topic_id="1", table_format="delta")
    reason = r"the jars of delta are not for this version of Spark: .*NoSuchMethodError"
    with pytest.raises(PipelineError, match=reason), table_formats._told(description):
        raise RuntimeError("it failed\n: java.lang.NoSuchMethodError: 'void x()'\n at y")
    with pytest.raises(KeyError), table_formats._told(description):
        raise KeyError("other")
