"""From options to a cluster: names of Kafka's clients, and sentences that name the option."""

import pickle

import pytest

from barnabas.client.options import ClientOptions
from barnabas.client.security import SETTINGS, Security
from barnabas.spark.connecting import CLUSTER_OPTIONS, Cluster, read_cluster, shared_client
from barnabas.spark.errors import OptionError

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s3cret";'


def test_a_cluster_is_plain_values() -> None:
    cluster = read_cluster(
        {
            **SERVERS,
            "kafka.client.id": "me",
            "kafka.request.timeout.ms": "5000",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": JAAS,
            "subscribe": "orders",
        }
    )
    security = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password="s3cret")
    options = ClientOptions(client_id="me", request_timeout_ms=5000, security=security)
    assert cluster == Cluster(bootstrap_servers="127.0.0.1:9092", options=options)
    assert pickle.loads(pickle.dumps(cluster)) == cluster


def test_the_table_has_what_is_read_with_the_defaults_of_the_client() -> None:
    rows = {row.name: row.default for row in CLUSTER_OPTIONS}
    assert rows.keys() >= {f"kafka.{name}" for name in SETTINGS}
    for name in rows.keys() - {f"kafka.{name}" for name in SETTINGS} - {"kafka.bootstrap.servers", "kafka.client.id"}:
        assert rows[name] == str(getattr(ClientOptions(), name.removeprefix("kafka.").replace(".", "_")))
        changed = read_cluster({**SERVERS, name: "77"}).options
        assert getattr(changed, name.removeprefix("kafka.").replace(".", "_")) == 77


def test_a_process_has_one_client_a_cluster() -> None:
    assert shared_client(read_cluster(SERVERS)) is shared_client(read_cluster(SERVERS))
    assert shared_client(read_cluster(SERVERS)) is not shared_client(read_cluster({**SERVERS, "kafka.client.id": "x"}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "option 'kafka.bootstrap.servers' is needed"),
        ({"kafka.bootstrap.servers": "a:b:c"}, "option 'kafka.bootstrap.servers' can not be read"),
        ({**SERVERS, "kafka.request.timeout.ms": "soon"}, "option 'kafka.request.timeout.ms' is a number"),
        ({**SERVERS, "kafka.security.protocol": "TLS"}, "option 'kafka.security.protocol' is one of"),
        (
            {**SERVERS, "kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/nowhere/ca"},
            "option 'kafka.ssl.truststore.location' /nowhere/ca can not be read",
        ),
    ],
)
def test_bad_options_are_named(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as raised:
        read_cluster(options)
    assert str(raised.value).startswith(sentence)
