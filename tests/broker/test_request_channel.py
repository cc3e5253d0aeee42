"""RequestChannel: bytes in, bytes out, and how many requests are under way."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.dispatch import routes
from barnabas.broker.faults import Faults
from barnabas.broker.request_channel import Outcome, Request, RequestChannel, Route
from barnabas.client.connection import ConnectionFailedError
from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from barnabas.wire.apis import APIS, request_encoder, response_decoder
from barnabas.wire.errors import ApiError, ErrorCode
from barnabas.wire.frames import RequestHeader, request_frame
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.metadata import DescribeClusterRequest, DescribeClusterResponse, MetadataRequest
from barnabas.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.primitives import DecodeError
from tests.broker.asking import connected, create_topic, fetch_request, produce
from tests.broker.turning import until_on_loop
from tests.storage.builders import batch_of

DESCRIBE_CLUSTER = APIS[60]
FETCH = APIS[1]


class Peer:
    """A connection that remembers what it was told."""

    listener = "PLAINTEXT"
    client_host = "client.example"
    local_host = "127.0.0.1"

    def __init__(self) -> None:
        self.answered: list[Request] = []

    def on_answer(self, request: Request) -> None:
        self.answered.append(request)


def frame_of(key: int, message: Any, version: int, client_id: str | None = "test") -> bytes:
    header = RequestHeader(key, version, 77, client_id)
    parts = request_frame(APIS[key], header, request_encoder(APIS[key], version)(message))
    return b"".join(bytes(part) for part in parts)[4:]


def channel_of(handler: Callable[[Any, Request, Any], Any], queued_max: int = 500) -> RequestChannel:
    """A channel that knows DescribeCluster and Fetch, both served by one handler."""
    table = {
        60: Route(DESCRIBE_CLUSTER, lambda _: handler),
        1: Route(FETCH, lambda _: handler, is_counted=False),
    }
    return RequestChannel("the broker", table, ManualClock(), queued_max)


def handled(channel: RequestChannel, frame: bytes, peer: Peer | None = None) -> Request:
    return channel.handle(peer or Peer(), memoryview(frame), 0.0)


def ask(channel: RequestChannel, peer: Peer | None = None) -> Request:
    return handled(channel, frame_of(60, DescribeClusterRequest(), 1), peer)


def read(request: Request, version: int = 1) -> Any:
    data = b"".join(bytes(part) for part in request.parts)
    assert len(data) == 4 + int.from_bytes(data[:4], "big")
    assert int.from_bytes(data[4:8], "big") == 77
    return response_decoder(request.api, version)(data, 9 if request.api.is_flexible(version) else 8)[0]


# From bytes to an answer.


def test_a_handler_gets_the_broker_the_request_and_its_body() -> None:
    seen: list[Any] = []

    def handler(broker: Any, request: Request, body: Any) -> Any:
        seen.extend([broker, request.version, request.client_id, request.correlation_id, body])
        return DescribeClusterResponse(cluster_id="c")

    request = ask(channel_of(handler))
    assert seen == ["the broker", 1, "test", 77, DescribeClusterRequest()]
    assert request.is_answered
    assert read(request).cluster_id == "c"


def test_bytes_behind_the_body_are_ignored() -> None:
    channel = channel_of(lambda *_: DescribeClusterResponse())
    frame = frame_of(60, DescribeClusterRequest(), 1)
    assert handled(channel, frame + b"\xff" * 20).is_answered


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"", "0 bytes"),
        (frame_of(60, DescribeClusterRequest(), 1)[:-1], "."),
        (b"\x7f\x00" + frame_of(60, DescribeClusterRequest(), 1)[2:], "no API 32512"),
        (b"\x00\x3c\x00\x63" + frame_of(60, DescribeClusterRequest(), 1)[4:], "DescribeCluster has versions 0 to 2"),
        (b"\x00\x3c\xff\xff" + frame_of(60, DescribeClusterRequest(), 1)[4:], "versions 0 to 2, not -1"),
    ],
    ids=["nothing", "cut-off", "unknown-api", "unknown-version", "negative-version"],
)
def test_what_can_not_be_understood_is_a_decode_error(frame: bytes, words: str) -> None:
    channel = channel_of(lambda *_: DescribeClusterResponse())
    with pytest.raises(DecodeError, match=words):
        handled(channel, frame)
    assert channel.unanswered == 0


@given(st.binary(max_size=60))
def test_garbage_is_an_answer_or_a_decode_error(frame: bytes) -> None:
    channel = RequestChannel(None, routes(), ManualClock(), 500)
    handler = lambda *_: Outcome.NO_RESPONSE  # noqa: E731 (a handler is a function, and this one has no name)
    channel._routes = {key: route._replace(handler_of=lambda _: handler) for key, route in channel._routes.items()}
    try:
        handled(channel, frame)
    except DecodeError:
        pass


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(version: int) -> None:
    channel = RequestChannel(None, routes(), ManualClock(), 500)
    frame = bytearray(frame_of(18, ApiVersionsRequest(), 4))
    frame[2:4] = version.to_bytes(2, "big", signed=True)
    request = handled(channel, bytes(frame))
    data = b"".join(bytes(part) for part in request.parts)
    answer, end = response_decoder(APIS[18], 0)(data, 8)
    assert end == len(data)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 4)]
    assert channel.api_stats[18].requests == 1


def test_an_error_of_the_handler_is_the_answer() -> None:
    def handler(*_: Any) -> Any:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "no")

    channel = channel_of(handler)
    answer = read(ask(channel))
    assert (answer.error_code, answer.error_message) == (ErrorCode.SECURITY_DISABLED, "no")
    assert channel.api_stats[60].errors == {ErrorCode.SECURITY_DISABLED: 1}


def test_a_bug_of_the_handler_is_answered_and_leaves_one_line(caplog: pytest.LogCaptureFixture) -> None:
    def handler(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    channel = channel_of(handler)
    with caplog.at_level(logging.WARNING):
        answer = read(ask(channel))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "a bug" not in answer.error_message
    (record,) = caplog.records
    assert record.getMessage() == "DescribeCluster v1 of client.example failed"
    assert record.exc_info is not None


@pytest.mark.parametrize(("outcome", "is_closing"), [(Outcome.NO_RESPONSE, False), (Outcome.CLOSE, True)])
def test_an_answer_without_bytes(outcome: Outcome, is_closing: bool) -> None:
    channel = channel_of(lambda *_: outcome)
    request = ask(channel)
    assert (request.is_answered, request.is_closing, request.parts) == (True, is_closing, [])
    assert channel.api_stats[60].requests == 1
    assert channel.unanswered == 0


def test_an_answer_that_comes_later_is_told_to_the_connection() -> None:
    channel, peer = channel_of(lambda *_: Outcome.LATER), Peer()
    request = ask(channel, peer)
    assert (request.is_answered, channel.unanswered) == (False, 1)
    request.respond(DescribeClusterResponse(cluster_id="later"))
    assert peer.answered == [request]
    assert read(request).cluster_id == "later"
    assert channel.unanswered == 0
    with pytest.raises(AssertionError, match="once"):
        request.respond(DescribeClusterResponse())


def test_a_client_that_goes_away_is_told_to_who_waits_for_it() -> None:
    channel, gone = channel_of(lambda *_: Outcome.LATER), []
    request = ask(channel)
    request.on_disconnect = lambda: gone.append(1)
    channel.abandon(request)
    assert gone == [1]
    request.respond(DescribeClusterResponse())
    channel.abandon(request)
    assert gone == [1]


def test_times_are_counted_from_the_arrival_to_the_answer() -> None:
    channel = channel_of(lambda *_: Outcome.LATER)
    clock = channel._clock
    assert isinstance(clock, ManualClock)
    request = ask(channel)
    assert channel.api_stats[60].requests == 0
    clock.advance(250)
    request.respond(DescribeClusterResponse())
    assert channel.api_stats[60].time.max_seconds == 0.25


# Faults.


def test_a_fault_is_taken_once_a_request() -> None:
    channel = channel_of(lambda *_: DescribeClusterResponse())
    channel.faults = Faults(lambda delay_ms, callback: None)
    channel.faults.error("DescribeCluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    channel.faults.drop("DescribeCluster")
    assert read(ask(channel)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert ask(channel).is_closing
    assert read(ask(channel)).error_code == ErrorCode.NONE


def test_a_delay_of_nothing_is_no_delay() -> None:
    channel = channel_of(lambda *_: DescribeClusterResponse())
    channel.faults = Faults(lambda delay_ms, callback: None)
    channel.faults.delay("DescribeCluster", 0)
    assert ask(channel).is_answered
    assert channel.unanswered == 0


def test_the_short_way_is_not_taken_while_a_fault_waits() -> None:
    channel = channel_of(lambda *_: DescribeClusterResponse())
    channel.add_shortcut(60, lambda frame: b"short")
    frame = memoryview(b"\0\x3c\0\0")
    assert channel.answer_shortly(frame) == b"short"
    channel.faults = Faults(lambda delay_ms, callback: None)
    assert channel.answer_shortly(frame) == b"short"
    channel.faults.drop("DescribeCluster")
    assert channel.answer_shortly(frame) is None
    assert ask(channel).is_closing
    assert channel.answer_shortly(frame) == b"short"
    assert channel.answer_shortly(memoryview(b"\0\x3d\0\0")) is None, "it is for one API"


# How many are under way.


def test_reading_stops_when_too_many_are_unanswered_and_goes_on_with_room() -> None:
    channel = channel_of(lambda *_: Outcome.LATER, queued_max=2)
    requests = [ask(channel), ask(channel)]
    assert channel.is_full
    resumed: list[int] = []
    for number in range(3):
        channel.wait_for_room(lambda number=number: resumed.append(number))  # type: ignore[misc]
    assert resumed == []
    requests[0].respond(DescribeClusterResponse())
    assert not channel.is_full
    assert resumed == [0, 1, 2]


def test_those_who_wait_for_room_are_resumed_until_it_is_full_again() -> None:
    channel = channel_of(lambda *_: Outcome.LATER, queued_max=1)
    first = ask(channel)
    resumed: list[int] = []

    def resume() -> None:
        resumed.append(1)
        ask(channel)

    channel.wait_for_room(resume)
    channel.wait_for_room(resume)
    first.respond(DescribeClusterResponse())
    assert resumed == [1]


def test_a_fetch_that_waits_does_not_count() -> None:
    channel = channel_of(lambda *_: Outcome.LATER, queued_max=1)
    request = handled(channel, frame_of(1, fetch_request("orders", {0: 0}), 12))
    assert not channel.is_full
    request.respond(FETCH.response())
    assert channel.unanswered == 0


def test_nothing_is_begun_after_the_end_though_what_was_begun_is_answered() -> None:
    channel = channel_of(lambda *_: Outcome.LATER)
    peer = Peer()
    request = ask(channel, peer)
    channel.close()
    channel.wait_for_room(lambda: pytest.fail("there is no room any more"))
    assert channel.is_full
    request.respond(DescribeClusterResponse())
    assert peer.answered == [request]
    assert channel.is_full


def test_a_full_broker_reads_on_when_there_is_room_and_loses_nothing() -> None:
    clock = ManualClock()
    with (
        Broker(in_process=True, clock=clock, settings={"queued.max.requests": 1}) as broker,
        connected(broker) as slow,
        connected(broker) as other,
        connected(broker) as waiting,
    ):
        create_topic(other, "orders")
        waiting.send(fetch_request("orders", {0: 0}, max_wait_ms=60_000), 12)
        broker.faults.delay("CreateTopics", 1000)
        slow.send(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]))
        until_on_loop(broker, lambda: broker.server.channel.is_full)
        other.send(MetadataRequest(topics=[]))
        until_on_loop(broker, lambda: broker.server.channel._waiting_peers)
        assert not other.has_answer(0.02)
        # The delay begins when the topic is on the disk, which may be after any turn of the clock but the last.
        for _ in range(30):
            clock.advance(1000)
            if slow.has_answer(1.0):
                break
        assert slow.receive().topics[0].error_code == ErrorCode.NONE
        assert other.receive().brokers
        assert produce(other, "orders", batch_of()).error_code == ErrorCode.NONE
        assert waiting.receive().responses[0].partitions[0].records


def test_a_connection_that_sends_garbage_is_closed_and_hurts_no_other() -> None:
    with Broker(in_process=True) as broker, connected(broker) as good, connected(broker) as bad:
        bad._socket.sendall((20).to_bytes(4, "big") + b"\x7f" * 20)
        with pytest.raises(ConnectionFailedError, match=r"closed|reset"):
            bad.request(MetadataRequest())
        assert good.request(MetadataRequest()).brokers


def test_a_turn_is_counted_as_busy_and_when_it_is_long_as_a_stall() -> None:
    channel = channel_of(lambda *_: DescribeClusterResponse())
    channel.add_shortcut(60, lambda frame: b"short" if len(frame) == 4 else None)
    for _ in range(3):
        assert channel.answer_shortly(memoryview(b"\0\x3c\0\0")) == b"short"
    assert channel.answer_shortly(memoryview(b"\0\x3c\0\0\0")) is None
    channel.count_turn(0.25, 3)
    channel.count_turn(0.0, 0)
    assert channel.busy_seconds == 0.25
    assert channel.stalls.count == 1
    assert (channel.api_stats[60].requests, channel.api_stats[60].time.count) == (3, 3)
