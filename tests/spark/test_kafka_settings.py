"""The names of Kafka's settings, compared with those that Kafka itself prints."""

import re

import pytest

from barnabas.spark.kafka_settings import KAFKA_SETTINGS, is_kafka_setting
from tests.kafka_peer.peer import run_tool

CLIENTS = ("consumer.ConsumerConfig", "producer.ProducerConfig", "admin.AdminClientConfig")


def test_settings_are_told_from_typing_errors() -> None:
    assert is_kafka_setting("isolation.level")
    assert is_kafka_setting("ssl.truststore.location")
    assert is_kafka_setting("config.providers.vault.class")
    assert not is_kafka_setting("isolation.levle")


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_jars")
def test_every_setting_of_kafkas_clients_is_known() -> None:
    for client in CLIENTS:
        page = run_tool(f"org.apache.kafka.clients.{client}")
        names = {name.rpartition("_")[2] for name in re.findall(r'<h4><a id="([^"]+)"', page)}
        assert len(names) > 50
        assert names - KAFKA_SETTINGS == set()
