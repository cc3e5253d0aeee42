"""docs/PIPELINE.md: its tables have just the options that there are, and its Python and its commands run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas import Broker
from barnabas.cli import pipeline
from barnabas.cli.main import main
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.producer import Producer
from barnabas.spark import connecting
from barnabas.spark.connecting import CLUSTER_OPTIONS
from barnabas.spark.options import OptionRow
from barnabas.spark.segments.options import READ_OPTIONS, WRITE_OPTIONS
from barnabas.spark.sink.options import REFUSED as SINK_REFUSED
from barnabas.spark.sink.options import SINK_OPTIONS
from barnabas.spark.source.options import REFUSED as SOURCE_REFUSED
from barnabas.spark.source.options import SOURCE_OPTIONS
from tests.test_docs import commands

ROOT = Path(__file__).parent.parent.parent
DOCUMENT = "docs/PIPELINE.md"
ADDRESS = "127.0.0.1:9092"


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def rows_of_table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its own heading."""
    section = re.split(rf"^###? {re.escape(heading)}\n", text_of(DOCUMENT), flags=re.MULTILINE)[1]
    table = re.search(r"(?:^\|.*\n)+", section.split("\n##")[0], re.MULTILINE)
    assert table is not None, heading
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table[0].splitlines()[2:]]
    return [[cell.strip().replace(r"\|", "|") for cell in row] for row in rows]


def cells(row: OptionRow) -> list[str]:
    only = "" if row.queries == "batch and streaming" else f" ({row.queries} queries)"
    return [f"`{row.name}`", row.default, row.values, row.meaning + only]


@pytest.mark.parametrize(
    ("heading", "options"),
    [
        ("Options of the source", SOURCE_OPTIONS),
        ("Options of the sink", SINK_OPTIONS),
        ("Options of the cluster", CLUSTER_OPTIONS),
    ],
)
def test_the_tables_of_options_are_complete(heading: str, options: tuple[OptionRow, ...]) -> None:
    """The last column, where we differ, is for people to write."""
    assert [row[:4] for row in rows_of_table(heading)] == [cells(option) for option in options]


@pytest.mark.parametrize(
    ("heading", "options"), [("Options for reading", READ_OPTIONS), ("Options for bulk load", WRITE_OPTIONS)]
)
def test_the_tables_of_segments_are_complete(heading: str, options: tuple[OptionRow, ...]) -> None:
    assert rows_of_table(heading) == [cells(option._replace(queries="batch and streaming")) for option in options]


@pytest.mark.parametrize(
    ("heading", "refused"), [("Refused by the source", SOURCE_REFUSED), ("Refused by the sink", SINK_REFUSED)]
)
def test_what_is_refused_is_said(heading: str, refused: dict[str, str]) -> None:
    assert rows_of_table(heading) == [[f"`{name}`", reason] for name, reason in refused.items()]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with the topics of the document, and some orders in the first."""
    with Broker(data=tmp_path / "data") as started:
        with Client(started.bootstrap_servers) as client:
            names = ("orders", "large-orders", "orders-again")
            assert create_topics(client, [NewTopic(name=name, partitions=3) for name in names]) == {}
            with Producer(client) as producer:
                for number in range(300):
                    value = b'{"product": "tea", "quantity": %d, "cents": 450}' % (number % 5)
                    producer.send("orders", value, key=b"order-%d" % (number % 50))
        yield started
    connecting.close_clients()  # Jobs have asked for offsets in this process.


def in_its_place(text: str, broker: Broker, folder: Path) -> str:
    """An example with the address of this broker, and with folders that are only this test's."""
    text = text.replace(ADDRESS, broker.bootstrap_servers)
    return re.sub(
        r"(?<![\w/.:])(lake|data|incoming|history\.parquet|orders\.html)(?=[/\"'\s]|$)", rf"{folder}/\1", text
    )


def test_the_python_runs(
    spark: SparkSession, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {"spark": spark}
    for document in ("README.md", DOCUMENT):
        for block in re.findall(r"```python\n(.*?)```", text_of(document), re.DOTALL):
            if document == DOCUMENT or "spark" in block:
                exec(compile(in_its_place(block, broker, tmp_path), document, "exec"), names)
    shown = capsys.readouterr().out
    assert shown.count("order-") >= 20
    copied = spark.read.format("barnabas").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    assert copied.option("subscribe", "large-orders").load().count() == 60
    spark.catalog.dropTempView("orders")


class KeptSession:
    """The session of all tests, for a command that would stop its own."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> object:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Leave it to the others."""


def test_the_commands_run(
    spark: SparkSession,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pipeline, "start_session", lambda *_, **__: KeptSession(spark))
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "orders.csv").write_text("id,product\norder-1000,tea\norder-1001,ink\n", encoding="utf-8")
    rows = spark.range(10).selectExpr("cast(id AS string) AS key", "concat('order ', id) AS value")
    rows.write.parquet(str(tmp_path / "history.parquet"))
    said = []
    # Those of the last block need a cluster.
    lines = [line for line in commands(DOCUMENT, "barnabas") if "--master" not in line]
    for line in lines:
        assert main(shlex.split(in_its_place(line, broker, tmp_path))[1:]) == 0, (line, capsys.readouterr().err)
        said.append(capsys.readouterr().out)
    assert [line.split()[2] for line in lines[:-1]] == [
        *("ingest", "archive", "audit", "snapshot", "profile", "replay", "load", "verify"),
    ]
    assert "ingested 2 records" in said[0]
    assert "archived 302 records" in said[1]
    assert "Nothing is lost, nothing is doubled: 302 records" in said[2]
    assert "52 keys" in said[3]
    assert (tmp_path / "orders.html").exists()
    assert said[8].startswith("orders-archive\torders\t0")
