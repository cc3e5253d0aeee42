"""The session that queries run in: `local[2]`, as docs/PIPELINE.md advises, with Spark's own connector beside ours."""

import os

from pyspark.sql import SparkSession

from barnabas.spark.session import CHECKPOINT_MANAGER, FAST_SETTINGS, QUICK_CHECKPOINT_MANAGER
from barnabas.spark.worker_python import workers_python
from tests.kafka_peer.jars import fetch_spark_connector

# FAST_SETTINGS, and what is advised for small rows, for checkpoints on a local disk, and for times in Parquet.
SETTINGS = {
    **FAST_SETTINGS,
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    CHECKPOINT_MANAGER: QUICK_CHECKPOINT_MANAGER,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def start_session() -> SparkSession:
    """Start the session of this process."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = workers_python()
    session = (
        SparkSession.builder.master("local[2]")
        .appName("barnabas bench")
        .config("spark.jars", ",".join(map(str, fetch_spark_connector())))
        .config("spark.driver.memory", "3g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config(map=SETTINGS)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
