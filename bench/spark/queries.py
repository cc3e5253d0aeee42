"""The queries that are compared. Each is the same for every connector, but for the name of the format."""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from barnabas.spark.jobs.archive import archive
from barnabas.spark.jobs.load import load

VALUE_BYTES = 100
KEY_DIGITS = 12


def rows(spark: SparkSession, count: int) -> DataFrame:
    """So many rows with a key and a value of 100 bytes, which are made while they are read."""
    number = sql.lpad(sql.col("id").cast("string"), KEY_DIGITS, "0")
    filler = sql.lit("x" * (VALUE_BYTES - KEY_DIGITS))
    made = spark.range(0, count, 1, 4)
    return made.select(number.cast("binary").alias("key"), sql.concat(number, filler).cast("binary").alias("value"))


def rows_in_memory(spark: SparkSession, count: int) -> DataFrame:
    """The same rows, which Spark has made and keeps: to make them takes a third of the time that a bulk load takes."""
    made = rows(spark, count).cache()
    _to_nothing(made)
    return made


def _to_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def read(spark: SparkSession, source: str, options: Mapping[str, str], path: str | None = None) -> float:
    """Read everything, with all columns, into nothing; returns the seconds."""
    loaded = spark.read.format(source).options(**dict(options)).load(path)
    started = time.perf_counter()
    _to_nothing(loaded)
    return time.perf_counter() - started


def count(spark: SparkSession, source: str, options: Mapping[str, str], path: str | None = None) -> int:
    """How many rows there are, to know that what was measured was all of them."""
    return spark.read.format(source).options(**dict(options)).load(path).count()


def write(made: DataFrame, sink: str, options: Mapping[str, str], path: str | None = None) -> float:
    """Write rows; returns the seconds."""
    started = time.perf_counter()
    made.write.format(sink).options(**dict(options)).mode("append").save(path)
    return time.perf_counter() - started


def load_files(spark: SparkSession, files: str, topic: str, bootstrap_servers: str) -> float:
    """Load Parquet files in bulk; returns the seconds."""
    started = time.perf_counter()
    load(spark, files, topic, bootstrap_servers=bootstrap_servers)
    return time.perf_counter() - started


def stream_to_parquet(spark: SparkSession, source: str, options: Mapping[str, str], folder: Path) -> float:
    """Stream all that there is to Parquet, as a query that runs once; returns the seconds."""
    stream = spark.readStream.format(source).options(**dict(options)).option("startingOffsets", "earliest").load()
    writer = stream.writeStream.format("parquet").trigger(availableNow=True)
    started = time.perf_counter()
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "table"))
    query.awaitTermination()
    seconds = time.perf_counter() - started
    error = query.exception()
    if error is not None:
        raise error
    shutil.rmtree(folder)
    return seconds


def archive_topic(spark: SparkSession, topic: str, bootstrap_servers: str, folder: Path) -> tuple[float, int]:
    """Archive all that there is, with headers, as the job does it; returns the seconds, and how many records."""
    started = time.perf_counter()
    told = archive(spark, topic, str(folder), bootstrap_servers=bootstrap_servers)
    seconds = time.perf_counter() - started
    shutil.rmtree(folder)
    return seconds, told.records
