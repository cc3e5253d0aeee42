"""A consumer whose offset retention has passed goes on where its own setting says, as with any broker."""

from collections.abc import Callable, Iterator
from contextlib import closing

import confluent_kafka
import kafka
import pytest

from barnabas.clock import ManualClock
from barnabas.embedded import Broker
from tests.broker.retaining import HOUR_MS, fill, retaining, settled, topic_of

GONE, LEFT = 3, 2


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker whose `orders` has lost its first records."""
    clock = ManualClock()
    with retaining(clock) as broker:
        topic_of(broker, "orders", retention_ms=HOUR_MS)
        fill(broker, "orders", GONE, timestamp=clock.now_ms())
        clock.advance(2 * HOUR_MS)
        settled(broker)
        fill(broker, "orders", LEFT, timestamp=clock.now_ms())
        assert _start(broker) == GONE
        yield broker.bootstrap_servers


def _start(broker: Broker) -> int:
    return broker.server.services.replica_manager.partitions["orders", 0].log.log_start_offset


def confluent(servers: str, reset: str) -> list[int]:
    """The first offsets that a consumer gets who begins at 0."""
    settings = {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": reset}
    consumer = confluent_kafka.Consumer(settings)
    with closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        found: list[int] = []
        while len(found) < LEFT:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                raise confluent_kafka.KafkaException(message.error())
            offset = message.offset()
            assert offset is not None
            found.append(offset)
        return found


def kafka_python(servers: str, reset: str) -> list[int]:
    """The same, of the other client."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset=reset, group_id=None, consumer_timeout_ms=30_000
    )
    with closing(consumer):
        orders = kafka.TopicPartition("orders", 0)
        consumer.assign([orders])
        consumer.seek(orders, 0)
        found: list[int] = []
        for message in consumer:
            found.append(message.offset)
            if len(found) == LEFT:
                break
        return found


each_client = pytest.mark.parametrize("consume", [confluent, kafka_python])


@each_client
def test_a_consumer_goes_on_at_the_first_record_that_is_left(
    servers: str, consume: Callable[[str, str], list[int]]
) -> None:
    assert consume(servers, "earliest") == [GONE, GONE + 1]


def test_a_consumer_that_wants_to_know_is_told(servers: str) -> None:
    with pytest.raises(confluent_kafka.KafkaException, match=r"[Oo]ffset out of range"):
        confluent(servers, "error")
