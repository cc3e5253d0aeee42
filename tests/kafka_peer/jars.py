"""Jars of Apache Kafka and of Spark's Kafka connector, fetched once with Maven into a cache folder that all runs share.

The folder is $BARNABAS_PEERS, or ~/.cache/barnabas-peers; `.complete` in it says that the fetch was whole, and
holds the list of what was asked for. Where Maven downloads from is the machine's own configuration.
"""

import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

KAFKA_VERSION = "4.3.0"
# Without a logger Kafka says nothing at all, not even why it ended. This is the version of the API that Kafka uses.
SLF4J_VERSION = "1.7.36"
# The newest connector of Spark that is published; it runs on the newest Spark.
SPARK_CONNECTOR_VERSION = "4.2.0"
# The newest of Spark's Avro functions that is published; they run on the newest Spark.
SPARK_AVRO_VERSION = "4.1.1"
JAVA_VERSION_MIN = 17
FETCH_ATTEMPTS = 4
FETCH_TIMEOUT_S = 500

# Spark's own jars carry everything else that the connector needs.
SPARK_CONNECTOR = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
KAFKA = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
    f"org.slf4j:slf4j-simple:{SLF4J_VERSION}",
)


class PeerUnavailableError(Exception):
    """This machine cannot run a Kafka; the message is the reason that a skipped test shows."""


def peers_folder() -> Path:
    """Where peers are kept between runs."""
    return Path(os.environ.get("BARNABAS_PEERS") or Path.home() / ".cache" / "barnabas-peers")


def require_java() -> str:
    """The path of a Java runtime that is new enough."""
    java = shutil.which("java")
    if java is None:
        raise PeerUnavailableError("there is no Java runtime (java)")
    shown = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        raise PeerUnavailableError(
            f"Kafka needs Java {JAVA_VERSION_MIN} or later, and {java} is {shown.splitlines()[:1]}"
        )
    return java


def fetch_kafka() -> Path:
    """The folder of Kafka's jars, fetched if it is not there; raises `PeerUnavailableError` where it cannot be."""
    require_java()
    return _fetched(peers_folder() / f"kafka-{KAFKA_VERSION}", _pom(KAFKA, with_what_they_need=True))


def fetch_spark_connector() -> list[Path]:
    """The jars of Spark's own Kafka connector, fetched if they are not there; raises `PeerUnavailableError`."""
    require_java()
    pom = _pom(SPARK_CONNECTOR, with_what_they_need=False)
    return sorted(_fetched(peers_folder() / f"spark-connector-{SPARK_CONNECTOR_VERSION}", pom).glob("*.jar"))


def fetch_spark_avro() -> Path:
    """The jar of Spark's Avro functions, fetched if it is not there; raises `PeerUnavailableError`."""
    require_java()
    pom = _pom((f"org.apache.spark:spark-avro_2.13:{SPARK_AVRO_VERSION}",), with_what_they_need=False)
    (jar,) = _fetched(peers_folder() / f"spark-avro-{SPARK_AVRO_VERSION}", pom).glob("*.jar")
    return jar


def _pom(artifacts: Sequence[str], *, with_what_they_need: bool) -> str:
    """What Maven is asked for."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{'' if with_what_they_need else alone}</dependency>\n"
        for group, name, version in (artifact.split(":") for artifact in artifacts)
    )
    return f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>peer</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
{dependencies}</dependencies></project>
"""


def _fetched(folder: Path, pom: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    complete = folder / ".complete"
    if _is_complete(complete, pom):
        return folder
    # Two runs that start together fetch once: the second waits here and then finds the folder complete.
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(complete, pom):
            _fetch_into(folder, pom)
            complete.write_text(pom, encoding="utf-8")
    return folder


def _is_complete(marker: Path, pom: str) -> bool:
    return marker.exists() and marker.read_text(encoding="utf-8") == pom


def _fetch_into(folder: Path, text: str) -> None:
    """Runs Maven; a registry that is asked too fast refuses (429), so a failure is tried again after a pause."""
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailableError("the jars are not fetched yet, and there is no Maven (mvn) to fetch them")
    pom = folder / "pom.xml"
    pom.write_text(text, encoding="utf-8")
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    deadline = time.monotonic() + FETCH_TIMEOUT_S
    said = ""
    for attempt in range(1, FETCH_ATTEMPTS + 1):
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=max(1.0, deadline - time.monotonic()),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PeerUnavailableError(f"Maven did not fetch the jars within {FETCH_TIMEOUT_S} s") from None
        if done.returncode == 0:
            return
        said = done.stdout
        if attempt < FETCH_ATTEMPTS:
            time.sleep(attempt * 10)
    last = next((line for line in said.splitlines() if "ERROR" in line), "it said nothing")
    raise PeerUnavailableError(f"Maven could not fetch the jars: {last}")
