"""The options of `barnabas-segments`: what is read from text, and the sentences for what can not be."""

from collections.abc import Mapping

import pytest

from barnabas.model import TopicPartition
from barnabas.records.codecs import Codec
from barnabas.spark.errors import OptionError
from barnabas.spark.segments.options import read_read_options, read_write_options
from barnabas.spark.source.offset_limits import Named, SpecificOffsets

READ = {"path": "/data"}
WRITE = {"path": "/data", "topic": "orders"}


def test_defaults_read_everything_there_is() -> None:
    options = read_read_options(READ)
    assert (options.paths, options.topics, options.pattern, options.partitions) == (("/data",), (), "", ())
    assert (options.start, options.end) == (Named.EARLIEST, Named.LATEST)
    assert options.check_crcs
    assert options.fail_on_data_loss
    assert not options.is_committed_only


def test_names_are_read_in_any_case_and_values_as_spark_s_source_has_them() -> None:
    options = read_read_options(
        {
            "path": "/b, file:///a",
            "ASSIGN": '{"orders": [1, 0]}',
            "startingoffsets": '{"orders": {"0": 3, "1": -2}}',
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "TRUE",
            "kafka.check.crcs": "false",
            "minPartitions": "7",
        }
    )
    assert options.paths == ("/b", "/a")
    assert options.partitions == (TopicPartition("orders", 0), TopicPartition("orders", 1))
    assert isinstance(options.start, SpecificOffsets)
    assert (options.is_committed_only, options.include_headers, options.check_crcs) == (True, True, False)
    assert options.min_partitions == 7


def test_a_load_has_a_topic_and_a_broker_or_a_path() -> None:
    options = read_write_options({**WRITE, "kafka.compression.type": "zstd", "segmentBytes": "1000"})
    assert (options.topic, options.codec, options.segment_bytes) == ("orders", Codec.ZSTD, 1000)
    assert not options.has_broker
    running = read_write_options(
        {"topic": "orders", "kafka.bootstrap.servers": "a:1", "kafka.ssl.truststore.type": "PEM"}
    )
    assert (running.paths, running.has_broker) == ((), True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "'path' is needed"),
        ({"path": ","}, "'path' names nothing"),
        ({**READ, "subscribe": " , "}, "'subscribe' names nothing"),
        ({**READ, "subscribe": "a", "assign": "{}"}, "'assign' says what to read, but so does 'subscribe'"),
        ({**READ, "subscribePattern": "("}, "'subscribePattern' is '\\(', which is no regular expression"),
        ({**READ, "subscribePattern": ""}, "'subscribePattern' is an empty"),
        ({**READ, "startingOffsets": "latest"}, "'startingOffsets' is 'latest'"),
        ({**READ, "startingOffsets": "{"}, "'startingOffsets' is not JSON"),
        ({**READ, "minPartitions": "0"}, "'minPartitions' is a number from 1"),
        ({**READ, "includeHeaders": "maybe"}, "'includeHeaders' is true or false"),
        ({**READ, "kafka.isolation.level": "dirty"}, "'kafka.isolation.level' is read_uncommitted or"),
        ({**READ, "subscibe": "a"}, "'subscibe' is not known; is 'subscribe' meant"),
    ],
)
def test_what_makes_no_sense_for_reading_is_refused(options: Mapping[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_read_options(options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "/data"}, "'topic' is needed"),
        ({"topic": "orders"}, "'path' is needed"),
        ({**WRITE, "kafka.compression.type": "brotli"}, "'kafka.compression.type' is none or"),
        ({**WRITE, "segmentBytes": "9999999999"}, "'segmentBytes' is a number from 1 to"),
        ({**WRITE, "loadID2": "x"}, "is 'loadId' meant"),
    ],
)
def test_what_makes_no_sense_for_a_load_is_refused(options: Mapping[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        read_write_options(options)
