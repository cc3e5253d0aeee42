"""Producing: codecs, headers, nulls, sizes, timestamps, partitions, acknowledgements, and what the broker refuses."""

import time

from tests.compat.model import CODEC_NEEDS, CODECS, Acks, Need, NewRecord, Position, ProducerOptions, Record
from tests.compat.scenarios.scenario import (
    Context,
    Scenario,
    numbered,
    numbers_of,
    read,
    read_all,
    refused,
    scenario,
    wait_for_leaders,
)

BASE_TIMESTAMP_MS = 1_700_000_000_000
HOUR_MS = 60 * 60 * 1000

# Old timestamps are kept only where nothing is deleted by age.
KEEP = {"retention_ms": "-1"}


def contents(records: list[Record]) -> list[NewRecord]:
    """The records as they were to be produced."""
    return [
        NewRecord(
            value=record.value,
            key=record.key,
            headers=record.headers,
            timestamp_ms=record.timestamp_ms,
            partition=record.partition,
        )
        for record in records
    ]


def mixed_records() -> list[NewRecord]:
    """Small and larger values that compress well or badly, with keys and headers."""
    noise = bytes((number * number * 31 + number // 7) % 256 for number in range(1_000))
    values = [b"", b"short", b"long " * 1_000, noise]
    return [
        NewRecord(
            value=values[number % len(values)],
            key=None if number % 3 == 0 else f"key {number}".encode(),
            headers=(("number", str(number).encode()),) if number % 2 else (),
            timestamp_ms=BASE_TIMESTAMP_MS + number,
        )
        for number in range(40)
    ]


def codec_scenario(codec: str) -> Scenario:
    def run(context: Context) -> None:
        topic = context.new_topic(**KEEP)
        records = mixed_records()
        positions = context.send(topic, records, ProducerOptions(codec=codec))
        assert positions == [Position(partition=0, offset=number) for number in range(len(records))]
        assert contents(read_all(context.driver, topic)) == records
        assert contents(read_all(context.other(), topic)) == records
        # A client that finds an API missing may silently not compress.
        stored_bytes = context.observer().log_dirs(topic)[0]
        plain_bytes = sum(len(record.value or b"") for record in records)
        assert (stored_bytes < plain_bytes / 2) == (codec != "none")

    called = "without compression" if codec == "none" else f"with {codec}"
    needs = [CODEC_NEEDS[codec]] if codec in CODEC_NEEDS else []
    sentence = f"Records produced {called} are stored so, and read by this client and by another."
    return scenario(sentence, *needs, name=f"produce and consume {called}")(run)


def acks_scenario(acks: Acks) -> Scenario:
    def run(context: Context) -> None:
        topic = context.new_topic()
        positions = context.send(topic, numbered(20), ProducerOptions(acks=acks, idempotent=False))
        offsets = [position.offset for position in positions]
        # Without acknowledgement some clients say -1 and some guess; only what arrives counts.
        assert acks == "0" or offsets == list(range(20))
        assert numbers_of(read(context.driver, topic, 20)) == list(range(20))

    sentences: dict[Acks, str] = {
        "0": "Records arrive though the producer waits for no answer.",
        "1": "The leader acknowledges with offsets.",
        "all": "All in-sync replicas acknowledge with offsets.",
    }
    return scenario(sentences[acks], name=f"acks {acks}")(run)


@scenario("Headers come back in order: the same name twice, an empty value, a name that is not ASCII.")
def headers(context: Context) -> None:
    topic = context.new_topic()
    sent = (("twice", b"1"), ("empty", b""), ("twice", b"2"), ("größe", b"\x00\xff"))
    context.send(topic, [NewRecord(value=b"v", headers=sent), NewRecord(value=b"none")])
    assert [record.headers for record in read_all(context.driver, topic)] == [sent, ()]
    assert [record.headers for record in read_all(context.other(), topic)] == [sent, ()]


@scenario("A header without a value is not one with an empty value.", Need.NULL_HEADER)
def headers_without_a_value(context: Context) -> None:
    topic = context.new_topic()
    sent = (("null", None), ("empty", b""))
    context.send(topic, [NewRecord(value=b"v", headers=sent)])
    assert [record.headers for record in read_all(context.driver, topic)] == [sent]


@scenario("A missing key or value is not an empty one.")
def null_and_empty_keys_and_values(context: Context) -> None:
    topic = context.new_topic()
    sent = [(b"key", None), (None, b"value"), (b"", b""), (b"", None), (None, b"")]
    context.send(topic, [NewRecord(key=key, value=value) for key, value in sent])
    assert [(record.key, record.value) for record in read_all(context.driver, topic)] == sent
    assert [(record.key, record.value) for record in read_all(context.other(), topic)] == sent


@scenario("A record with neither key nor value keeps its offset.", Need.NULL_KEY_AND_VALUE)
def neither_key_nor_value(context: Context) -> None:
    topic = context.new_topic()
    context.send(topic, [NewRecord(value=b"first"), NewRecord(value=None), NewRecord(value=b"last")])
    assert [record.value for record in read_all(context.driver, topic)] == [b"first", None, b"last"]


@scenario("Records of 900 KB pass under the default limits of client and broker.")
def large_records(context: Context) -> None:
    topic = context.new_topic()
    values = [bytes([number]) * 900_000 for number in range(3)]
    context.send(topic, [NewRecord(value=value) for value in values])
    assert [record.value for record in read_all(context.driver, topic)] == values


@scenario("A record over max.message.bytes is refused with MESSAGE_TOO_LARGE, and smaller ones still pass.")
def too_large_records(context: Context) -> None:
    topic = context.new_topic(max_message_bytes="100000")
    with refused("MESSAGE_TOO_LARGE"):
        context.send(topic, [NewRecord(value=bytes(200_000))])
    # Some idempotent producers are of no more use after a refusal, so this is another one.
    [position] = context.send(topic, [NewRecord(value=b"small")])
    assert position.offset == 0


@scenario("A topic with max.message.bytes raised takes 5 MB, and consumers with default settings get it.")
def very_large_records(context: Context) -> None:
    topic = context.new_topic(max_message_bytes="6000000")
    value = bytes(range(256)) * 20_000
    records = [NewRecord(value=value), NewRecord(value=b"after")]
    context.send(topic, records, ProducerOptions(request_bytes_max=6_000_000))
    assert [record.value for record in read_all(context.driver, topic)] == [value, b"after"]


@scenario("The producer's timestamps are kept, in order or not (CreateTime).")
def create_time(context: Context) -> None:
    topic = context.new_topic(**KEEP)
    times = [BASE_TIMESTAMP_MS + offset for offset in (0, 5_000, -3_000, 5_000, 1)]
    context.send(topic, [NewRecord(value=b"v", timestamp_ms=time_ms) for time_ms in times])
    records = read_all(context.driver, topic)
    assert [record.timestamp_ms for record in records] == times
    assert not any(record.append_time for record in records)


@scenario("A topic with LogAppendTime has the broker's time instead of the producer's.")
def log_append_time(context: Context) -> None:
    topic = context.new_topic(message_timestamp_type="LogAppendTime")
    before_ms = time.time_ns() // 1_000_000
    context.send(topic, [NewRecord(value=b"v", timestamp_ms=BASE_TIMESTAMP_MS) for _ in range(3)])
    after_ms = time.time_ns() // 1_000_000
    records = read_all(context.driver, topic)
    assert all(record.append_time for record in records)
    assert all(before_ms <= record.timestamp_ms <= after_ms for record in records)


@scenario("A timestamp too far in the future is refused with INVALID_TIMESTAMP.")
def impossible_timestamps(context: Context) -> None:
    topic = context.new_topic(message_timestamp_after_max_ms=str(HOUR_MS))
    with refused("INVALID_TIMESTAMP"):
        context.send(topic, [NewRecord(value=b"v", timestamp_ms=time.time_ns() // 1_000_000 + 2 * HOUR_MS)])


@scenario("A record without a key is refused by a compacted topic with INVALID_RECORD.", Need.INVALID_RECORD)
def compacted_topics_want_keys(context: Context) -> None:
    topic = context.new_topic(cleanup_policy="compact")
    with refused("INVALID_RECORD"):
        context.send(topic, [NewRecord(value=b"no key")])
    [position] = context.send(topic, [NewRecord(key=b"key", value=b"v")])
    assert position.offset == 0


@scenario("50 partitions are written and read at once, each with its own offsets.")
def many_partitions(context: Context) -> None:
    partitions, each = 50, 4
    topic = context.new_topic(partitions)
    sent = [NewRecord(value=b"%d" % number, partition=number % partitions) for number in range(partitions * each)]
    with context.driver.producer(ProducerOptions()) as producer:
        # One record a partition first: see `wait_for_leaders`.
        positions = producer.send(topic, sent[:partitions]) + producer.send(topic, sent[partitions:])
    assert {(position.partition, position.offset) for position in positions} == {
        (partition, offset) for partition in range(partitions) for offset in range(each)
    }
    records = read(context.driver, topic, len(sent), dict.fromkeys(range(partitions), 0))
    assert sorted(numbers_of(records)) == list(range(len(sent)))
    for partition in range(partitions):
        own = [record.offset for record in records if record.partition == partition]
        assert own == list(range(each))


@scenario("With many batches in flight, an idempotent producer's records are dense and in order, none twice.")
def idempotent_producing(context: Context) -> None:
    topic = context.new_topic()
    options = ProducerOptions(idempotent=True, batch_bytes=1_000)
    count = 2_000
    with context.driver.producer(options) as producer:
        first = producer.send(topic, numbered(count, size=50))
        second = producer.send(topic, numbered(count, start=count, size=50))
    assert [position.offset for position in first + second] == list(range(2 * count))
    assert numbers_of(read_all(context.driver, topic)) == list(range(2 * count))


@scenario("Producing to a topic that does not exist creates it with num.partitions.")
def automatic_creation(context: Context) -> None:
    topic = context.topic_name()
    context.send(topic, [NewRecord(value=b"first", partition=1)])
    wait_for_leaders(context.driver, topic, 2)
    [record] = read_all(context.driver, topic, 2)
    assert (record.partition, record.offset, record.value) == (1, 0, b"first")


SCENARIOS = [
    *(codec_scenario(codec) for codec in CODECS),
    headers,
    headers_without_a_value,
    null_and_empty_keys_and_values,
    neither_key_nor_value,
    large_records,
    too_large_records,
    very_large_records,
    create_time,
    log_append_time,
    impossible_timestamps,
    compacted_topics_want_keys,
    many_partitions,
    acks_scenario("0"),
    acks_scenario("1"),
    acks_scenario("all"),
    idempotent_producing,
    automatic_creation,
]
