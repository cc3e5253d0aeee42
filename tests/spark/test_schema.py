"""The columns are those of Spark's own Kafka source."""

import pytest
from pyspark.sql import SparkSession

from barnabas.embedded import Broker
from barnabas.spark.schema import arrow_schema, spark_schema


@pytest.mark.parametrize("include_headers", [False, True])
def test_columns_are_those_of_spark(spark: SparkSession, barnabas_broker: Broker, include_headers: bool) -> None:
    theirs = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", barnabas_broker.bootstrap_servers)
        .option("subscribe", "orders")
        .option("includeHeaders", str(include_headers).lower())
        .load()
        .schema
    )
    ours = spark_schema(include_headers=include_headers)
    assert ours.simpleString() == theirs.simpleString()
    assert arrow_schema(include_headers=include_headers).names == ours.names
