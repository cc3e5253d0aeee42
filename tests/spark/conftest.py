"""One Spark session for all tests of the pipeline: it takes seconds to start, and a process can have only one.

Both connectors are in it: `barnabas`, found by Spark itself, and `kafka`, whose jars are fetched once. Queries of one
test do not see those of another; what a test sets in the session's configuration it puts back.
"""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.worker_python import workers_python
from tests.kafka_peer.jars import PeerUnavailableError, fetch_spark_connector

# Python workers are started by the JVM, which would otherwise take the first `python3` of the path.
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = workers_python()


@pytest.fixture(scope="session")
def connector_jars() -> list[Path]:
    """The jars of Spark's own connector; a test that starts a Spark of its own needs this, to skip without Java."""
    try:
        return fetch_spark_connector()
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def spark(connector_jars: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with both connectors."""
    builder = (
        SparkSession.builder.master(os.environ.get("BARNABAS_TEST_MASTER", "local[2]"))
        .appName("barnabas tests")
        .config("spark.jars", ",".join(map(str, connector_jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    )
    with warnings.catch_warnings():
        # PySpark leaves sockets and pipes to the garbage collector while it starts.
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    yield session
    session.stop()
