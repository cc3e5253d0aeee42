"""A topic's offsets of now; its records are read in the tests of the jobs."""

import pytest

from barnabas import Broker
from barnabas.client.client import Client
from barnabas.spark import connecting
from barnabas.spark.errors import OptionError, PipelineError
from barnabas.spark.jobs.topic import Span, Topic
from tests.spark.jobs.histories import START_MS, Record, write
from tests.spark.sink.topics import make_topic


def test_offsets_and_settings_without_spark(barnabas_broker: Broker) -> None:
    servers = barnabas_broker.bootstrap_servers
    name = make_topic(servers, 2, {"cleanup.policy": "compact", "retention.ms": "-1"})
    write(servers, name, [Record(0, number, START_MS + number, b"k", b"v") for number in range(5)])
    topic = Topic(None, name, servers)  # type: ignore[arg-type]
    state = topic.state()
    assert state.spans == {0: Span(start=0, end=5), 1: Span(start=0, end=0)}
    assert (state.is_compacted, state.settings["cleanup.policy"]) == (True, "compact")
    assert topic.offsets_from(START_MS + 3, state.spans) == {0: 3}
    assert topic.isolation_level == "read_uncommitted"
    with Client(servers) as client:
        assert state.topic_id == str(client.topic(name).topic_id)
    with pytest.raises(PipelineError, match="there is no topic 'nosuch'"):
        Topic(None, "nosuch", servers).state()  # type: ignore[arg-type]
    connecting.close_clients()


@pytest.mark.parametrize("option", ["subscribe", "ASSIGN", "startingOffsets", "endingTimestamp", "includeHeaders"])
def test_what_the_job_says_itself_is_no_option(option: str) -> None:
    with pytest.raises(OptionError, match=f"option '{option}' is not for this job"):
        Topic(None, "orders", "127.0.0.1:1", {option: "x"})  # type: ignore[arg-type]
