"""Apache Kafka's jars, fetched once with Maven into a cache folder that all runs share.

The folder is $BARNABAS_PEERS, or ~/.cache/barnabas-peers; `.complete` in it says that the fetch was whole, and
holds the list of what was asked for. Where Maven downloads from is the machine's own configuration.
"""

import fcntl
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

KAFKA_VERSION = "4.3.0"
# Without a logger Kafka says nothing at all, not even why it ended. This is the version of the API that Kafka uses.
SLF4J_VERSION = "1.7.36"
JAVA_VERSION_MIN = 17
FETCH_ATTEMPTS = 4
FETCH_TIMEOUT_S = 500

POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>peer</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>{SLF4J_VERSION}</version></dependency>
</dependencies></project>
"""


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
    folder = peers_folder() / f"kafka-{KAFKA_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    complete = folder / ".complete"
    if _is_complete(complete):
        return folder
    # Two runs that start together fetch once: the second waits here and then finds the folder complete.
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete(complete):
            _fetch_into(folder)
            complete.write_text(POM, encoding="utf-8")
    return folder


def _is_complete(marker: Path) -> bool:
    return marker.exists() and marker.read_text(encoding="utf-8") == POM


def _fetch_into(folder: Path) -> None:
    """Runs Maven; a registry that is asked too fast refuses (429), so a failure is tried again after a pause."""
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailableError("Kafka's jars are not fetched yet, and there is no Maven (mvn) to fetch them")
    pom = folder / "pom.xml"
    pom.write_text(POM, encoding="utf-8")
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
            raise PeerUnavailableError(f"Maven did not fetch Kafka's jars within {FETCH_TIMEOUT_S} s") from None
        if done.returncode == 0:
            return
        said = done.stdout
        if attempt < FETCH_ATTEMPTS:
            time.sleep(attempt * 10)
    last = next((line for line in said.splitlines() if "ERROR" in line), "it said nothing")
    raise PeerUnavailableError(f"Maven could not fetch Kafka's jars: {last}")
