"""How schemas are read, and Avro. Archives decoded from JSON are in tests/spark/jobs/test_archive.py."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.spark.archives.archive import open_archive
from barnabas.spark.archives.decoding import avro_nulls, check_decoding, with_data
from barnabas.spark.errors import OptionError
from tests.kafka_peer.jars import PeerUnavailableError, fetch_spark_avro
from tests.spark.jobs.moving import our_servers, produce, rows_of, topic_rows
from tests.spark.sink.topics import make_topic

__all__ = ["our_servers"]


def test_a_schema_is_kept_as_ddl(spark: SparkSession) -> None:
    kept = check_decoding(spark, "json", "id int, of struct<a: string>")
    as_json = spark.createDataFrame([], kept).schema.json()
    assert check_decoding(spark, "json", as_json) == kept
    assert check_decoding(spark, "none", "") == ""
    for wrong in ("", "  ", "{}", "id", '{"type": "struct", "fields": []}', "int"):
        with pytest.raises(OptionError, match="option 'schema'"):
            check_decoding(spark, "json", wrong)


def test_nothing_is_undecodable_without_decoding(spark: SparkSession) -> None:
    (row,) = with_data(spark.createDataFrame([(b"x",)], "value BINARY"), "none", "").collect()
    assert tuple(row) == (b"x", False)


@pytest.mark.parametrize(
    ("fields", "never_null", "encoded"),
    [
        ([("a", "int"), ("b", ["null", "int"])], ["a"], None),
        ([("a", ["null", "int"]), ("b", ["int", "string", "null"])], [], b"\x00\x04"),
        ([("a", "null"), ("b", ["null", "int"])], [], b"\x00"),
    ],
)
def test_a_record_of_nulls_in_avro(fields: list[tuple[str, object]], never_null: list[str], encoded: bytes) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    assert avro_nulls(json.loads(json.dumps(schema))) == (never_null, encoded)
    assert avro_nulls("string") == ([], None)


def test_avro_is_decoded_by_a_command_with_the_package(spark: SparkSession, our_servers: str, tmp_path: Path) -> None:
    """In a session of its own, because the package has to be there when Spark starts. All fields may be null here."""
    try:
        jar = fetch_spark_avro()
    except PeerUnavailableError as reason:
        pytest.skip(str(reason))
    topic, lake, schema = make_topic(our_servers), tmp_path / "lake", tmp_path / "schema.avsc"
    fields = [{"name": "a", "type": ["null", "int"]}, {"name": "b", "type": ["string", "null"]}]
    schema.write_text(json.dumps({"type": "record", "name": "r", "fields": fields}))
    bad = [b"", b"\xff" * 12, b"\x02"]
    produce(our_servers, topic, [b"\x02\x04\x00\x02x", b"\x00\x02", None, *bad])
    command = ["pipeline", "archive", topic, str(lake), "--bootstrap-server", our_servers, "--json"]
    avro = ["--decode", "avro", "--schema-file", str(schema), "--conf", f"spark.jars={jar}"]
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *command, *avro], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["dead_letters"] == 3
    kept = open_archive(spark, str(lake))
    decoded = [None if row.data is None else tuple(row.data) for row in kept.decoded().collect()]
    assert sorted(decoded, key=str) == [(2, "x"), (None, None), None]
    assert sorted(bytes(row.value) for row in kept.dead_letters().collect()) == sorted(bad)
    assert rows_of(kept.records()) == topic_rows(spark, our_servers, topic)
