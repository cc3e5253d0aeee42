"""One connection: what is negotiated, what is sent and received in which order, and every way it can break."""

import pickle
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.client.connection import Connection, ConnectionFailedError, UnsupportedVersionError, readable
from barnabas.client.options import Address, ClientOptions
from barnabas.wire.frames import RESPONSE_HEADER, SIZE
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.wire.messages.metadata import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest
from barnabas.wire.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.schema import Versions
from tests.client.fake_broker import FakeBroker, Hangup, Silence

QUICK = ClientOptions(request_timeout_ms=200)


@contextmanager
def connected(broker: FakeBroker, options: ClientOptions | None = None) -> Iterator[Connection]:
    with Connection(Address("127.0.0.1", broker.port), options or ClientOptions()) as connection:
        yield connection


def test_the_newest_common_version_is_spoken() -> None:
    with FakeBroker(versions={"Metadata": Versions(0, 4)}) as broker, connected(broker) as connection:
        assert connection.version_of("Metadata") == 4
        assert connection.version_of("Metadata", at_most=2) == 2
        connection.request(MetadataRequest(topics=None))
        assert broker.named("ApiVersions")[0].version == 4
        assert broker.named("ApiVersions")[0].message.client_software_name == "barnabas"
        assert broker.named("Metadata")[0].version == 4


def test_a_broker_that_does_not_know_our_version_is_asked_in_version_0() -> None:
    def api_versions(message: Any, version: int) -> Any:
        if version > 0:
            return ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, max_version=2)])
        return ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=1)])

    with FakeBroker({"ApiVersions": api_versions}) as broker, connected(broker) as connection:
        assert [request.version for request in broker.requests] == [4, 0]
        assert connection.version_of("Metadata") == 1
        with pytest.raises(UnsupportedVersionError):
            connection.version_of("Produce")


def test_a_broker_that_refuses_to_say_its_versions_is_of_no_use() -> None:
    with (
        FakeBroker({"ApiVersions": lambda *_: ApiVersionsResponse(error_code=58)}) as broker,
        pytest.raises(ConnectionFailedError, match="error code 58"),
    ):
        Connection(Address("127.0.0.1", broker.port), ClientOptions())


def test_no_common_version_names_the_api_and_both_ranges() -> None:
    with FakeBroker(versions={"Fetch": Versions(0, 3)}) as broker, connected(broker) as connection:
        with pytest.raises(
            UnsupportedVersionError, match=r"Fetch is needed in version 4 to 18, but the broker has 0 to 3"
        ):
            connection.version_of("Fetch")
        with pytest.raises(UnsupportedVersionError, match=r"Produce is needed .* the broker does not have that API"):
            connection.version_of("Produce")
        assert connection.is_open


def test_a_refused_connection_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionFailedError, match=rf"^127\.0\.0\.1:{port}: Connection refused$"):
        Connection(Address("127.0.0.1", port), ClientOptions())


def test_a_name_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConnectionFailedError, match=r"^no-such-host\.invalid:9092: "):
        Connection(Address("no-such-host.invalid", 9092), ClientOptions())


def test_requests_may_wait_together_and_are_answered_in_order() -> None:
    def init(message: Any, version: int) -> Any:
        return InitProducerIdResponse(producer_id=message.transaction_timeout_ms)

    with FakeBroker({"InitProducerId": init}) as broker, connected(broker) as connection:
        for number in range(5):
            connection.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=number))
        assert connection.in_flight == 5
        assert readable([connection], 10) == [connection]
        assert [connection.receive().producer_id for _ in range(5)] == [0, 1, 2, 3, 4]
        assert connection.in_flight == 0
        assert not connection.has_answer()


def test_a_request_without_an_answer_leaves_nothing_waiting() -> None:
    with FakeBroker({"InitProducerId": lambda *_: Silence()}) as broker, connected(broker) as connection:
        connection.send(InitProducerIdRequest(transactional_id=None), is_answered=False)
        assert connection.in_flight == 0
        connection.request(MetadataRequest(topics=[]))


