"""The pipeline on Spark: our connector and formats on Barnabas, and Spark's own Kafka connector on Apache Kafka.

Both brokers run beside one session, `local[2]`. What is compared runs in turns, and medians are compared; the first
rounds are not counted, because Java still compiles then what the queries run.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from bench.control import Control
from bench.load.spec import LoadError
from bench.measurement import Measurement
from bench.peers import Peer, start_barnabas, start_kafka
from bench.spark import queries
from bench.spark.memory import MemoryWatch, Peak
from bench.spark.session import start_session

PARTITIONS = 4
SETTLED_TIMEOUT_S = 60.0
KAFKA, OURS, SEGMENTS, ARCHIVE = "kafka", "barnabas", "barnabas-segments", "archive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much of everything."""

    # A task calls the loops that rows go through once, so that Java compiles them late: rounds gain until the fourth.
    warm_ups: int = 3
    rounds: int = 7
    rows: int = 5_000_000
    sessions: int = 3

    @classmethod
    def chosen(cls) -> "Plan":
        """The whole plan, or with BENCH_ROUNDS fewer rounds and rows, to see that it works."""
        rounds = int(os.environ.get("BENCH_ROUNDS", "0"))
        return cls(warm_ups=1, rounds=rounds, rows=500_000, sessions=1) if rounds else cls()


def run() -> Iterator[Measurement]:
    """Measure everything, in a session and a folder of its own."""
    session = start_session()
    try:
        yield from measure(session, Plan.chosen())
    finally:
        session.stop()


def measure(
    spark: SparkSession, plan: Plan, start_other: Callable[[Path], Peer] = start_kafka
) -> Iterator[Measurement]:
    """Measure as planned, beside another broker."""
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    peers: list[Peer] = []
    try:
        peers += [start_barnabas(folder / OURS), start_other(folder / KAFKA)]
        bench = Bench(spark, peers[0], peers[1], plan, folder)
        # First, because what comes later fills the driver's memory, and would hide what this takes.
        yield from bench.memory()
        yield from bench.writing()
        yield from bench.loading()
        yield from bench.reading()
        yield from bench.streaming()
    finally:
        for peer in peers:
            peer.close()
        shutil.rmtree(folder)


