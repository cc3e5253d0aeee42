"""Produce: every version, every answer, and that the short way and the long way do the same."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker import produce_frame
from barnabas.broker.apis.produce import _AnswerTemplate
from barnabas.broker.partition import ROOM_FOR_NONE
from barnabas.client.connection import Connection, ConnectionFailedError
from barnabas.embedded import Broker
from barnabas.records.codecs import Codec
from barnabas.storage.log_types import LogAppendInfo
from barnabas.wire.apis import APIS, request_decoder, request_encoder, response_encoder
from barnabas.wire.errors import ErrorCode
from barnabas.wire.frames import RequestHeader, request_frame, response_frame
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.wire.messages.topics import DeleteTopicsRequest
from tests.broker.asking import (
    connected,
    create_topic,
    fetch,
    fetch_request,
    offsets_of,
    produce,
    produce_request,
    records_of,
)
from tests.broker.coordinating import TRANSACTION, add, end, find, init, produce_in
from tests.broker.turning import on_loop, until_on_loop
from tests.records.message_sets import build_message_set
from tests.storage.builders import batch_of, sent_by

PRODUCE = APIS[0]
Topic = Callable[..., str]


def now(broker: Broker) -> int:
    return broker.server.services.clock.now_ms()


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_appends_and_answers_its_offsets(
    connection: Connection, broker: Broker, topic: Topic, version: int
) -> None:
    name = topic()
    for round_number in range(5):  # The first go the long way, and then shorter ones.
        answer = produce(connection, name, batch_of(5, timestamp=now(broker)), version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 5 * round_number)
        assert answer.log_append_time_ms == -1
    assert offsets_of(fetch(connection, name, 0)) == list(range(25))


def test_a_refusal_is_no_failure_and_is_counted_by_its_code(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic(**{"max.message.bytes": 200})
    errors = broker.server.channel.api_stats[0].errors
    before = dict(errors)
    batch = batch_of(timestamp=now(broker), size=1_000)
    for _ in range(2):
        assert produce(connection, name, batch).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(connection, name, batch, 7).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stats = broker.server.services.replica_manager.topic_stats.topic(name)
    assert (stats.failed_produce_requests, stats.bytes_rejected) == (0, 3 * len(batch))
    for code, count in ((ErrorCode.MESSAGE_TOO_LARGE, 2), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1)):
        assert errors[code] == before.get(code, 0) + count


def test_topics_are_named_by_id_from_version_13_on(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    topic_id = broker.server.services.cache.topics[name].topic_id.bytes
    for expected in range(3):
        data = PartitionProduceData(index=0, records=batch_of(timestamp=now(broker)))
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])]
        )
        (answer,) = connection.request(request, 13).responses
        assert answer.topic_id == topic_id
        assert answer.partition_responses[0].base_offset == expected
    request.topic_data[0].topic_id = bytes(15) + b"\x01"
    (answer,) = connection.request(request, 13).responses
    assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
def test_old_versions_carry_message_sets(
    connection: Connection, broker: Broker, topic: Topic, version: int, magic: int
) -> None:
    name = topic()
    sent = build_message_set(magic, [(0, now(broker), b"k", b"v1"), (1, now(broker), None, b"v2")])
    answer = produce(connection, name, sent, version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
    found = [(record.key, record.value) for record in records_of(fetch(connection, name, 0))]
    assert found == [(b"k", b"v1"), (None, b"v2")]


def test_what_is_stored_is_what_was_sent(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    batches = [batch_of(3, timestamp=now(broker), codec=codec) for codec in Codec]
    for batch in batches:
        assert produce(connection, name, batch).error_code == ErrorCode.NONE
    stored = bytes(fetch(connection, name, 0).records or b"")
    # All but base offset and leader epoch, which the leader gives, and which the checksum does not cover.
    position = 0
    for batch in batches:
        assert stored[position + 8 : position + 12] == batch[8:12]
        assert stored[position + 16 : position + len(batch)] == batch[16:]
        position += len(batch)
    assert position == len(stored)


# Errors.


def test_an_error_of_one_partition_is_its_answer_alone(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic(partitions=3)
    good, bad = batch_of(2, timestamp=now(broker)), batch_of(2, timestamp=now(broker))
    bad[-1] ^= 1
    request = produce_request(name, {0: good, 1: bad, 2: bytes(good), 7: bytes(good)})
    (answer,) = connection.request(request, 9).responses
    assert [one.error_code for one in answer.partition_responses] == [
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [one.base_offset for one in answer.partition_responses] == [0, -1, 0, -1]
    assert answer.partition_responses[1].error_message
    assert offsets_of(fetch(connection, name, 0, partition=1)) == []


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_unknown_acks_append_nothing(connection: Connection, broker: Broker, topic: Topic, acks: int) -> None:
    name = topic()
    produce(connection, name, batch_of(timestamp=now(broker)))  # So that the short way knows the partition.
    answer = produce(connection, name, batch_of(timestamp=now(broker)), acks=acks)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert offsets_of(fetch(connection, name, 0)) == [0]


def test_a_topic_that_does_not_exist_is_not_created(connection: Connection, broker: Broker) -> None:
    answer = produce(connection, "never-created", batch_of(timestamp=now(broker)))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "never-created" not in broker.server.services.cache.topics


def test_more_than_one_batch_a_partition_is_refused(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    batch = bytes(batch_of(timestamp=now(broker)))
    for _ in range(2):
        assert produce(connection, name, batch + batch).error_code == ErrorCode.INVALID_RECORD
        assert produce(connection, name, batch[:-1]).error_code == ErrorCode.INVALID_RECORD
        assert produce(connection, name, b"").error_code == ErrorCode.INVALID_RECORD
        assert produce(connection, name, None).error_code == ErrorCode.INVALID_RECORD
        assert produce(connection, name, batch).error_code == ErrorCode.NONE
    assert offsets_of(fetch(connection, name, 0)) == [0, 1]


def test_zstd_needs_version_7(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    batch = batch_of(timestamp=now(broker), codec=Codec.ZSTD)
    assert produce(connection, name, batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(connection, name, batch, version=7).error_code == ErrorCode.NONE
    assert produce(connection, name, batch, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_internal_topics_are_refused(connection: Connection, broker: Broker) -> None:
    answer = produce(connection, "__consumer_offsets", batch_of(timestamp=now(broker)))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_too_few_in_sync_replicas_refuse_acks_all_only(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic(**{"min.insync.replicas": 2})
    for _ in range(2):
        batch = batch_of(timestamp=now(broker))
        assert produce(connection, name, batch, acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert produce(connection, name, batch, acks=1).error_code == ErrorCode.NONE
    assert offsets_of(fetch(connection, name, 0)) == [0, 1]


def test_log_append_time_is_answered(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic(**{"message.timestamp.type": "LogAppendTime"})
    for _ in range(2):
        before = now(broker)
        answer = produce(connection, name, batch_of(2, timestamp=1))
        assert before <= answer.log_append_time_ms <= now(broker)
        assert records_of(fetch(connection, name, answer.base_offset))[0].timestamp == answer.log_append_time_ms


# acks=0.


def test_acks_0_has_no_answer_and_is_appended(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    for _ in range(3):
        connection.send(produce_request(name, {0: batch_of(timestamp=now(broker))}, acks=0), 9, is_answered=False)
    # Requests are handled in order, so the fetch finds all three.
    assert offsets_of(fetch(connection, name, 0)) == [0, 1, 2]


def test_acks_0_with_an_error_ends_the_connection(broker: Broker) -> None:
    with connected(broker) as own:
        own.send(produce_request("no-such-topic", {0: batch_of(timestamp=now(broker))}, acks=0), 9, is_answered=False)
        with pytest.raises(ConnectionFailedError, match=r"closed the connection|reset by peer"):
            fetch(own, "no-such-topic", 0)


# Idempotence.


def test_a_batch_that_is_sent_twice_is_answered_with_the_offsets_of_the_first(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic()
    first = produce(connection, name, sent_by(7, 0, 3, timestamp=now(broker)))
    second = produce(connection, name, sent_by(7, 3, 3, timestamp=now(broker)))
    again = produce(connection, name, sent_by(7, 0, 3, timestamp=now(broker)))
    assert [one.base_offset for one in (first, second, again)] == [0, 3, 0]
    assert again.error_code == ErrorCode.NONE
    gap = produce(connection, name, sent_by(7, 9, 3, timestamp=now(broker)))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert offsets_of(fetch(connection, name, 0)) == list(range(6))


# The short way.


def fake_batch(size: int) -> bytes:
    """Bytes that look like a batch from outside, where they are long enough for one."""
    return (
        bytes(8) + (size - 12).to_bytes(4, "big") + bytes(4) + b"\2" + bytes(size - 17) if size >= 61 else bytes(size)
    )


FRAMES = st.builds(
    lambda version, client_id, topic, index, acks, timeout_ms, size, topics, partitions: (
        version,
        RequestHeader(0, version, 77, client_id),
        ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=topic.encode().ljust(16, b"-")[:16],
                    partition_data=[PartitionProduceData(index=index, records=fake_batch(size))] * partitions,
                )
            ]
            * topics,
        ),
    ),
    version=st.integers(0, 13),
    client_id=st.none() | st.text(max_size=20),
    topic=st.text("abcdefgh.-_", min_size=0, max_size=200),
    index=st.integers(-1, 2**31 - 1),
    acks=st.sampled_from([-1, 0, 1, 5]),
    timeout_ms=st.integers(0, 2**31 - 1),
    size=st.sampled_from([0, 1, 60, 61, 100, 126, 127, 128, 20_000]),
    topics=st.integers(0, 2),
    partitions=st.integers(0, 2),
)


def frame_of(version: int, header: RequestHeader, request: ProduceRequest) -> bytes:
    parts = request_frame(PRODUCE, header, request_encoder(PRODUCE, version)(request))
    return b"".join(bytes(part) for part in parts)[4:]


@given(FRAMES)
def test_the_short_way_reads_what_the_codec_reads(case: tuple[int, RequestHeader, ProduceRequest]) -> None:
    version, header, request = case
    found = produce_frame.read_produce(memoryview(frame_of(version, header, request)))
    is_usual = (
        version >= 3
        and (header.client_id or "").isascii()
        and [len(topic.partition_data) for topic in request.topic_data] == [1]
        and len(request.topic_data[0].partition_data[0].records or b"") >= 61
        and (version >= 13 or 0 < len(request.topic_data[0].name) <= (126 if version >= 9 else 200))
    )
    if found is None:
        assert not is_usual or version >= 9
        return
    assert is_usual
    topic = request.topic_data[0]
    data = topic.partition_data[0]
    name = topic.topic_id if version >= 13 else topic.name.encode()
    assert found[:6] == (version, 77, request.acks, request.timeout_ms, name, data.index)
    assert frame_of(*case)[found[6] : found[7]] == data.records


@given(FRAMES, st.data())
def test_a_damaged_frame_is_never_read_otherwise_than_the_codec_does(
    case: tuple[int, RequestHeader, ProduceRequest], data: st.DataObject
) -> None:
    frame = bytearray(frame_of(*case))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, min(len(frame) - 1, 80)))] = data.draw(st.integers(0, 255))
    found = produce_frame.read_produce(memoryview(frame)[: data.draw(st.integers(len(frame) - 5, len(frame)))])
    if found is None:
        return
    version, _, acks, timeout_ms, name, index, start, end, transactional_id = found
    position = 10 + max(0, int.from_bytes(frame[8:10], "big", signed=True)) + (version >= 9)
    decoded, _ = request_decoder(PRODUCE, version)(bytes(frame), position)
    topic = decoded.topic_data[0]
    assert (acks, timeout_ms) == (decoded.acks, decoded.timeout_ms)
    assert transactional_id == (decoded.transactional_id or "").encode()
    assert name == (topic.topic_id if version >= 13 else topic.name.encode())
    assert (index, frame[start:end]) == (topic.partition_data[0].index, topic.partition_data[0].records)


@given(st.integers(3, 13), st.text("abc", min_size=1, max_size=20), *[st.integers(0, 2**31 - 1)] * 5)
def test_the_short_way_answers_what_the_codec_answers(
    version: int, name: str, correlation_id: int, index: int, offset: int, time: int, start: int
) -> None:
    topic = name.encode().ljust(16)[:16] if version >= 13 else name.encode()
    info = LogAppendInfo(offset, offset, 0, time, start, 0, 0)
    partition = PartitionProduceResponse(
        index=index, base_offset=offset, log_append_time_ms=time, log_start_offset=start
    )
    named = TopicProduceResponse(topic_id=topic) if version >= 13 else TopicProduceResponse(name=name)
    named.partition_responses = [partition]
    body = response_encoder(PRODUCE, version)(ProduceResponse(responses=[named]))
    expected = b"".join(response_frame(PRODUCE, version, correlation_id, body))
    assert _AnswerTemplate(topic, version).fill(correlation_id, index, info) == expected


# The plain way: many requests at once, from the receive buffer to their logs.


def wired(
    name: str,
    index: int,
    batch: bytes | bytearray,
    *,
    version: int = 9,
    acks: int = -1,
    number: int = 0,
    transactional_id: str | None = None,
) -> bytes:
    topics = [TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=bytes(batch))])]
    body = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)
    header = RequestHeader(0, version, number, "client")
    return b"".join(bytes(part) for part in request_frame(PRODUCE, header, request_encoder(PRODUCE, version)(body)))


def taken(broker: Broker, data: bytes, frame_bytes_max: int = 1 << 20) -> tuple[int, int, bytes]:
    """Let a broker take what it takes of a receive buffer that has more behind these bytes, which do not count yet."""
    view = memoryview(bytearray(b"garbage" + data + b"\0" * 100))
    place = (7, 7 + len(data), frame_bytes_max)
    start, count, answers = on_loop(broker, lambda: broker.server.channel.take_plain(view, *place))
    return start - 7, count, answers


def answered(name: str, index: int, number: int, base_offset: int, version: int = 9) -> bytes:
    part = PartitionProduceResponse(index=index, base_offset=base_offset, log_append_time_ms=-1, log_start_offset=0)
    topic = TopicProduceResponse(name=name, partition_responses=[part])
    body = response_encoder(PRODUCE, version)(ProduceResponse(responses=[topic]))
    return b"".join(bytes(part) for part in response_frame(PRODUCE, version, number, body))


@pytest.fixture
def begun(connection: Connection, broker: Broker, topic: Topic) -> str:
    """A topic of two partitions with two records in each, after which it knows when to roll."""
    name = topic(partitions=2)
    for _ in range(2):
        for index in range(2):
            assert produce(connection, name, batch_of(timestamp=now(broker)), index).error_code == ErrorCode.NONE
    return name


@pytest.mark.parametrize("version", range(3, 13))
def test_plain_requests_are_taken_together_and_answered_as_the_codec_would(
    broker: Broker, begun: str, version: int
) -> None:
    stats = broker.server.services.replica_manager.topic_stats.topic(begun)
    before = (stats.total_produce_requests, stats.messages_in, stats.bytes_in)
    batch = batch_of(3, timestamp=now(broker))
    frames = [wired(begun, index, batch, version=version, number=70 + index) for index in (0, 1, 0)]
    start, count, answers = taken(broker, b"".join(frames))
    assert (start, count) == (sum(map(len, frames)), 3)
    expected = [(0, 70, 2), (1, 71, 2), (0, 70, 5)]
    assert answers == b"".join(answered(begun, *one, version=version) for one in expected)
    after = (stats.total_produce_requests, stats.messages_in, stats.bytes_in)
    assert after == (before[0] + 3, before[1] + 9, before[2] + 3 * len(batch))


def test_what_is_not_plain_ends_the_taking_with_what_was_before_it(broker: Broker, begun: str) -> None:
    plain = wired(begun, 0, batch_of(timestamp=now(broker)))
    others = [
        wired(begun, 0, sent_by(1, 0, timestamp=now(broker))),
        wired(begun, 0, batch_of(timestamp=now(broker), codec=Codec.GZIP)),
        wired(begun, 7, batch_of(timestamp=now(broker))),
        wired("nowhere", 0, batch_of(timestamp=now(broker))),
        wired("__consumer_offsets", 0, batch_of(timestamp=now(broker))),
        wired(begun, 0, batch_of(timestamp=now(broker)), acks=2),
        b"\xff" * 100,
        (80).to_bytes(4, "big") + b"\0" * 80,
        (10).to_bytes(4, "big") + b"\0" * 80,
    ]
    for other in others:
        start, count, answers = taken(broker, plain + other + plain)
        assert (start, count, len(answers)) == (len(plain), 1, len(answered(begun, 0, 0, 0)))


@pytest.mark.parametrize("version", [11, 12])
def test_the_first_batch_of_a_transaction_is_taken_from_those_who_may_begin_one(
    connection: Connection, broker: Broker, begun: str, version: int
) -> None:
    name = f"tx of {begun}"
    find(connection, name, TRANSACTION)
    producer = init(connection, name)
    end_version = 5 if version >= 12 else 4
    if version < 12:
        add(connection, producer, (begun, 0))
    assert produce_in(connection, producer, begun, version=version) == ErrorCode.NONE
    assert end(connection, producer, version=end_version) is ErrorCode.NONE  # From here on it is a known producer.
    log = broker.server.services.replica_manager.partitions[begun, 0].log

    def wired_by(epoch: int, transactional_id: str = name, **fields: Any) -> bytes:
        sequence = producer.sequences.get((begun, 0), 0)
        batch = sent_by(
            producer.producer_id, sequence, epoch=epoch, transactional=True, timestamp=now(broker), **fields
        )
        return wired(begun, 0, batch, version=version, transactional_id=transactional_id)

    right = wired_by(producer.epoch)
    before = log.log_end_offset
    if version < 12:
        assert taken(broker, right)[1] == 0, "the partition was not added"
        add(connection, producer, (begun, 0))
    others = {
        "of nobody": wired_by(producer.epoch, "nobody"),
        "of an epoch that is over": wired_by(producer.epoch - 1),
        "of an epoch that nobody has": wired_by(producer.epoch + 1),
        "that is compressed": wired_by(producer.epoch, codec=Codec.GZIP),
    }
    for why, frame in others.items():
        assert taken(broker, frame)[1] == 0, why
    assert log.log_end_offset == before
    assert taken(broker, right) == (len(right), 1, answered(begun, 0, 0, before, version))
    assert (log.log_end_offset, log.last_stable.message_offset) == (before + 1, before)
    assert taken(broker, right)[1] == 0, "it was sent before"
    assert end(connection, producer, version=end_version) is ErrorCode.NONE
    assert log.last_stable.message_offset == log.log_end_offset == before + 2


def test_transactions_that_begin_keep_others_waiting_no_longer_than_plain_requests(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    count = produce_frame.FRAMES_MAX // produce_frame.FRAMES_A_TRANSACTION + 2
    name = topic(partitions=count)
    find(connection, name, TRANSACTION)
    producer = init(connection, name)
    for index in range(count):
        produce(connection, name, batch_of(timestamp=now(broker)), index)
        assert produce_in(connection, producer, name, index) == ErrorCode.NONE
    assert end(connection, producer) is ErrorCode.NONE
    batch = sent_by(producer.producer_id, 0, epoch=producer.epoch, transactional=True, timestamp=now(broker))
    frames = [wired(name, index, batch, version=12, transactional_id=name) for index in range(count)]
    assert taken(broker, b"".join(frames))[1] == count - 2


def test_a_frame_that_is_not_all_there_waits(broker: Broker, begun: str) -> None:
    frame = wired(begun, 0, batch_of(timestamp=now(broker)))
    for size in (0, 3, 4, 60, len(frame) - 1):
        assert taken(broker, frame[:size]) == (0, 0, b"")
        assert taken(broker, frame + frame[:size])[:2] == (len(frame), 1)


def test_a_frame_that_is_too_large_and_one_too_many_are_left(broker: Broker, begun: str) -> None:
    frame = wired(begun, 0, batch_of(timestamp=now(broker)))
    assert taken(broker, frame, len(frame) - 5) == (0, 0, b"")
    assert taken(broker, frame, len(frame) - 4)[1] == 1
    assert taken(broker, frame * 100)[:2] == (len(frame) * produce_frame.FRAMES_MAX, produce_frame.FRAMES_MAX)


def test_acks_0_is_taken_without_an_answer(connection: Connection, broker: Broker, begun: str) -> None:
    frame = wired(begun, 0, batch_of(timestamp=now(broker)), acks=0)
    assert taken(broker, frame * 3) == (3 * len(frame), 3, b"")
    assert offsets_of(fetch(connection, begun, 0)) == list(range(5))


def test_a_full_disk_a_lost_leader_and_faults_are_left_to_the_long_way(broker: Broker, begun: str) -> None:
    frame = wired(begun, 0, batch_of(timestamp=now(broker)))
    partition = broker.server.services.replica_manager.partitions[begun, 0]
    for name, value in (("room", ROOM_FOR_NONE), ("is_leader", False), ("in_sync_replicas", (0, 1))):
        before = getattr(partition, name)
        setattr(partition, name, value)
        assert taken(broker, frame)[1] == 0
        setattr(partition, name, before)
        assert taken(broker, frame)[1] == 1
    broker.faults.error("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert taken(broker, frame)[1] == 0
    broker.faults.clear()
    assert taken(broker, frame)[1] == 1


def test_a_topic_that_is_deleted_and_made_again_is_another_one(
    connection: Connection, broker: Broker, begun: str
) -> None:
    frame = wired(begun, 0, batch_of(timestamp=now(broker)))
    assert taken(broker, frame)[1] == 1
    connection.request(DeleteTopicsRequest(topic_names=[begun]), 5)
    assert taken(broker, frame) == (0, 0, b"")
    create_topic(connection, begun)
    for _ in range(2):
        produce(connection, begun, batch_of(timestamp=now(broker)))
    assert taken(broker, frame)[2] == answered(begun, 0, 0, 2)


def test_a_fetch_that_waits_hears_of_it(connection: Connection, broker: Broker, begun: str) -> None:
    frame = wired(begun, 0, batch_of(timestamp=now(broker)))
    with connected(broker) as waiting:
        waiting.send(fetch_request(begun, {0: 2}, max_wait_ms=60_000), 12)
        until_on_loop(broker, lambda: broker.server.services.replica_manager.delayed_fetch.size)
        assert taken(broker, frame)[1] == 1
        assert waiting.receive().responses[0].partitions[0].records


class Failing:
    """Stands before the writes of a log, and fails once."""

    def __init__(self, broker: Broker, name: str, error: BaseException) -> None:
        self.active = broker.server.services.replica_manager.partitions[name, 0].log.active
        self.write, self.error, self.tried = self.active.write_at, error, 0
        self.active.write_at = self  # type: ignore[assignment]

    def __call__(self, data: memoryview, position: int) -> None:
        self.tried += 1
        self.active.write_at = self.write
        raise self.error


def test_a_disk_that_fails_once_is_offline_and_nothing_is_tried_again(tmp_path: Path) -> None:
    with Broker(in_process=True, data=f"{tmp_path}/a,{tmp_path}/b") as broker, connected(broker) as connection:
        create_topic(connection, "orders", 2)
        for _ in range(3):
            produce(connection, "orders", batch_of(timestamp=now(broker)))
        failing = Failing(broker, "orders", OSError(errno.EIO, "Input/output error"))
        batch = batch_of(timestamp=now(broker))
        assert produce(connection, "orders", batch).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert failing.tried == 1
        assert ("orders", 0) not in broker.server.services.replica_manager.partitions


def test_a_bug_in_the_middle_of_many_requests_loses_no_answer_and_appends_nothing_twice(
    connection: Connection, broker: Broker, begun: str
) -> None:
    frame = wired(begun, 0, batch_of(timestamp=now(broker)))
    failing = Failing(broker, begun, MemoryError("for a moment"))
    assert taken(broker, frame * 3) == (0, 0, b"")
    assert failing.tried == 1
    assert taken(broker, frame * 3)[1] == 3
    assert offsets_of(fetch(connection, begun, 0)) == list(range(5))


def test_an_id_that_spells_the_name_of_a_topic_is_not_that_topic(connection: Connection, broker: Broker) -> None:
    create_topic(connection, "sixteen-chars-ok")
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                topic_id=b"sixteen-chars-ok",
                partition_data=[PartitionProduceData(index=0, records=bytes(batch_of(timestamp=now(broker))))],
            )
        ],
    )
    for _ in range(4):
        answer = connection.request(request, 13)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_client_id_that_is_not_text_ends_the_connection(broker: Broker, begun: str) -> None:
    frame = bytearray(wired(begun, 0, batch_of(timestamp=now(broker))))
    place = frame.index(b"client")
    frame[place] = 0xFF
    assert taken(broker, bytes(frame)) == (0, 0, b"")
    frame[place : place + 2] = "\u00e9".encode()
    assert taken(broker, bytes(frame)) == (0, 0, b"")
