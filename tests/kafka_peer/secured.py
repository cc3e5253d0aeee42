"""A real Kafka that wants TLS, SASL, or both, and the settings that get in.

A test module imports the two fixtures by name; each module has a Kafka of its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.certificates import PASSWORD, Stores, make_stores
from tests.kafka_peer.peer import KafkaPeer

USER_PASSWORD = "s3cret"
_JAAS = 'org.apache.kafka.common.security.{}LoginModule required username="alice" password="{}";'


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """The keys and certificates of both sides."""
    return make_stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def secured(kafka_jars: Path, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPeer]:
    """A Kafka that has a listener of each kind, and knows alice."""
    overrides: dict[str, str | int] = {
        "auto.create.topics.enable": "true",
        "ssl.keystore.location": str(stores.p12),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(stores.authority_p12),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": PASSWORD,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connections.max.reauth.ms": 60_000,
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        plain = _JAAS.format("plain.Plain", "unused").replace(";", f' user_alice="{USER_PASSWORD}";')
        overrides[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        overrides[f"listener.name.{listener}.scram-sha-256.sasl.jaas.config"] = (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
    with KafkaPeer(
        tmp_path_factory.mktemp("secured") / "kafka",
        overrides,
        more_listeners=("SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        format_options=("--add-scram", f"SCRAM-SHA-256=[name=alice,password={USER_PASSWORD}]"),
    ) as peer:
        yield peer


def settings_for(listener: str, mechanism: str, stores: Stores, password: str = USER_PASSWORD) -> dict[str, str]:
    """The settings, under Kafka's names, of a client that speaks to such a listener."""
    settings = {"security.protocol": listener}
    if listener.endswith("SSL"):
        settings |= {"ssl.truststore.location": str(stores.authority_pem), "ssl.keystore.location": str(stores.pem)}
    if listener.startswith("SASL"):
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        settings |= {"sasl.mechanism": mechanism, "sasl.jaas.config": _JAAS.format(module, password)}
    return settings
