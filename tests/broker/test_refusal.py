"""A refused request is answered for every API and version: the answer encodes, and says the error of all it names."""

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.dispatch import HANDLERS
from barnabas.broker.refusal import refusal_of
from barnabas.wire.apis import APIS, Api, response_decoder, response_encoder
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.messages import (
    acls,
    configs,
    coordinators,
    fetch,
    list_offsets,
    log_dirs,
    metadata,
    producers,
    topics,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.wire.strategies import messages

ERROR = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "in words")
EVERY_VERSION = [
    pytest.param(APIS[key], version, id=f"{APIS[key].name}-{version}")
    for key in HANDLERS
    for version in range(APIS[key].versions.low, APIS[key].versions.high + 1)
]


def sent(api: Api, version: int, body: Any) -> Any:
    """What a client reads of a refusal, or None where the connection ends instead."""
    answer = refusal_of(api, version, body, ERROR)
    if answer is None:
        return None
    encoded = b"".join(bytes(part) for part in response_encoder(api, version)(answer))
    return response_decoder(api, version)(encoded, 0)[0]


def codes_in(answer: Any) -> list[int]:
    """All error codes of an answer, from the outside in."""
    found = []
    for field in fields(answer):
        value = getattr(answer, field.name)
        if field.name == "error_code":
            found.append(value)
        elif isinstance(value, list):
            found += [code for item in value if is_dataclass(item) for code in codes_in(item)]
    return found


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=8)
@given(data=st.data())
def test_whatever_was_asked_is_refused_in_words_of_its_version(api: Api, version: int, data: st.DataObject) -> None:
    answer = sent(api, version, data.draw(messages(api.request, version)))
    if answer is not None:
        # A field that a version does not have is decoded with its default.
        assert set(codes_in(answer)) <= {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE}


P = "partitions"
ASKED: list[tuple[Any, int, dict[str, Any]]] = [
    (
        ProduceRequest(
            topic_data=[TopicProduceData(name="a", partition_data=[PartitionProduceData(index=i) for i in (1, 2)])]
        ),
        9,
        {"responses": [("name", "a", "partition_responses", "index", [1, 2])]},
    ),
    (
        fetch.FetchRequest(
            topics=[fetch.FetchTopic(topic="a", partitions=[fetch.FetchPartition(partition=i) for i in (3, 4)])],
            forgotten_topics_data=[fetch.ForgottenTopic(topic="gone", partitions=[1])],
        ),
        12,
        {"responses": [("topic", "a", P, "partition_index", [3, 4])]},
    ),
    (
        list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name="a", partitions=[list_offsets.ListOffsetsPartition(partition_index=5)]
                )
            ]
        ),
        7,
        {"topics": [("name", "a", P, "partition_index", [5])]},
    ),
    (
        list_offsets.OffsetForLeaderEpochRequest(
            topics=[
                list_offsets.OffsetForLeaderTopic(
                    topic="a", partitions=[list_offsets.OffsetForLeaderPartition(partition=6)]
                )
            ]
        ),
        3,
        {"topics": [("topic", "a", P, "partition", [6])]},
    ),
    (
        topics.DeleteRecordsRequest(
            topics=[topics.DeleteRecordsTopic(name="a", partitions=[topics.DeleteRecordsPartition(partition_index=7)])]
        ),
        2,
        {"topics": [("name", "a", P, "partition_index", [7])]},
    ),
    (
        producers.DescribeProducersRequest(topics=[producers.TopicRequest(name="a", partition_indexes=[8, 9])]),
        0,
        {"topics": [("name", "a", P, "partition_index", [8, 9])]},
    ),
    (
        log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                log_dirs.AlterReplicaLogDir(
                    path="/d", topics=[log_dirs.AlterReplicaLogDirTopic(name="a", partitions=[1, 2])]
                ),
                log_dirs.AlterReplicaLogDir(
                    path="/e", topics=[log_dirs.AlterReplicaLogDirTopic(name="b", partitions=[3])]
                ),
            ]
        ),
        2,
        {
            "results": [
                ("topic_name", "a", P, "partition_index", [1, 2]),
                ("topic_name", "b", P, "partition_index", [3]),
            ]
        },
    ),
]


