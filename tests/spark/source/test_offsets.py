"""What a broker says to subscriptions and limits."""

import pytest

from barnabas import Broker
from barnabas.client.admin import NewTopic, create_topics
from barnabas.client.client import Client
from barnabas.client.offsets import IsolationLevel, delete_records
from barnabas.client.producer import Producer, ProducerOptions
from barnabas.model import TopicPartition
from barnabas.spark.errors import DataLossError, OptionError, PipelineError
from barnabas.spark.source.offset_limits import AtTime, AtTimes, Named, SpecificOffsets
from barnabas.spark.source.offsets import assigned_partitions, check_in_range, resolve_limit, sample_densities
from barnabas.spark.source.options import Subscription
from tests.client.brokers import topic_name
from tests.client.open_transactions import open_transaction

START_MS = 1_700_000_000_000
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


@pytest.fixture
def topic(our_client: Client) -> str:
    """Two partitions: in the first ten records, one a second, of which the first three are deleted."""
    name = topic_name("offsets")
    assert create_topics(our_client, [NewTopic(name=name, partitions=2)]) == {}
    with Producer(our_client) as producer:
        for number in range(10):
            producer.send(name, b"x" * 1000, partition=0, timestamp=START_MS + number * 1000)
    delete_records(our_client, {TopicPartition(name, 0): 3})
    return name


def both(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, 0), TopicPartition(topic, 1)]


def test_a_pattern_matches_whole_names_and_no_internal_topics(our_client: Client) -> None:
    word = topic_name("pattern")
    names = [f"{word}-a", f"{word}-ab", f"x-{word}-a"]
    assert create_topics(our_client, [NewTopic(name=name) for name in names]) == {}
    assigned = assigned_partitions(our_client, Subscription(pattern=f"{word}-a"))
    assert assigned.partitions == (TopicPartition(names[0], 0),)
    assert assigned.topic_ids == {names[0]: our_client.topic(names[0]).topic_id}
    assert len(assigned_partitions(our_client, Subscription(pattern=f".*{word}-(?!ab).*")).partitions) == 2
    assert assigned_partitions(our_client, Subscription(pattern="__consumer_offsets")).partitions == ()


def test_what_is_assigned_must_be_there_unless_it_may_be_missing(our_client: Client, topic: str) -> None:
    assert assigned_partitions(our_client, Subscription(topics=(topic,))).partitions == tuple(both(topic))
    subscription = Subscription(partitions=(TopicPartition(topic, 1), TopicPartition(topic, 5)))
    with pytest.raises(OptionError, match=f"names {topic}-5, but topic '{topic}' has 2 partitions"):
        assigned_partitions(our_client, subscription)
    found = assigned_partitions(our_client, subscription, missing_are_fine=True)
    assert found.partitions == (TopicPartition(topic, 1),)
    gone = Subscription(topics=("nowhere", topic))
    with pytest.raises(OptionError, match="names topic 'nowhere'"):
        assigned_partitions(our_client, gone)
    assert assigned_partitions(our_client, gone, missing_are_fine=True).partitions == tuple(both(topic))


def test_names_and_numbers(our_client: Client, topic: str) -> None:
    first, second = both(topic)
    assert resolve_limit(our_client, [first, second], Named.EARLIEST, UNCOMMITTED) == {first: 3, second: 0}
    assert resolve_limit(our_client, [first, second], Named.LATEST, UNCOMMITTED) == {first: 10, second: 0}
    given = SpecificOffsets(option="startingOffsets", offsets={first: -2, second: 7})
    assert resolve_limit(our_client, [first, second], given, UNCOMMITTED) == {first: 3, second: 7}
    with pytest.raises(OptionError, match=f"must name every partition, but {second} is not in it"):
        resolve_limit(our_client, both(topic), SpecificOffsets(option="endingOffsets", offsets={first: 5}), UNCOMMITTED)


def test_times(our_client: Client, topic: str) -> None:
    first, second = both(topic)
    limit = AtTime(option="startingTimestamp", timestamp_ms=START_MS + 4_500)
    assert resolve_limit(our_client, both(topic), limit, UNCOMMITTED) == {first: 5, second: 0}
    with pytest.raises(PipelineError, match=f"but {second} has no record as late as that; with option"):
        resolve_limit(our_client, both(topic), limit, UNCOMMITTED, is_late_an_error=True)
    times = AtTimes(option="x", timestamps_ms={first: START_MS + 6_000, second: 0})
    assert resolve_limit(our_client, both(topic), times, UNCOMMITTED) == {first: 6, second: 0}


def test_the_end_of_what_is_committed_is_before_an_open_transaction(
    our_client: Client, barnabas_broker: Broker, topic: str
) -> None:
    producer = open_transaction(barnabas_broker.bootstrap_servers, f"id of {topic}", topic)
    first = TopicPartition(topic, 0)
    assert resolve_limit(our_client, [first], Named.LATEST, UNCOMMITTED) == {first: 11}
    assert resolve_limit(our_client, [first], Named.LATEST, IsolationLevel.READ_COMMITTED) == {first: 10}
    producer.abort_transaction()


def test_numbers_out_of_range_are_an_error_or_brought_into_it(our_client: Client, topic: str) -> None:
    first, second = both(topic)
    limit = SpecificOffsets(option="startingOffsets", offsets={first: 2, second: 4})
    with pytest.raises(DataLossError, match=f"asks for offset 2 of {first}, which has 3 to 10"):
        check_in_range(our_client, limit, limit.offsets, UNCOMMITTED, fail_on_data_loss=True)
    found = check_in_range(our_client, limit, limit.offsets, UNCOMMITTED, fail_on_data_loss=False)
    assert found == {first: 3, second: 0}
    fine = SpecificOffsets(option="startingOffsets", offsets={first: 10, second: 0})
    assert check_in_range(our_client, fine, fine.offsets, UNCOMMITTED, fail_on_data_loss=True) == fine.offsets


def test_a_sample_tells_the_bytes_of_an_offset(our_client: Client, topic: str) -> None:
    first, second = both(topic)
    found = sample_densities(our_client, {first: 3, second: 0})
    assert found.keys() == {first}
    assert 1000 <= found[first] < 1600
    # What can not be sampled is not split, and the task says what is wrong.
    assert sample_densities(our_client, {first: 0}) == {}
    assert sample_densities(our_client, {TopicPartition("nowhere", 0): 0}) == {}
    assert sample_densities(our_client, {}) == {}


def test_a_batch_that_a_sample_cuts_off_does_not_count(our_client: Client) -> None:
    name = topic_name("cut")
    assert create_topics(our_client, [NewTopic(name=name, partitions=1)]) == {}
    for count in (3, 600):
        with Producer(our_client, ProducerOptions(batch_size=900_000)) as producer:
            for _ in range(count):
                producer.send(name, b"x" * 1000, partition=0)
    partition = TopicPartition(name, 0)
    for start in (0, 1, 100):
        assert 1000 <= sample_densities(our_client, {partition: start})[partition] < 1100


def test_partitions_with_batches_larger_than_a_sample_are_as_the_others_of_their_topic(our_client: Client) -> None:
    name = topic_name("large")
    assert create_topics(our_client, [NewTopic(name=name, partitions=3)]) == {}
    with Producer(our_client, ProducerOptions(batch_size=400_000)) as producer:
        for number in range(600):
            producer.send(name, b"x" * 1000, partition=number % 2)
    first, second, empty = (TopicPartition(name, number) for number in range(3))
    found = sample_densities(our_client, {first: 0, second: 0, empty: 0})
    assert found.keys() == {first, second}
    assert all(1000 <= density < 1100 for density in found.values())
