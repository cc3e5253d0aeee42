"""Versions of PySpark with and without admission control."""

import importlib
import sys

import pytest

from barnabas.spark.errors import OptionError
from barnabas.spark.source import admission, stream_reader
from barnabas.spark.source.stream_reader import StreamReader

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def test_the_newest_spark_has_it() -> None:
    assert admission.HAS_ADMISSION_CONTROL
    limited = StreamReader(OPTIONS | {"maxOffsetsPerTrigger": "7"}).getDefaultReadLimit()
    assert limited == admission.ReadMaxRows(7)
    assert StreamReader(OPTIONS | {"minOffsetsPerTrigger": "3"}).getDefaultReadLimit() == admission.ReadMinRows(3)
    assert StreamReader(OPTIONS).getDefaultReadLimit() == admission.ReadAllAvailable()


def test_an_older_spark_has_stand_ins_and_refuses_limits_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as hidden:
            hidden.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
            importlib.reload(admission)
            importlib.reload(stream_reader)
            assert not admission.HAS_ADMISSION_CONTROL
            stream_reader.StreamReader(OPTIONS)
            for name in ("maxOffsetsPerTrigger", "minoffsetspertrigger"):
                with pytest.raises(OptionError, match=r"OffsetsPerTrigger' needs PySpark 4\.2 or later"):
                    stream_reader.StreamReader(OPTIONS | {name: "5"})
    finally:
        importlib.reload(admission)
        importlib.reload(stream_reader)
    assert admission.HAS_ADMISSION_CONTROL