class Bench:
    """Runs the queries, on two brokers."""

    def __init__(self, spark: SparkSession, barnabas: Peer, kafka: Peer, plan: Plan, folder: Path) -> None:
        self._spark = spark
        self._peers = {OURS: barnabas, SEGMENTS: barnabas, KAFKA: kafka}
        self._plan = plan
        self._folder = folder
        self._topics = 0

    def writing(self) -> Iterator[Measurement]:
        """Rows in Spark's memory to a topic: through the broker, and as segments that it adopts."""
        made = queries.rows_in_memory(self._spark, self._plan.rows)
        seconds: dict[str, list[float]] = {KAFKA: [], OURS: [], SEGMENTS: []}
        for counts in self._rounds():
            for sink, found in seconds.items():
                topic = self._create_topic(sink)
                path = self._data_folder() if sink == SEGMENTS else None
                took = queries.write(made, sink, {**self._servers(sink), "topic": topic}, path)
                self._check(sink, topic, self._plan.rows)
                self._say(f"write, {sink}", took)
                self._delete_topic(sink, topic)
                if counts:
                    found.append(took)
        made.unpersist(blocking=True)
        yield from self._compared("batch write", seconds, {OURS: 2, SEGMENTS: 4})

    def loading(self) -> Iterator[Measurement]:
        """Files to a topic: as the job `load` does it, and by reading and writing them with Spark."""
        files = str(self._folder / "rows")
        queries.rows(self._spark, self._plan.rows).write.parquet(files)
        seconds: dict[str, list[float]] = {KAFKA: [], SEGMENTS: []}
        for counts in self._rounds():
            for sink, found in seconds.items():
                topic = self._create_topic(sink)
                if sink == KAFKA:
                    rows = self._spark.read.parquet(files)
                    took = queries.write(rows, sink, {**self._servers(sink), "topic": topic})
                else:
                    took = queries.load_files(self._spark, files, topic, self._address(sink))
                self._check(sink, topic, self._plan.rows)
                self._say(f"load of files, {sink}", took)
                self._delete_topic(sink, topic)
                if counts:
                    found.append(took)
        shutil.rmtree(files)
        yield from self._compared("bulk load of files", seconds, {SEGMENTS: 4})

    def reading(self) -> Iterator[Measurement]:
        """A topic to nothing: through the broker, and from its files."""
        topics = {source: self._filled_topic(source, self._plan.rows) for source in (KAFKA, OURS)}
        topics[SEGMENTS] = topics[OURS]
        seconds: dict[str, list[float]] = {KAFKA: [], OURS: [], SEGMENTS: []}
        broker_cpu: list[float] = []
        for counts in self._rounds():
            for source, found in seconds.items():
                before = self._peers[source].cost().cpu_s
                took = queries.read(self._spark, source, *self._from(source, topics[source]))
                if source == SEGMENTS:
                    broker_cpu.append(self._peers[source].cost().cpu_s - before)
                self._say(f"read, {source}", took)
                if counts:
                    found.append(took)
        for source in seconds:
            if queries.count(self._spark, source, *self._from(source, topics[source])) != self._plan.rows:
                raise LoadError(f"{source} does not read every row")
        yield from self._compared("batch read", seconds, {OURS: 2, SEGMENTS: 2.5})
        yield Measurement(
            name="the broker's CPU while its segments are read",
            value=max(broker_cpu),
            unit="s",
            floor=0.05,
            note="its timers go on; the most in a round",
        )
        for source in (KAFKA, OURS):
            self._delete_topic(source, topics[source])

    def streaming(self) -> Iterator[Measurement]:
        """A topic to Parquet, as a stream: by the same query on both sides, and by the job `archive`."""
        seconds: dict[str, list[float]] = {KAFKA: [], OURS: [], ARCHIVE: []}
        topics = {source: self._filled_topic(source, self._plan.rows) for source in (KAFKA, OURS)}
        for number, counts in enumerate(self._rounds()):
            for source, found in seconds.items():
                folder = self._folder / f"{source}-{number}"
                if source == ARCHIVE:
                    took = self._archive(topics[OURS], folder)
                else:
                    options, _ = self._from(source, topics[source])
                    took = queries.stream_to_parquet(self._spark, source, options, folder)
                self._say(f"stream, {source}", took)
                if counts:
                    found.append(took)
        yield from self._compared("stream to Parquet", seconds, {OURS: 2, ARCHIVE: 2})
        yield from self._first_streams(topics)
        for source, topic in topics.items():
            self._delete_topic(source, topic)

    def _first_streams(self, topics: Mapping[str, str]) -> Iterator[Measurement]:
        """The same as the first query of a session, where most of the time goes into a JVM that compiles it."""
        seconds: dict[str, list[float]] = {KAFKA: [], OURS: [], ARCHIVE: []}
        for number in range(self._plan.sessions):
            for source, found in seconds.items():
                place = OURS if source == ARCHIVE else source
                query = [source, self._address(place), topics[place], str(self._folder / f"{source}-first-{number}")]
                command = [sys.executable, "-m", "bench.spark.first_stream", *query]
                found.append(float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
                self._say(f"first stream, {source}", found[-1])
        yield from self._compared("first stream of a session", seconds, {OURS: None, ARCHIVE: None})

    def _archive(self, topic: str, folder: Path) -> float:
        took, records = queries.archive_topic(self._spark, topic, self._address(OURS), folder)
        if records != self._plan.rows:
            raise LoadError(f"archive has {records:,} records, and not {self._plan.rows:,}")
        return took

    def memory(self) -> Iterator[Measurement]:
        """Ten times the data must not take more memory; of reading and of writing, the greater."""
        self._peak(self._plan.rows)  # Not counted: the JVM's heap grows with the first queries, whatever they keep.
        small, large = self._peak(self._plan.rows // 10), self._peak(self._plan.rows)
        yield Measurement(
            name="memory of the Python workers, ten times the data",
            value=large.workers_mb / small.workers_mb,
            unit="x",
            floor=1.3,
            note=f"{small.workers_mb:,.0f} MB with {self._plan.rows // 10:,} rows, {large.workers_mb:,.0f} MB with ten "
            "times as many; daemon and two workers",
        )
        yield Measurement(
            name="memory of the driver's JVM, ten times the data",
            value=large.driver_mb / small.driver_mb,
            unit="x",
            floor=1.3,
            note=f"{small.driver_mb:,.0f} MB and {large.driver_mb:,.0f} MB",
        )

    def _peak(self, count: int) -> Peak:
        driver = self._spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
        with MemoryWatch(driver) as watch:
            topic = self._filled_topic(OURS, count)
            queries.read(self._spark, OURS, *self._from(OURS, topic))
        self._delete_topic(OURS, topic)
        return watch.peak

    def _rounds(self) -> Iterator[bool]:
        """Yield of every round whether it counts."""
        yield from [False] * self._plan.warm_ups
        yield from [True] * self._plan.rounds

    def _compared(
        self, what: str, seconds: dict[str, list[float]], floors: Mapping[str, float | None]
    ) -> Iterator[Measurement]:
        speeds = {name: [self._plan.rows / each for each in found] for name, found in seconds.items()}
        for name, found in speeds.items():
            yield Measurement(
                name=f"{what}, {name}",
                value=statistics.median(found),
                unit="rows/s",
                note=f"{min(found):,.0f} to {max(found):,.0f} in {len(found)} rounds",
            )
        for name, floor in floors.items():
            ratios = [mine / other for mine, other in zip(speeds[name], speeds[KAFKA], strict=True)]
            yield Measurement(
                name=f"{what}, {name} against Spark's connector on Kafka",
                value=statistics.median(ratios),
                unit="x",
                floor=floor,
                lower_is_better=False,
                note=f"{min(ratios):,.3g} to {max(ratios):,.3g}",
            )

    # Topics

    def _address(self, connector: str) -> str:
        return f"127.0.0.1:{self._peers[connector].port}"

    def _servers(self, connector: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._address(connector)}

    def _data_folder(self) -> str:
        return str(self._peers[OURS].folder / "data")

    def _from(self, source: str, topic: str) -> tuple[dict[str, str], str | None]:
        if source == SEGMENTS:
            return {"subscribe": topic}, self._data_folder()
        return {**self._servers(source), "subscribe": topic}, None

    def _create_topic(self, connector: str) -> str:
        self._topics += 1
        topic = f"bench-{self._topics:05}"
        control = Control(self._peers[connector].port)
        control.create_topic(topic, PARTITIONS)
        control.close()
        return topic

    def _delete_topic(self, connector: str, topic: str) -> None:
        """Delete a topic, and wait until it is off the disk: the next query is not to be slowed down by that."""
        peer = self._peers[connector]
        control = Control(peer.port)
        control.delete_topic(topic)
        control.close()
        deadline = time.monotonic() + SETTLED_TIMEOUT_S
        while any(peer.folder.glob(f"**/{topic}-*")):
            if time.monotonic() > deadline:
                raise LoadError(f"{topic} was deleted, and is still in {peer.folder}")
            time.sleep(0.05)
        os.sync()

    def _filled_topic(self, connector: str, count: int) -> str:
        """A topic with so many rows, written by our sink: both brokers get the same batches."""
        topic = self._create_topic(connector)
        queries.write(queries.rows(self._spark, count), OURS, {**self._servers(connector), "topic": topic})
        self._check(connector, topic, count)
        return topic

    def _check(self, connector: str, topic: str, count: int) -> None:
        control = Control(self._peers[connector].port)
        ends = control.end_offsets(topic, PARTITIONS)
        control.close()
        if sum(ends) != count:
            raise LoadError(f"{topic} has {sum(ends):,} records, and not {count:,}")

    def _say(self, what: str, seconds: float) -> None:
        print(f"{what}: {self._plan.rows / seconds:,.0f} rows/s", file=sys.stderr, flush=True)
