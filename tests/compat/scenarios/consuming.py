"""Consuming: where to start, what comes back, waiting for more, and offsets that are not there."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.compat.model import ConsumerOptions, FoundOffset, Need, NewRecord, ProducerOptions
from tests.compat.scenarios.scenario import Context, numbered, numbers_of, read, refused, scenario

BASE_TIMESTAMP_MS = 1_700_000_000_000
STEP_MS = 1_000


def timed_records(count: int) -> list[NewRecord]:
    return [
        NewRecord(value=b"%d" % number, timestamp_ms=BASE_TIMESTAMP_MS + number * STEP_MS) for number in range(count)
    ]


@scenario("A consumer that starts inside a batch gets the records from that offset on.")
def start_inside_a_batch(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(20))
    for start in (0, 7, 19):
        records = read(context.driver, topic, 20 - start, {0: start})
        assert [record.offset for record in records] == list(range(start, 20))
        assert numbers_of(records) == list(range(start, 20))


@scenario("More than one answer can hold comes in several, complete and in order.")
def many_fetches(context: Context) -> None:
    topic = context.new_topic()
    count = 400
    context.send(topic, numbered(count, size=10_000))
    records = read(context.driver, topic, count)
    assert [record.offset for record in records] == list(range(count))
    assert numbers_of(records) == list(range(count))


@scenario("Both isolation levels show all records where no transaction was.")
def read_committed_and_uncommitted(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(5))
    for read_committed in (True, False):
        records = read(context.driver, topic, 5, options=ConsumerOptions(read_committed=read_committed))
        assert numbers_of(records) == list(range(5))


@scenario("Waiting consumers get a new record at once, long before the longest wait is over.")
def long_poll(context: Context) -> None:
    topic = context.new_topic()
    wait_ms = 8_000
    with (
        context.driver.consumer(topic, {0: 0}, ConsumerOptions(fetch_wait_ms_max=wait_ms)) as consumer,
        context.driver.producer(ProducerOptions()) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        producer.send(topic, numbered(1))
        consumer.take(1)
        for number in (1, 2, 3):
            waiting = pool.submit(consumer.take, 1)
            producer.send(topic, numbered(1, start=number))
            sent_at = time.monotonic()
            assert numbers_of(waiting.result()) == [number]
            assert time.monotonic() - sent_at < wait_ms / 2_000
        # Nobody waits for an answer when the consumer is closed.
        producer.send(topic, numbered(1))


@scenario("A reader from the beginning meets a writer who is still busy, and gets everything.")
def consume_while_producing(context: Context) -> None:
    topic = context.new_topic()
    rounds, each = 10, 50
    with (
        context.driver.consumer(topic, {0: 0}, ConsumerOptions()) as consumer,
        context.driver.producer(ProducerOptions()) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        reading = pool.submit(consumer.take, rounds * each)
        for number in range(rounds):
            producer.send(topic, numbered(each, start=number * each))
        assert numbers_of(reading.result()) == list(range(rounds * each))


@scenario(
    "The first record at or after a time is found; before all records it is the first, past the end there is none."
)
def seek_by_time(context: Context) -> None:
    topic = context.new_topic(2, retention_ms="-1")
    # Two batches, so that a time lies in the middle of one that is not the first.
    context.send(topic, timed_records(10)[:5])
    context.send(topic, timed_records(10)[5:])

    def found(time_ms: int) -> int | None:
        answer = context.driver.offsets_for_times(topic, {0: time_ms})[0]
        return None if answer is None else answer.offset

    assert found(0) == 0
    assert found(BASE_TIMESTAMP_MS + 3 * STEP_MS) == 3
    assert found(BASE_TIMESTAMP_MS + 6 * STEP_MS + 1) == 7
    assert found(BASE_TIMESTAMP_MS + 9 * STEP_MS + 1) is None
    # The second partition is empty.
    assert context.driver.offsets_for_times(topic, {1: BASE_TIMESTAMP_MS})[1] is None
    assert numbers_of(read(context.driver, topic, 3, {0: 7})) == [7, 8, 9]


@scenario("The first and the next offset of a partition, empty or not.")
def earliest_and_latest_offsets(context: Context) -> None:
    topic = context.new_topic(2)
    context.send(topic, numbered(7))
    offsets = [context.driver.list_offset(topic, partition, "latest").offset for partition in (0, 1)]
    assert offsets == [7, 0]
    assert [context.driver.list_offset(topic, partition, "earliest").offset for partition in (0, 1)] == [0, 0]


@scenario(
    "The record with the newest timestamp, which need not be the last; none in an empty partition.", Need.MAX_TIMESTAMP
)
def offset_of_the_newest_timestamp(context: Context) -> None:
    topic = context.new_topic(2, retention_ms="-1")
    times = [BASE_TIMESTAMP_MS + offset for offset in (0, 9_000, 4_000)]
    context.send(topic, [NewRecord(value=b"v", timestamp_ms=time_ms) for time_ms in times])
    newest = context.driver.list_offset(topic, 0, "max-timestamp")
    assert newest == FoundOffset(offset=1, timestamp_ms=times[1])
    assert context.driver.list_offset(topic, 1, "max-timestamp") == FoundOffset(offset=-1, timestamp_ms=-1)


@scenario("Reading past the end is answered with OFFSET_OUT_OF_RANGE, which a consumer without a reset raises.")
def offset_out_of_range(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(3))
    with refused("OFFSET_OUT_OF_RANGE"):
        read(context.driver, topic, 1, {0: 1_000}, ConsumerOptions(reset="none"))


@scenario("A consumer outside the offsets goes back to the beginning (auto.offset.reset=earliest).")
def reset_to_earliest(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(3))
    assert numbers_of(read(context.driver, topic, 3, {0: 1_000}, ConsumerOptions(reset="earliest"))) == [0, 1, 2]


@scenario("A consumer outside the offsets goes on with what comes next (auto.offset.reset=latest).")
def reset_to_latest(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, numbered(3))
    with (
        context.driver.consumer(topic, {0: 1_000}, ConsumerOptions(reset="latest")) as consumer,
        context.driver.producer(ProducerOptions()) as producer,
        ThreadPoolExecutor(1) as pool,
    ):
        taking = pool.submit(consumer.take, 1)
        sent = 3
        # When the consumer has reset cannot be seen from outside, so records are sent until it gets one.
        while not taking.done():
            producer.send(topic, numbered(1, start=sent))
            sent += 1
        [number] = numbers_of(taking.result())
    assert 3 <= number < sent


SCENARIOS = [
    start_inside_a_batch,
    many_fetches,
    read_committed_and_uncommitted,
    long_poll,
    consume_while_producing,
    seek_by_time,
    earliest_and_latest_offsets,
    offset_of_the_newest_timestamp,
    offset_out_of_range,
    reset_to_earliest,
    reset_to_latest,
]
