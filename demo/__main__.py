"""`python -m demo`, which is `make demo`: tells the story from the first order to the last check."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from pyspark.errors import PySparkException

from barnabas import Broker
from barnabas.spark.errors import PipelineError
from demo import story as steps
from demo.shop import Shop
from demo.story import Story


def main(arguments: list[str] | None = None) -> int:
    """Run all steps; the exit code is 1 when something did not hold, and 2 when Spark could not do its part."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--events", type=int, default=30_000, help="how many events come at least (default: 30000)")
    parser.add_argument("--rate", type=int, default=2_000, help="how many of them a second (default: 2000)")
    parser.add_argument("--seed", type=int, default=7, help="another seed is another day (default: 7)")
    parser.add_argument("--page", type=Path, default=Path("build/orders.html"), help="where the profile goes")
    given = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="barnabas-demo-"))
    # The broker keeps its groups and transactions in one partition each, so that its files are few enough to show.
    settings = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    broker = Broker(data=folder / "data", settings=settings)
    story = Story(
        folder=folder,
        page=given.page.absolute(),
        yesterday=given.events // 3,
        events=given.events,
        events_a_second=given.rate,
        shop=Shop(given.seed),
        broker=broker,
    )
    started = story.clock.monotonic_seconds()
    try:
        _tell(story)
    except (PipelineError, PySparkException) as error:
        print(f"demo: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    finally:
        broker.stop()
        shutil.rmtree(folder)
    print(f"\nThat took {story.clock.monotonic_seconds() - started:.0f} s. The page stays: {story.page}")
    for failure in story.failures:
        print(f"demo: this did not hold: {failure}", file=sys.stderr)
    return 1 if story.failures else 0


def _tell(story: Story) -> None:
    steps.start_broker(story)
    spark = steps.start_spark(story)
    try:
        steps.ingest_yesterday(story, spark)
        steps.archive_while_events_arrive(story, spark)
        steps.audit_the_archive(story, spark)
        steps.take_a_snapshot(story, spark)
        steps.draw_a_profile(story, spark)
        steps.query_the_whole(story, spark)
    finally:
        spark.stop()
    steps.look_into_the_files(story)


if __name__ == "__main__":
    sys.exit(main())
