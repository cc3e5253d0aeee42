"""Spark finds both formats by itself, and can be told of them where it does not."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas.spark import register


@pytest.mark.parametrize("name", ["barnabas", "barnabas-segments"])
def test_the_format_is_found_without_registering_it(spark: SparkSession, name: str) -> None:
    """Without it Spark would say DATA_SOURCE_NOT_FOUND; with it, it is the format that misses its options."""
    with pytest.raises(PySparkException) as raised:
        spark.read.format(name).load().collect()
    assert "DATA_SOURCE_NOT_FOUND" not in str(raised.value)


def test_a_session_can_be_told(spark: SparkSession) -> None:
    other = spark.newSession()
    register(other)
    with pytest.raises(PySparkException, match=r"option 'kafka\.bootstrap\.servers' is needed"):
        other.read.format("barnabas").option("subscribe", "orders").load().collect()
