"""Profiles: figures against a plain computation over the same records, from a broker and from log directories."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas import Broker
from barnabas.spark import connecting
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs.job import Progress
from barnabas.spark.jobs.profile import profile
from barnabas.spark.jobs.profile_result import ProfileFigures
from tests.kafka_peer.peer import KafkaPeer
from tests.spark.jobs.histories import START_MS, Record, random_history, write
from tests.spark.sink.topics import make_topic


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data=tmp_path_factory.mktemp("profile") / "data") as started:
        yield started
    connecting.close_clients()


def size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def check_figures(seen: ProfileFigures, written: Sequence[Record], partitions: int) -> None:
    """Compare all figures with those of a plain computation."""
    keys = Counter(record.key for record in written if record.key is not None)
    by_partition = [[record for record in written if record.partition == number] for number in range(partitions)]
    assert seen.records == sum(each.records for each in seen.times) == len(written)
    assert seen.size_bytes == sum(each.size_bytes for each in seen.times) == sum(map(size_of, written))
    assert (seen.distinct_keys, seen.distinct_keys_are_exact, seen.top_keys_error) == (len(keys), True, 0)
    assert seen.records_without_key == sum(record.key is None for record in written)
    assert seen.tombstones == sum(record.value is None for record in written)
    times = [record.timestamp_ms for record in written]
    assert (seen.first_timestamp_ms, seen.last_timestamp_ms) == (min(times), max(times))
    assert seen.records_per_second == pytest.approx(len(written) * 1000 / (max(times) - min(times)))
    assert seen.peak_records_per_second == max(Counter(time // 1000 for time in times).values())
    assert seen.out_of_order == sum(
        later.timestamp_ms < earlier.timestamp_ms for each in by_partition for earlier, later in pairwise(each)
    )
    assert [(each.records, each.size_bytes, each.start_offset, each.end_offset) for each in seen.partitions] == [
        (len(each), sum(map(size_of, each)), 0, len(each)) for each in by_partition
    ]
    assert seen.skew == pytest.approx(max(map(len, by_partition)) * partitions / len(written))
    sizes = sorted(len(record.value) for record in written if record.value is not None)
    assert (seen.value_sizes.smallest, seen.value_sizes.largest) == (sizes[0], sizes[-1])
    assert seen.value_sizes.average == pytest.approx(sum(sizes) / len(sizes))
    assert seen.value_sizes.p90 == pytest.approx(sizes[int(0.9 * len(sizes))], rel=0.04)
    assert sum(each.records for each in seen.value_sizes.bins) == len(sizes)
    for each in seen.value_sizes.bins:
        assert each.records == sum(each.smallest <= size <= each.largest for size in sizes)
    assert [each.records for each in seen.top_keys] == sorted(keys.values(), reverse=True)[:20]
    assert {each.key: each.records for each in seen.top_keys}.items() <= {
        key.decode(): count for key, count in keys.items()
    }.items()


def test_the_figures_of_a_topic(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    topic, written = random_history(broker.bootstrap_servers, seed=9)
    told: list[Progress] = []
    target = tmp_path / "page.html"
    # Few records a task, so that summaries are merged.
    options = {"maxRecordsPerPartition": "50"}
    servers = broker.bootstrap_servers
    result = profile(spark, topic, target, bootstrap_servers=servers, options=options, report=told.append)
    check_figures(result.figures, written, 3)
    assert result.figures.settings["retention.ms"] == "-1"
    assert f"has {len(written):,} records" in result.sentence()
    assert result.as_dict()["figures"]["times"][0]["records"] == result.figures.times[0].records
    text = target.read_text()
    assert text.count("<svg role") == 4
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"], "no draft is left"
    # Nothing is fetched from anywhere.
    assert not re.search(r"https?:|<script|<link|<img|@import|url\(", text)
    again = profile(spark, topic, target, directories=[broker.data])
    check_figures(again.figures, written, 3)


@pytest.mark.kafka
def test_the_figures_of_a_topic_of_kafka(spark: SparkSession, kafka_peer: KafkaPeer, tmp_path: Path) -> None:
    topic, written = random_history(kafka_peer.bootstrap_servers, seed=10, records=200)
    result = profile(spark, topic, tmp_path / "page.html", bootstrap_servers=kafka_peer.bootstrap_servers)
    check_figures(result.figures, written, 3)
    connecting.close_clients()


def test_what_comes_from_data_is_escaped_and_an_empty_topic_has_a_page(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = make_topic(broker.bootstrap_servers, 2, {"retention.ms": "-1"})
    empty = profile(spark, topic, tmp_path / "empty.html", bootstrap_servers=broker.bootstrap_servers)
    assert (empty.figures.records, len(empty.figures.partitions)) == (0, 2)
    assert "There is no record in it." in (tmp_path / "empty.html").read_text()
    evil = b"</th><script>alert(1)</script>"
    keys = [evil, b'" onload="x', b"\xff\x00", "Käse".encode(), b"", b"k" * 500]
    records = [Record(0, number, START_MS, key, b"v") for number, key in enumerate(keys)]
    write(broker.bootstrap_servers, topic, [*records, Record(0, 6, 0, b"long ago", None)])
    result = profile(spark, topic, tmp_path / "evil.html", bootstrap_servers=broker.bootstrap_servers)
    text = (tmp_path / "evil.html").read_text()
    assert "<script" not in text
    assert "&lt;/th&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "&quot; onload=&quot;x" in text
    assert {each.key for each in result.figures.top_keys} == {
        evil.decode(), '" onload="x', "ff00", "Käse", "", "k" * 64, "long ago"
    }  # fmt: skip
    assert result.figures.partitions[1].records == 0
    assert "1 of 2 partitions have no record." in text


def test_what_can_not_be_done_is_said(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="there is no topic 'nosuch'"):
        profile(spark, "nosuch", tmp_path / "page.html", bootstrap_servers=broker.bootstrap_servers)
    with pytest.raises(PipelineError, match=r"the page can not be written: .*nowhere is no folder"):
        profile(spark, "nosuch", tmp_path / "nowhere" / "page.html", bootstrap_servers=broker.bootstrap_servers)
    with pytest.raises(PipelineError, match="neither a broker nor log directories"):
        profile(spark, "nosuch", tmp_path / "page.html")
    with pytest.raises(PipelineError, match="nosuch"):
        profile(spark, "nosuch", tmp_path / "page.html", directories=[broker.data])
