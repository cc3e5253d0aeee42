"""What jobs ask a cluster before they begin: whether the topic is there, and which partitions it has.

The one place where what a client fails with becomes a sentence of a job.
"""

from collections.abc import Mapping

from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.spark.connecting import BOOTSTRAP_SERVERS
from barnabas.spark.errors import DataLossError, OptionError, PipelineError, sentence_of
from barnabas.spark.source.offsets import Assigned, assigned_partitions
from barnabas.spark.source.options import Subscription
from barnabas.wire.errors import ErrorCode


def cluster_options(bootstrap_servers: str, options: Mapping[str, str] | None) -> dict[str, str]:
    """Return the options of the connector for a cluster."""
    return {**(options or {}), BOOTSTRAP_SERVERS: bootstrap_servers}


def find_topic(client: Client, topic: str) -> Assigned:
    """Return the partitions of a topic; raises PipelineError when there is none."""
    try:
        return assigned_partitions(client, Subscription(topics=(topic,)))
    except OptionError as error:
        if "there is no such topic" in error.problem:
            raise PipelineError(f"there is no topic {topic!r}") from None
        raise PipelineError(f"{topic!r} can not be the name of a topic") from None


def create_missing_topic(client: Client, topic: str, partitions: int) -> None:
    """Create a topic unless it is there; raises PipelineError."""
    failure = create_topics(client, [NewTopic(name=topic, partitions=partitions)]).get(topic)
    if failure is not None and failure.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        raise PipelineError(f"topic {topic!r} can not be created: {failure}")


def plain_error(error: Exception) -> PipelineError | None:
    """Return our own error, also when Spark has wrapped it; None where there is none."""
    if isinstance(error, PipelineError):
        return error
    said = sentence_of(error)
    if said is None:
        return None
    return DataLossError(said) if f"DataLossError: {said}" in str(error) else PipelineError(said)