def test_a_long_answer_comes_whole() -> None:
    name = "x" * 20_000
    topics = {f"{name}-{number}": 1 for number in range(300)}  # More than 5 MB: memory grows while it comes.
    with FakeBroker(topics=topics) as broker, connected(broker) as connection:
        answer = connection.request(MetadataRequest(topics=None))
        assert [topic.name for topic in answer.topics] == list(topics)


def test_the_memory_of_large_answers_is_used_again_once_nobody_looks_at_it() -> None:
    sizes = [3_000_000, 2_000_000, 2_500_000, 2_900_000, 4_000_000, 100]

    def fetch(request: Any, version: int) -> FetchResponse:
        records = bytes([request.max_wait_ms]) * sizes[request.max_wait_ms]
        row = PartitionData(partition_index=0, records=records)
        return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[row])])

    with FakeBroker({"Fetch": fetch}) as broker, connected(broker) as connection:

        def records(number: int) -> memoryview:
            answer = connection.request(FetchRequest(max_wait_ms=number), 12)
            found: memoryview = answer.responses[0].partitions[0].records
            return found

        kept = records(0)
        memory = kept.obj
        read: list[object] = []
        for number in range(1, len(sizes)):
            view = records(number)
            assert view == bytes([number]) * sizes[number]
            assert view.obj is not memory
            read.append(view.obj)
            del view
        assert kept == bytes(sizes[0])
        assert len({id(each) for each in read[:4]}) == 1
        del kept
        assert any(records(number).obj is memory for number in range(2))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Hangup(), "closed the connection before it answered DescribeCluster"),
        (Hangup(after=SIZE.pack(100)[:3]), "closed the connection before it answered"),
        (Hangup(after=RESPONSE_HEADER.pack(100, 1) + b"half"), "closed the connection before it answered"),
        (RESPONSE_HEADER.pack(2**31 - 1, 1), "were announced; is this a Kafka listener?"),
        (RESPONSE_HEADER.pack(-5, 1), "were announced"),
        (RESPONSE_HEADER.pack(3, 1), "were announced"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is this a Kafka listener?"),
        (RESPONSE_HEADER.pack(4, 77), "correlation id 77, but 1 was to come"),
        (RESPONSE_HEADER.pack(4, 1), "can not be read: it ends in its header"),
        (RESPONSE_HEADER.pack(7, 1) + b"\0\0\0", "can not be read: DescribeClusterResponse v2"),
        (Silence(), "no answer to DescribeCluster within 0.2 s"),
        (RESPONSE_HEADER.pack(100, 1) + b"slow", "no answer to DescribeCluster within 0.2 s"),
    ],
)
def test_a_broken_answer_ends_the_connection(answer: Any, reason: str) -> None:
    with FakeBroker({"DescribeCluster": lambda *_: answer}) as broker, connected(broker, QUICK) as connection:
        with pytest.raises(ConnectionFailedError) as failed:
            connection.request(DescribeClusterRequest())
        assert reason in str(failed.value)
        assert str(failed.value).startswith(f"127.0.0.1:{broker.port}: ")
        assert not connection.is_open
        with pytest.raises(ConnectionFailedError, match="the connection is closed"):
            connection.send(DescribeClusterRequest())


def test_an_answer_that_is_interrupted_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    with FakeBroker({"DescribeCluster": lambda *_: Silence()}) as broker, connected(broker) as connection:
        monkeypatch.setattr(connection, "_receive_some", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connection.request(DescribeClusterRequest())
        assert not connection.is_open
        assert connection.in_flight == 0


def test_tagged_fields_of_a_later_broker_are_passed_over() -> None:
    body = b"\x01\x05\x02??" + b"\0\0\0\0" + b"\0\0" + b"\0" + b"\x01" + b"\x02c" + b"\0\0\0\7" + b"\x01" + b"\0" * 5
    frame = RESPONSE_HEADER.pack(4 + len(body), 1) + body
    with FakeBroker({"DescribeCluster": lambda *_: frame}) as broker, connected(broker) as connection:
        answer = connection.request(DescribeClusterRequest())
        assert isinstance(answer, DescribeClusterResponse)
        assert (answer.cluster_id, answer.controller_id) == ("c", 7)


def test_a_failure_can_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(ConnectionFailedError(Address("h", 1), "reason")))
    assert (str(error), error.address, error.reason) == ("h:1: reason", Address("h", 1), "reason")
