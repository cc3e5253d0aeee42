"""What jobs ask before they begin, and how they say what went wrong."""

import pytest

from barnabas.client.client import Client
from barnabas.spark.errors import DataLossError, PipelineError
from barnabas.spark.jobs.topics import cluster_options, create_missing_topic, find_topic, plain_error
from tests.spark.jobs.moving import our_servers

__all__ = ["our_servers"]


def test_topics_are_found_or_made(our_servers: str) -> None:
    with Client(our_servers) as client:
        with pytest.raises(PipelineError, match="there is no topic 'fresh'"):
            find_topic(client, "fresh")
        for _ in range(2):
            create_missing_topic(client, "fresh", 3)
        assert [each.partition for each in find_topic(client, "fresh").partitions] == [0, 1, 2]
        for find in (lambda: find_topic(client, "no/name"), lambda: create_missing_topic(client, "no/name", 1)):
            with pytest.raises(PipelineError, match="'no/name' can not be"):
                find()


def test_our_error_is_found_inside_spark_s() -> None:
    wrapped = RuntimeError("Traceback\nbarnabas.spark.errors.DataLossError: it is gone\n at java")
    found = plain_error(wrapped)
    assert (type(found), str(found)) == (DataLossError, "it is gone")
    other = plain_error(RuntimeError("x barnabas.spark.errors.OptionError: option 'a' is bad"))
    assert (type(other), str(other)) == (PipelineError, "option 'a' is bad")
    assert plain_error(RuntimeError("other")) is None
    own = PipelineError("mine")
    assert plain_error(own) is own


def test_the_servers_win_over_the_options() -> None:
    given = cluster_options("b:2", {"kafka.bootstrap.servers": "a:1", "x": "y"})
    assert given == {"kafka.bootstrap.servers": "b:2", "x": "y"}