@pytest.mark.parametrize(("body", "version", "expected"), ASKED, ids=lambda value: type(value).__name__)
def test_every_partition_that_was_named_has_the_error(body: Any, version: int, expected: dict[str, Any]) -> None:
    answer = sent(api_of(body), version, body)
    ((field, named),) = expected.items()
    assert len(getattr(answer, field)) == len(named)
    for topic, (name_field, name, partitions_field, index_field, indexes) in zip(
        getattr(answer, field), named, strict=True
    ):
        assert getattr(topic, name_field) == name
        partitions = getattr(topic, partitions_field)
        assert [getattr(one, index_field) for one in partitions] == indexes
        assert [one.error_code for one in partitions] == [ErrorCode.UNKNOWN_SERVER_ERROR] * len(indexes)


def api_of(body: Any) -> Api:
    name = type(body).__name__.removesuffix("Request")
    (api,) = (api for api in APIS.values() if api.name == name)
    return api


@pytest.mark.parametrize(
    ("body", "version", "field", "name_field"),
    [
        (metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="a")]), 9, "topics", "name"),
        (topics.CreateTopicsRequest(topics=[topics.CreatableTopic(name="a")]), 7, "topics", "name"),
        (topics.DeleteTopicsRequest(topic_names=["a"]), 5, "responses", "name"),
        (topics.DeleteTopicsRequest(topics=[topics.DeleteTopicState(name="a")]), 6, "responses", "name"),
        (topics.CreatePartitionsRequest(topics=[topics.CreatePartitionsTopic(name="a")]), 3, "results", "name"),
        (
            configs.DescribeConfigsRequest(
                resources=[configs.DescribeConfigsResource(resource_name="a", configuration_keys=["k"])]
            ),
            4,
            "results",
            "resource_name",
        ),
        (
            configs.AlterConfigsRequest(resources=[configs.AlterConfigsResource(resource_name="a")]),
            2,
            "responses",
            "resource_name",
        ),
        (
            configs.IncrementalAlterConfigsRequest(
                resources=[configs.IncrementalAlterConfigsReqAlterConfigsResource(resource_name="a")]
            ),
            1,
            "responses",
            "resource_name",
        ),
        (coordinators.FindCoordinatorRequest(coordinator_keys=["a"]), 4, "coordinators", "key"),
        (
            metadata.DescribeTopicPartitionsRequest(topics=[metadata.TopicRequest(name="a")]),
            0,
            "topics",
            "name",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_that_was_named_has_the_error(body: Any, version: int, field: str, name_field: str) -> None:
    (one,) = getattr(sent(api_of(body), version, body), field)
    assert getattr(one, name_field) == "a"
    assert one.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (metadata.MetadataRequest(topics=None), 13),
        (metadata.DescribeClusterRequest(), 1),
        (producers.InitProducerIdRequest(), 4),
        (fetch.FetchRequest(), 7),
        (acls.DescribeAclsRequest(), 2),
        (configs.ListConfigResourcesRequest(resource_types=[2]), 1),
        (log_dirs.DescribeLogDirsRequest(topics=[log_dirs.DescribableLogDirTopic(topic="a")]), 3),
        (coordinators.FindCoordinatorRequest(key="a"), 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_where_nothing_is_named_the_answer_has_the_error(body: Any, version: int) -> None:
    answer = sent(api_of(body), version, body)
    assert codes_in(answer) == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_lists_that_say_no_errors_stay_empty() -> None:
    """A refused topic has no settings, and a refused fetch names no brokers."""
    topic = topics.CreatableTopic(
        name="a",
        assignments=[topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
        configs=[topics.CreatableTopicConfig(name="k", value="v")],
    )
    (refused,) = sent(APIS[19], 7, topics.CreateTopicsRequest(topics=[topic])).topics
    assert refused.configs == []
    forgetting = fetch.FetchRequest(forgotten_topics_data=[fetch.ForgottenTopic(partitions=[1])])
    answer = sent(APIS[1], 16, forgetting)
    assert (answer.node_endpoints, answer.responses) == ([], [])


def test_what_was_named_twice_is_answered_twice() -> None:
    body = topics.DeleteTopicsRequest(topic_names=["a", "a"])
    assert [one.name for one in sent(APIS[20], 4, body).responses] == ["a", "a"]


def test_records_of_a_refused_fetch_are_empty_and_not_null() -> None:
    body = fetch.FetchRequest(topics=[fetch.FetchTopic(topic="a", partitions=[fetch.FetchPartition()])])
    (partition,) = sent(APIS[1], 11, body).responses[0].partitions
    assert (partition.records, partition.high_watermark) == (b"", -1)


def test_a_request_that_asks_for_nothing_is_answered_with_nothing() -> None:
    assert refusal_of(APIS[0], 9, ProduceRequest(), ERROR) == ProduceResponse()
