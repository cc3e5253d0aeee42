"""Places in a topic, in words and as offsets."""

import json

import pytest

from barnabas.client.client import Client
from barnabas.client.offsets import IsolationLevel, delete_records
from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, OptionError
from barnabas.spark.jobs.places import offsets_option, parse_place, resolve_place
from barnabas.spark.jobs.topics import find_topic
from barnabas.spark.source.offset_limits import AtTime, Named, SpecificOffsets
from tests.spark.jobs.moving import filled_topic, moment, our_servers

__all__ = ["our_servers"]


def test_places_in_words() -> None:
    assert parse_place("from", "Latest", "t") is Named.LATEST
    assert parse_place("from", "12", "t") == 12
    short = SpecificOffsets(option="from", offsets={TopicPartition("t", 0): 5, TopicPartition("t", 1): -2})
    assert parse_place("from", '{"0": 5, "1": -2}', "t") == short
    assert parse_place("from", '{"t": {"0": 5, "1": -2}}', "t") == short
    for text in ("@1000", "1970-01-01T00:00:01", "1970-01-01T01:00:01+01:00"):
        assert parse_place("from", text, "t") == AtTime(option="from", timestamp_ms=1000)
    for wrong in ("soon", "", "-1", "{", '{"0": "x"}', '{"x": 1}', "@"):
        with pytest.raises(OptionError, match="option 'from'"):
            parse_place("from", wrong, "t")
    assert json.loads(offsets_option("t", {1: 2, 0: 3})) == {"t": {"0": 3, "1": 2}}


def test_places_as_offsets(our_servers: str) -> None:
    topic = filled_topic(our_servers, 60)
    with Client(our_servers) as client:
        delete_records(client, {TopicPartition(topic, 1): 12})
        assigned = find_topic(client, topic)

        def at(text: str) -> list[int]:
            place = parse_place("from", text, topic)
            return list(resolve_place(client, assigned, place, IsolationLevel.READ_COMMITTED).values())

        assert at("earliest") == [0, 12, 0]
        assert at("latest") == [20, 20, 20]
        assert at("10") == [10, 12, 10]
        assert at("99") == [20, 20, 20]
        assert at(moment(31)) == [11, 12, 10]
        assert at(moment(99)) == [20, 20, 20]
        assert at('{"0": 3, "1": -2, "2": -1}') == [3, 12, 20]
        with pytest.raises(OptionError, match="must name every partition"):
            at('{"0": 3}')
        with pytest.raises(DataLossError, match="asks for offset 3 of"):
            at('{"0": 3, "1": 3, "2": 3}')
