"""Transactions that are open, by a client of the field, for tests that look at them and end them."""

from confluent_kafka import Producer

DEADLINE_SECONDS = 60


def open_transaction(bootstrap_servers: str, transactional_id: str, topic: str, **settings: object) -> Producer:
    """A producer that has written one record to partition 0 in a transaction, and has not ended it."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "transactional.id": transactional_id,
            # That it is fenced is what tests want, and nothing that librdkafka should print.
            "log_level": 0,
            **settings,
        }
    )
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return producer
