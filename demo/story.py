"""The steps of the demo: each says in a line what it does, and below it what came out.

Rule 1: whatever should hold is checked, and the demo fails if it does not.
Rule 2: the jobs run as functions in one session; what a person would type instead is said with each.
"""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from barnabas import Broker
from barnabas.cli.main import main as barnabas
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.clock import Clock, SystemClock
from barnabas.spark import archive, audit, ingest, profile, snapshot, table
from barnabas.spark.jobs.ingest import RecordExpressions
from barnabas.spark.jobs.job import JobResult, Progress, Report, say_nothing
from barnabas.spark.session import start_session
from demo.shop import ORDERS, PAYMENTS, SCHEMA, Shop
from demo.traffic import Traffic

PARTITIONS = 3
GROUP = "archive-of-orders"
ARCHIVE_SECONDS_MAX = 120

Result = TypeVar("Result", bound=JobResult)


@dataclass(kw_only=True)
class Story:
    """What all steps share."""

    folder: Path
    page: Path
    yesterday: int
    events: int
    events_a_second: int
    shop: Shop
    broker: Broker
    clock: Clock = field(default_factory=SystemClock)
    failures: list[str] = field(default_factory=list)
    _steps: int = 0

    @property
    def servers(self) -> str:
        """The address of the broker."""
        return self.broker.bootstrap_servers

    @property
    def archive(self) -> str:
        """The archive of the orders."""
        return str(self.folder / "lake" / ORDERS)

    def step(self, sentence: str, command: str = "") -> None:
        """Say what happens next, and what one would type for it."""
        self._steps += 1
        text = f"{self._steps}. {sentence}"
        print(f"\n\x1b[1m{text}\x1b[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)
        if command:
            print(f"   $ {command}", flush=True)

    def say(self, text: str) -> None:
        """Say what came out, without the folder that nobody knows."""
        for line in text.replace(f"file:{self.folder}/", "").replace(f"{self.folder}/", "").splitlines():
            print(f"   {line}", flush=True)

    def check(self, what: str, holds: bool) -> None:
        """Say whether something holds, and remember if it does not."""
        self.say(f"{what}: {'yes' if holds else 'NO'}.")
        if not holds:
            self.failures.append(what)

    def run(self, job: Callable[[], Result]) -> Result:
        """Run a job, and say its last line with the time that it took."""
        started = self.clock.monotonic_seconds()
        result = job()
        self.say(f"{result.sentence()} [{self.clock.monotonic_seconds() - started:.0f} s]")
        return result


def start_broker(story: Story) -> None:
    """A broker, and the topics of the shop."""
    story.step("A broker starts, as a process of its own. Every Kafka client can connect to it.", "barnabas serve")
    started = story.clock.monotonic_seconds()
    story.broker.start()
    with Client(story.servers) as client:
        topics = [NewTopic(name=name, partitions=PARTITIONS) for name in (ORDERS, PAYMENTS)]
        is_done = create_topics(client, topics) == {}
    story.say(f"{story.servers} answers after {story.clock.monotonic_seconds() - started:.1f} s.")
    story.check(f"Topics {ORDERS} and {PAYMENTS}, {PARTITIONS} partitions each, were created", is_done)


def start_spark(story: Story) -> SparkSession:
    """The session that all jobs share; raises PipelineError."""
    story.step("Spark starts, on this machine. The same jobs run on a cluster with `--master`.")
    started = story.clock.monotonic_seconds()
    spark = start_session("demo", conf={"spark.sql.shuffle.partitions": "2"})
    story.say(f"Spark {spark.version} is ready after {story.clock.monotonic_seconds() - started:.1f} s.")
    return spark


def ingest_yesterday(story: Story, spark: SparkSession) -> None:
    """Files to a topic."""
    files = story.folder / "yesterday"
    files.mkdir()
    story.shop.write_yesterday(files / "orders.csv", story.yesterday)
    story.step(
        f"Yesterday's {story.yesterday:,} orders, a CSV file of another system, go into the topic `{ORDERS}`.",
        f"barnabas pipeline ingest yesterday {ORDERS} --format csv --reader-option header=true --key id",
    )
    result = story.run(
        lambda: ingest(
            spark,
            str(files),
            ORDERS,
            bootstrap_servers=story.servers,
            source_format="csv",
            reader_options={"header": "true"},
            schema=SCHEMA,
            expressions=RecordExpressions(key="id"),
        )
    )
    story.check("Every row is a record", result.records == story.yesterday)


class ArchiveJob:
    """The job `archive`, which follows its topic on a thread until it is stopped."""

    def __init__(self, story: Story, spark: SparkSession) -> None:
        self._story = story
        self._spark = spark
        self._error: Exception | None = None
        self._offsets = 0
        self._has_moved = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            archive_orders(self._story, self._spark, follow=True, report=self._report)
        except Exception as error:  # noqa: BLE001 - It is said at the end, whatever it is.
            with self._has_moved:
                self._error = error
                self._has_moved.notify_all()

    def _report(self, progress: Progress) -> None:
        with self._has_moved:
            self._offsets = progress.done
            self._has_moved.notify_all()

    def wait_until_archived(self, offsets: int) -> None:
        """Return when so many offsets are archived, or when it is clear that they will never be."""
        with self._has_moved:
            self._has_moved.wait_for(lambda: self._offsets >= offsets or self._error, ARCHIVE_SECONDS_MAX)
        self._story.check(f"The archive follows, with {self._offsets:,} offsets so far", self._offsets >= offsets)

    def stop(self) -> None:
        """End the job in the middle of its work, as a person would with Ctrl-C."""
        for query in self._spark.streams.active:
            query.stop()
        self._thread.join()
        if self._error is not None:
            self._story.failures.append(f"the archive failed: {self._error}")


def archive_orders(story: Story, spark: SparkSession, *, follow: bool, report: Report = say_nothing) -> JobResult:
    """Run the job `archive`."""
    return archive(
        spark,
        ORDERS,
        story.archive,
        bootstrap_servers=story.servers,
        group_id=GROUP,
        follow=follow,
        trigger="1 second",
        report=report,
    )


def archive_while_events_arrive(story: Story, spark: SparkSession) -> None:
    """A day of the shop, with a broker that is killed in the middle of it."""
    story.step(
        f"The shop opens: orders are placed, paid and shipped, {story.events_a_second:,} events a second, sent by "
        "confluent-kafka. Meanwhile they are archived as Parquet.",
        f"barnabas pipeline archive {ORDERS} lake/{ORDERS} --group {GROUP} --follow",
    )
    with Traffic(story.servers, story.shop.today(), story.events_a_second) as traffic:
        job = ArchiveJob(story, spark)
        job.wait_until_archived(1)
        story.step("In the middle of it the broker is killed, and started again. Nobody is told.", "kill -9")
        story.broker.kill()
        started = story.clock.monotonic_seconds()
        story.broker.start()
        seconds = story.clock.monotonic_seconds() - started
        story.say(f"Killed after {traffic.sent:,} events; it is back after {seconds:.1f} s.")
        job.wait_until_archived(story.shop.order_records)
        job.stop()
        story.step("The archive job is stopped too, though events go on. Its lag:", f"barnabas groups describe {GROUP}")
        is_shown = barnabas(["groups", "describe", GROUP, "--bootstrap-server", story.servers]) == 0
        traffic.finish(at_least=story.events)
    story.say(f"The shop has closed: {traffic.acknowledged:,} events of orders and payments were acknowledged.")
    story.failures += traffic.failures
    story.check("Every event was acknowledged, and the lag shown", is_shown and traffic.acknowledged == traffic.sent)
    story.step("The archive goes on where it was.", f"barnabas pipeline archive {ORDERS} lake/{ORDERS} --group {GROUP}")
    story.run(lambda: archive_orders(story, spark, follow=False))


def audit_the_archive(story: Story, spark: SparkSession) -> None:
    """Nothing lost, nothing doubled, nothing changed."""
    story.step(
        "Is anything lost, doubled or changed? Topic and archive are compared, record by record.",
        f"barnabas pipeline audit {ORDERS} lake/{ORDERS}",
    )
    result = story.run(lambda: audit(spark, ORDERS, story.archive, bootstrap_servers=story.servers))
    archived = sum(each.records_in_archive for each in result.partitions)
    story.check("Topic and archive are the same", result.is_fine)
    story.check(f"The {story.shop.order_records:,} records of the shop are there", archived == story.shop.order_records)


def take_a_snapshot(story: Story, spark: SparkSession) -> None:
    """The latest state of every order."""
    output = str(story.folder / "lake" / "orders-now")
    story.step(
        "What is the state of every order now? The latest record of each is kept.",
        f"barnabas pipeline snapshot {ORDERS} lake/orders-now",
    )
    story.run(lambda: snapshot(spark, ORDERS, output, bootstrap_servers=story.servers, archive=story.archive))
    status = "get_json_object(cast(value AS string), '$.status')"
    rows = spark.read.parquet(output).selectExpr("cast(key AS string) AS id", f"{status} AS status").collect()
    statuses = {row.id: row.status for row in rows}
    counts = {status: list(statuses.values()).count(status) for status in ("placed", "paid", "shipped")}
    story.say(", ".join(f"{count:,} {status}" for status, count in counts.items()) + ".")
    story.check("Every order is in the state that the shop says", statuses == story.shop.statuses)


def draw_a_profile(story: Story, spark: SparkSession) -> None:
    """A page with charts."""
    story.step(
        "How many records, how large, which keys, at which rate? A page with charts says it; open it in a browser.",
        f"barnabas pipeline profile {ORDERS} --output {story.page.name}",
    )
    story.page.parent.mkdir(parents=True, exist_ok=True)
    story.run(lambda: profile(spark, ORDERS, story.page, bootstrap_servers=story.servers))


def query_the_whole(story: Story, spark: SparkSession) -> None:
    """Archive and live tail as one table."""
    with Traffic(story.servers, story.shop.today(), story.events_a_second) as traffic:
        traffic.finish(at_least=story.events // 10)
    story.failures += traffic.failures
    story.step(
        f"Late orders have come ({traffic.sent:,} events). Archive and topic are one table: revenue by product, in SQL."
    )
    story.say(f'table(spark, "{ORDERS}", archive="lake/{ORDERS}", bootstrap_servers="{story.servers}")')
    orders = table(spark, ORDERS, archive=story.archive, bootstrap_servers=story.servers)
    orders.selectExpr(f"from_json(cast(value AS string), '{SCHEMA}') AS data").select("data.*").createTempView("shop")
    revenue = spark.sql(
        "SELECT product, sum(cents) AS cents, count(*) AS orders FROM shop WHERE status = 'paid' "
        "GROUP BY product ORDER BY cents DESC"
    ).collect()
    for row in revenue:
        story.say(f"{row.product:8} {row.orders:8,} orders {row.cents / 100:16,.2f}")
    found = {row.product: row.cents for row in revenue}
    story.check("To the cent what the shop took in", found == dict(story.shop.revenue_cents))


def look_into_the_files(story: Story) -> None:
    """The tools that need no broker."""
    story.broker.stop()
    story.step(
        "The broker has stopped. Every batch, record, index and checkpoint that it left is checked.",
        "barnabas verify data",
    )
    story.check("The log directory is sound", barnabas(["verify", str(story.folder / "data")]) == 0)
    story.step(
        "Its files are Kafka's own. This is a checkpoint:", "barnabas dump data/recovery-point-offset-checkpoint"
    )
    barnabas(["dump", str(story.folder / "data" / "recovery-point-offset-checkpoint")])
