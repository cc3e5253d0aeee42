"""The job `load` without Spark: what is told and refused. tests/spark/segments/test_writer.py loads rows with it."""

from collections.abc import Mapping
from typing import Any
from unittest.mock import MagicMock

import pytest

from barnabas.client.bulk_load import AdoptedRange
from barnabas.spark.errors import PipelineError
from barnabas.spark.jobs import load as module
from barnabas.spark.jobs.load import load


def test_the_format_gets_the_options_and_a_random_id(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def nothing(given: Mapping[str, str], load_id: str) -> list[AdoptedRange]:
        asked.append((dict(given), load_id))
        return []

    monkeypatch.setattr(module, "adopted_ranges", nothing)
    spark = MagicMock()
    first = load(spark, "/rows", "orders", log_dirs="/data", source_format="json", options={"segmentBytes": "5"})
    second = load(spark, "/rows", "orders", log_dirs="/data")
    assert first.load_id != second.load_id
    assert (first.records, first.ranges) == (0, ())
    assert asked[0] == (
        {"topic": "orders", "loadId": first.load_id, "segmentBytes": "5", "path": "/data"},
        first.load_id,
    )
    spark.read.format.assert_any_call("json")


def test_our_sentence_is_found_inside_spark_s_error() -> None:
    frame = MagicMock()
    text = "Traceback\nbarnabas.spark.errors.PipelineError: load one was adopted before\n"
    frame.write.format.return_value.options.return_value.mode.return_value.save.side_effect = RuntimeError(text)
    with pytest.raises(PipelineError, match=r"^load one was adopted before$"):
        load(MagicMock(), frame, "orders", log_dirs="/data")
    frame.write.format.return_value.options.return_value.mode.return_value.save.side_effect = KeyError("other")
    with pytest.raises(KeyError):
        load(MagicMock(), frame, "orders", log_dirs="/data")
