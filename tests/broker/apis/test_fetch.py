"""Fetch: every version, every limit, waiting by a clock that is turned by hand, and sessions."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.client.connection import Connection
from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.wire.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.asking import connected, create_topic, fetch, fetch_request, offsets_of, produce
from tests.broker.turning import on_loop, until_on_loop
from tests.storage.builders import batch_of, marker_of, sent_by

Topic = Callable[..., str]
TOPIC_ID_VERSION = 13


def id_of(broker: Broker, topic: str) -> bytes:
    return broker.server.services.cache.topics[topic].topic_id.bytes


def batch(broker: Broker, count: int = 1, **fields: Any) -> bytearray:
    return batch_of(count, timestamp=broker.server.services.clock.now_ms(), **fields)


def filled(connection: Connection, broker: Broker, name: str, *counts: int, size: int = 100) -> list[int]:
    """Produce batches of so many records, and return the sizes of the batches."""
    batches = [batch(broker, count, size=size) for count in counts]
    for one in batches:
        assert produce(connection, name, one).error_code == ErrorCode.NONE
    return [len(one) for one in batches]


def size_of(data: Any) -> int:
    assert data.records is not None
    return len(data.records)


def partitions_of(answer: Any) -> list[Any]:
    return [(topic.topic, data.partition_index) for topic in answer.responses for data in topic.partitions]


# Every version.


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_what_was_written(
    connection: Connection, broker: Broker, topic: Topic, version: int
) -> None:
    name = topic()
    filled(connection, broker, name, 3, 2)
    request = fetch_request(name, {0: 1})
    if version >= TOPIC_ID_VERSION:
        request.topics[0].topic, request.topics[0].topic_id = "", id_of(broker, name)
    answer = connection.request(request, version)
    (found,) = answer.responses
    assert answer.error_code == ErrorCode.NONE
    assert (found.topic, found.topic_id) == (
        (name, bytes(16)) if version < TOPIC_ID_VERSION else ("", id_of(broker, name))
    )
    (data,) = found.partitions
    # An offset inside a batch gets the whole batch.
    assert offsets_of(data) == [0, 1, 2, 3, 4]
    assert (data.high_watermark, data.last_stable_offset) == (5, 5)
    assert data.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", [4, 11, 12, 17, 18])
def test_records_are_never_null(connection: Connection, broker: Broker, topic: Topic, version: int) -> None:
    request = fetch_request(topic(), {0: 0, 1: 0, 2: 99})
    if version >= TOPIC_ID_VERSION:
        request.topics[0].topic_id = id_of(broker, request.topics[0].topic)
    for data in connection.request(request, version).responses[0].partitions:
        assert data.records == b""


# Errors.


def test_an_offset_that_is_not_there_is_out_of_range(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    filled(connection, broker, name, 5)
    for offset in (6, 100, -1):
        data = fetch(connection, name, offset)
        assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    at_the_end = fetch(connection, name, 5)
    assert (at_the_end.error_code, at_the_end.high_watermark) == (ErrorCode.NONE, 5)
    deleted = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=3)])
    connection.request(DeleteRecordsRequest(topics=[deleted]))
    assert fetch(connection, name, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = fetch(connection, name, 3)
    assert (data.error_code, data.log_start_offset) == (ErrorCode.NONE, 3)


def test_what_does_not_exist_is_answered_and_the_rest_is_read(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic()
    filled(connection, broker, name, 1)
    request = fetch_request(name, {7: 0, 0: 0}, max_wait_ms=60_000, min_bytes=1 << 20)
    request.topics.append(fetch_request("no-such-topic", {0: 0}).topics[0])
    known, unknown = connection.request(request, 12).responses  # An error is answered at once.
    assert [data.error_code for data in known.partitions] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert offsets_of(known.partitions[1]) == [0]
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_id_that_no_topic_has_is_its_own_error(connection: Connection) -> None:
    topic = FetchTopic(topic_id=b"x" * 16, partitions=[FetchPartition()])
    (found,) = connection.request(FetchRequest(topics=[topic]), 13).responses
    assert found.topic_id == b"x" * 16
    assert found.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, ErrorCode.NONE), (0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_the_leader_epoch_is_compared(connection: Connection, topic: Topic, epoch: int, code: ErrorCode) -> None:
    request = fetch_request(topic(), {0: 0})
    request.topics[0].partitions[0].current_leader_epoch = epoch
    assert connection.request(request, 12).responses[0].partitions[0].error_code == code


def test_an_old_leader_epoch_is_fenced(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    partition = broker.server.services.replica_manager.partitions[name, 0]
    on_loop(broker, lambda: partition.make_leader(0, 3, [0], [0]))
    request = fetch_request(name, {0: 0})
    request.topics[0].partitions[0].current_leader_epoch = 2
    assert connection.request(request, 12).responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_a_fetcher_whose_log_is_another_is_told_where_they_part(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic()
    partition = broker.server.services.replica_manager.partitions[name, 0]
    filled(connection, broker, name, 2)
    on_loop(broker, lambda: partition.make_leader(0, 3, [0], [0]))
    filled(connection, broker, name, 2)
    request = fetch_request(name, {0: 4}, max_wait_ms=60_000)
    asked = request.topics[0].partitions[0]
    for last_fetched, offset, expected in [(0, 4, (0, 2)), (2, 4, (0, 2)), (3, 4, None), (0, 2, None)]:
        asked.last_fetched_epoch, asked.fetch_offset = last_fetched, offset
        request.max_wait_ms = 0
        data = connection.request(request, 12).responses[0].partitions[0]
        found = data.diverging_epoch
        assert (found.epoch, found.end_offset) == (expected or (-1, -1))
        assert data.error_code == ErrorCode.NONE
        if expected:
            assert data.records == b""


# Limits.


def test_an_answer_has_as_many_whole_batches_as_fit(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    first, second, third = filled(connection, broker, name, 2, 2, 2)
    for limit in ("partition_max_bytes", "max_bytes"):
        data = fetch(connection, name, 0, **{limit: first + second})
        assert offsets_of(data) == [0, 1, 2, 3]
        data = fetch(connection, name, 0, **{limit: first + second + third - 1})
        assert offsets_of(data) == [0, 1, 2, 3]
        assert size_of(data) <= first + second + third - 1


@pytest.mark.parametrize("limit", ["partition_max_bytes", "max_bytes"])
def test_the_first_batch_comes_whole_even_when_it_is_over_the_limit(
    connection: Connection, broker: Broker, topic: Topic, limit: str
) -> None:
    name = topic()
    filled(connection, broker, name, 5, 5, size=1000)
    for most in (0, 1, 100):
        assert offsets_of(fetch(connection, name, 0, **{limit: most})) == [0, 1, 2, 3, 4]
        assert offsets_of(fetch(connection, name, 5, **{limit: most})) == [5, 6, 7, 8, 9]


def test_only_the_first_partition_of_an_answer_may_be_over_the_limit(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic(partitions=3)
    for partition in range(3):
        produce(connection, name, batch(broker, 5, size=1000), partition)
    answer = connection.request(fetch_request(name, {0: 0, 1: 0, 2: 0}, max_bytes=1000), 12)
    assert [offsets_of(data) for data in answer.responses[0].partitions] == [[0, 1, 2, 3, 4], [], []]
    # In another order another one is first.
    answer = connection.request(fetch_request(name, {2: 0, 0: 0}, max_bytes=1000), 12)
    assert [offsets_of(data) for data in answer.responses[0].partitions] == [[0, 1, 2, 3, 4], []]


def test_the_broker_limits_what_one_fetch_takes() -> None:
    with Broker(in_process=True, settings={"fetch.max.bytes": 1024}) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
        filled(connection, broker, "orders", 1, 1, 1, size=500)
        assert offsets_of(fetch(connection, "orders", 0)) == [0]


def test_an_answer_goes_over_the_end_of_a_segment(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic(**{"segment.bytes": 600})
    filled(connection, broker, name, *([2] * 12))
    found: list[int] = []
    while len(found) < 24:
        more = offsets_of(fetch(connection, name, len(found)))
        assert more[0] == len(found)
        found += more
    assert found == list(range(24))


def test_several_topics_are_answered_in_the_order_they_were_asked_for(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    first, second = topic(partitions=2), topic()
    filled(connection, broker, first, 1)
    filled(connection, broker, second, 2)
    request = fetch_request(second, {0: 0})
    request.topics += fetch_request(first, {1: 0, 0: 0}).topics
    answer = connection.request(request, 12)
    assert partitions_of(answer) == [(second, 0), (first, 1), (first, 0)]
    assert [offsets_of(data) for one in answer.responses for data in one.partitions] == [[0, 1], [], [0]]


# Committed.


def test_read_committed_stops_at_an_open_transaction_and_tells_the_aborted(
    connection: Connection, broker: Broker, topic: Topic
) -> None:
    name = topic()
    partition = broker.server.services.replica_manager.partitions[name, 0]
    now = broker.server.services.clock.now_ms()

    def append(data: bytearray, *, is_client: bool = True) -> None:
        on_loop(broker, lambda: partition.append_records_to_leader(memoryview(data), 1, is_client=is_client))

    append(sent_by(7, 0, 2, transactional=True, timestamp=now))
    append(marker_of(7, commit=False, timestamp=now), is_client=False)
    append(sent_by(7, 2, 1, transactional=True, timestamp=now))
    uncommitted = fetch(connection, name, 0)
    assert (uncommitted.high_watermark, uncommitted.last_stable_offset) == (4, 3)
    assert offsets_of(uncommitted) == [0, 1, 2, 3]
    assert uncommitted.aborted_transactions is None
    committed = fetch(connection, name, 0, isolation_level=1)
    assert offsets_of(committed) == [0, 1, 2]
    assert committed.aborted_transactions is not None
    assert [(one.producer_id, one.first_offset) for one in committed.aborted_transactions] == [(7, 0)]
    assert offsets_of(fetch(connection, name, 3, isolation_level=1)) == []


# Waiting.


class Waiting:
    """A broker whose clock the test turns, with one topic, a writer and two readers."""

    def __init__(self, broker: Broker, clock: ManualClock, connections: list[Connection]) -> None:
        self.broker = broker
        self.clock = clock
        self.writer, self.reader, self.other = connections

    def until_waiting(self, count: int = 1) -> None:
        until_on_loop(self.broker, lambda: self.broker.server.services.replica_manager.delayed_fetch.size == count)

    def write(self, count: int = 1, partition: int = 0) -> int:
        data = batch(self.broker, count)
        assert produce(self.writer, "orders", data, partition).error_code == ErrorCode.NONE
        return len(data)


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    clock = ManualClock()
    with (
        Broker(in_process=True, clock=clock) as broker,
        connected(broker) as writer,
        connected(broker) as reader,
        connected(broker) as other,
    ):
        create_topic(writer, "orders", 2)
        yield Waiting(broker, clock, [writer, reader, other])


def first_of(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


def test_a_fetch_waits_until_its_time_is_over(waiting: Waiting) -> None:
    waiting.reader.send(fetch_request("orders", {0: 0}, max_wait_ms=500), 12)
    waiting.until_waiting()
    waiting.clock.advance(499)
    assert not waiting.reader.has_answer(0.02)
    waiting.clock.advance(1)
    answer = first_of(waiting.reader.receive())
    assert (answer.error_code, answer.records, answer.high_watermark) == (ErrorCode.NONE, b"", 0)
    waiting.until_waiting(0)


def test_a_fetch_is_answered_by_an_append(waiting: Waiting) -> None:
    waiting.reader.send(fetch_request("orders", {1: 0, 0: 0}, max_wait_ms=60_000), 12)
    waiting.other.send(fetch_request("orders", {0: 0}, max_wait_ms=60_000), 12)
    waiting.until_waiting(2)
    waiting.write(3)
    assert [offsets_of(data) for data in waiting.reader.receive().responses[0].partitions] == [[], [0, 1, 2]]
    assert offsets_of(first_of(waiting.other.receive())) == [0, 1, 2]


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(waiting: Waiting) -> None:
    size = waiting.write()
    waiting.reader.send(fetch_request("orders", {0: 0, 1: 0}, max_wait_ms=60_000, min_bytes=3 * size), 12)
    waiting.until_waiting()
    waiting.write()
    assert not waiting.reader.has_answer(0.02)
    waiting.write(partition=1)  # The bytes of all partitions count.
    assert [len(offsets_of(data)) for data in waiting.reader.receive().responses[0].partitions] == [2, 1]


def test_what_is_there_is_answered_when_the_time_is_over(waiting: Waiting) -> None:
    waiting.write(2)
    waiting.reader.send(fetch_request("orders", {0: 0}, max_wait_ms=500, min_bytes=1 << 20), 12)
    waiting.until_waiting()
    waiting.write(1)
    waiting.clock.advance(500)
    assert offsets_of(first_of(waiting.reader.receive())) == [0, 1, 2]


def test_a_fetch_does_not_count_more_of_a_partition_than_it_takes(waiting: Waiting) -> None:
    request = fetch_request("orders", {0: 0}, max_wait_ms=500, min_bytes=10_000, partition_max_bytes=200)
    waiting.reader.send(request, 12)
    waiting.until_waiting()
    for _ in range(200):
        waiting.write()
    assert not waiting.reader.has_answer(0.02)
    waiting.clock.advance(500)
    assert offsets_of(first_of(waiting.reader.receive()))[:1] == [0]


@pytest.mark.parametrize(("min_bytes", "max_wait_ms"), [(0, 60_000), (1, 0)])
def test_a_fetch_that_asks_for_nothing_is_answered_at_once(waiting: Waiting, min_bytes: int, max_wait_ms: int) -> None:
    request = fetch_request("orders", {0: 0}, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    assert first_of(waiting.reader.request(request, 12)).records == b""


def test_a_fetch_is_woken_by_an_append_that_rolls_the_log(waiting: Waiting) -> None:
    create_topic(waiting.writer, "rolling", config={"segment.bytes": 300})
    assert produce(waiting.writer, "rolling", batch(waiting.broker, 2)).error_code == ErrorCode.NONE
    waiting.reader.send(fetch_request("rolling", {0: 2}, max_wait_ms=60_000, min_bytes=1 << 20), 12)
    waiting.until_waiting()
    for _ in range(3):
        produce(waiting.writer, "rolling", batch(waiting.broker, 2))
    # What it waits for lies in a newer segment, so that nobody counts bytes.
    assert offsets_of(first_of(waiting.reader.receive()))[:1] == [2]


def test_a_client_that_goes_away_does_not_wait_any_more(waiting: Waiting) -> None:
    waiting.reader.send(fetch_request("orders", {0: 0}, max_wait_ms=60_000), 12)
    waiting.until_waiting()
    waiting.reader.close()
    waiting.until_waiting(0)
    manager = waiting.broker.server.services.replica_manager
    assert not on_loop(waiting.broker, lambda: manager.delayed_fetch.is_watching(TopicPartition("orders", 0)))


def test_a_partition_that_is_named_twice_is_waited_for_once(waiting: Waiting) -> None:
    request = fetch_request("orders", {0: 0}, max_wait_ms=60_000)
    request.topics.append(request.topics[0])
    waiting.reader.send(request, 12)
    waiting.until_waiting()
    waiting.write()
    assert offsets_of(first_of(waiting.reader.receive())) == [0]


# Sessions.


def begin(connection: Connection, name: str, offsets: dict[int, int], version: int = 12) -> Any:
    answer = connection.request(fetch_request(name, offsets, session_epoch=0), version)
    assert answer.error_code == ErrorCode.NONE
    assert answer.session_id > 0
    return answer


def go_on(connection: Connection, session_id: int, epoch: int, **fields: Any) -> Any:
    return connection.request(FetchRequest(session_id=session_id, session_epoch=epoch, min_bytes=1, **fields), 12)


def test_a_session_answers_only_what_changed(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic(partitions=3)
    first = begin(connection, name, {0: 0, 1: 0, 2: 0})
    assert partitions_of(first) == [(name, 0), (name, 1), (name, 2)]
    session = first.session_id
    nothing = go_on(connection, session, 1)
    assert (nothing.session_id, nothing.responses) == (session, [])
    produce(connection, name, batch(broker), 1)
    second = go_on(connection, session, 2)
    assert partitions_of(second) == [(name, 1)]
    assert offsets_of(first_of(second)) == [0]
    moved = fetch_request(name, {1: 1}).topics
    assert go_on(connection, session, 3, topics=moved).responses == []
    forgotten = [ForgottenTopic(topic=name, partitions=[0])]
    produce(connection, name, batch(broker), 0)
    assert go_on(connection, session, 4, forgotten_topics_data=forgotten).responses == []


def test_a_session_is_ended_by_its_client(connection: Connection, topic: Topic) -> None:
    session = begin(connection, topic(), {0: 0}).session_id
    assert go_on(connection, session, -1).session_id == 0
    assert go_on(connection, session, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_is_continued_wrongly_is_refused(connection: Connection, topic: Topic) -> None:
    assert go_on(connection, 12345, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = begin(connection, topic(), {0: 0}).session_id
    wrong = go_on(connection, session, 5)
    assert (wrong.error_code, wrong.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    by_id = connection.request(FetchRequest(session_id=session, session_epoch=1), 13)
    assert by_id.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_goes_on_by_topic_ids(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    request = fetch_request(name, {0: 0}, session_epoch=0)
    request.topics[0].topic_id = id_of(broker, name)
    session = connection.request(request, 17).session_id
    filled(connection, broker, name, 2)
    answer = connection.request(FetchRequest(session_id=session, session_epoch=1, min_bytes=1), 17)
    assert answer.responses[0].topic_id == id_of(broker, name)
    assert offsets_of(first_of(answer)) == [0, 1]
    connection.request(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6)
    gone = connection.request(FetchRequest(session_id=session, session_epoch=2, min_bytes=1), 17)
    assert first_of(gone).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_session_waits_and_is_woken(waiting: Waiting) -> None:
    session = begin(waiting.reader, "orders", {0: 0, 1: 0}).session_id
    waiting.reader.send(FetchRequest(session_id=session, session_epoch=1, min_bytes=1, max_wait_ms=60_000), 12)
    waiting.until_waiting()
    waiting.write(partition=1)
    assert partitions_of(waiting.reader.receive()) == [("orders", 1)]
    waiting.reader.send(
        FetchRequest(
            session_id=session,
            session_epoch=2,
            min_bytes=1,
            max_wait_ms=500,
            topics=fetch_request("orders", {1: 1}).topics,
        ),
        12,
    )
    waiting.until_waiting()
    waiting.clock.advance(500)
    assert waiting.reader.receive().responses == []


def test_without_slots_every_fetch_is_a_full_one() -> None:
    settings = {"max.incremental.fetch.session.cache.slots": 0}
    with Broker(in_process=True, settings=settings) as broker, connected(broker) as connection:
        create_topic(connection, "orders")
        answer = connection.request(fetch_request("orders", {0: 0}, session_epoch=0), 12)
        assert (answer.error_code, answer.session_id, len(answer.responses)) == (ErrorCode.NONE, 0, 1)


def test_errors_of_partitions_are_counted(connection: Connection, broker: Broker, topic: Topic) -> None:
    name = topic()
    errors = broker.server.channel.api_stats[1].errors
    before = errors[ErrorCode.OFFSET_OUT_OF_RANGE]
    assert fetch(connection, name, 5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert errors[ErrorCode.OFFSET_OUT_OF_RANGE] == before + 1
