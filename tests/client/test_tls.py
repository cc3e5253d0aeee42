"""Stores of keys and certificates, and connections to a real Kafka that wants TLS, SASL, or both."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from barnabas.client.client import Client
from barnabas.client.connection import AuthenticationError, ConnectionFailedError
from barnabas.client.fetcher import Fetcher
from barnabas.client.options import ClientOptions
from barnabas.client.producer import Producer
from barnabas.client.security import Security, read_security
from barnabas.client.tls import tls_context
from barnabas.embedded import Broker
from barnabas.model import TopicPartition
from tests.client.certificates import PASSWORD, Stores, make_stores
from tests.kafka_peer.peer import KafkaPeer
from tests.kafka_peer.secured import USER_PASSWORD, secured, settings_for, stores

__all__ = ["secured", "stores"]


def trusting(**more: str) -> dict[str, str]:
    return {"security.protocol": "SSL", **{name.replace("_", "."): value for name, value in more.items()}}


def test_stores_of_both_kinds_are_read(stores: Stores) -> None:
    for truststore, keystore in [(stores.authority_pem, stores.pem), (stores.authority_p12, stores.p12)]:
        security = read_security(
            trusting(
                ssl_truststore_location=str(truststore),
                ssl_truststore_password=PASSWORD,
                ssl_keystore_location=str(keystore),
                ssl_keystore_password=PASSWORD,
            )
        )
        assert len(tls_context(security).get_ca_certs()) == 1


def test_pem_can_be_given_as_it_is(stores: Stores) -> None:
    key, chain = stores.pem.read_text().split("-----BEGIN CERTIFICATE", 1)
    security = read_security(
        {
            **trusting(ssl_truststore_certificates=stores.authority_pem.read_text(), ssl_keystore_key=key),
            "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE" + chain,
        }
    )
    assert len(tls_context(security).get_ca_certs()) == 1


def test_comments_between_certificates_are_passed_over(stores: Stores, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(f"# Zertifizierungsstelle für Prüfungen\n{stores.authority_pem.read_text()}", encoding="utf-8")
    assert len(tls_context(read_security(trusting(ssl_truststore_location=str(bundle)))).get_ca_certs()) == 1


def test_a_key_that_needs_a_password_is_named_and_nobody_is_asked_for_it(stores: Stores) -> None:
    key = load_pem_private_key(stores.pem.read_bytes(), None)
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pass")).decode()
    chain = stores.pem.read_text().split("-----END PRIVATE KEY-----")[1]
    given = {**trusting(ssl_keystore_key=secret), "ssl.keystore.certificate.chain": chain}
    with pytest.raises(ValueError, match=r"ssl\.keystore"):
        read_security(given)
    assert read_security({**given, "ssl.key.password": "pass"}).has_tls


def test_without_a_truststore_the_system_is_trusted() -> None:
    security = read_security(trusting(ssl_endpoint_identification_algorithm=""))
    assert not tls_context(security).check_hostname


def test_stores_that_can_not_be_used_are_named(stores: Stores, tmp_path: Path) -> None:
    jks, garbage, empty_pem = tmp_path / "store.jks", tmp_path / "garbage", tmp_path / "empty.pem"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0")
    garbage.write_bytes(b"nonsense")
    empty_pem.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    for store, password, reason in [
        (jks, "", "is a JKS store.*keytool"),
        (garbage, "", "neither PEM nor PKCS12"),
        (empty_pem, "", "can not be used"),
        (stores.p12, "wrong", "password is wrong"),
    ]:
        with pytest.raises(ValueError, match=reason) as raised:
            read_security(trusting(ssl_truststore_location=str(store), ssl_truststore_password=password))
        assert str(raised.value).startswith("ssl.truststore.location: ")


def security_for(listener: str, mechanism: str, stores: Stores, password: str = USER_PASSWORD) -> Security:
    return read_security(settings_for(listener, mechanism, stores, password))


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("SSL", ""),
        ("SASL_PLAINTEXT", "PLAIN"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
        ("SASL_SSL", "SCRAM-SHA-256"),
    ],
)
def test_records_go_through_every_kind_of_listener(
    secured: KafkaPeer, stores: Stores, listener: str, mechanism: str
) -> None:
    """The values are larger than a TLS record, so that some of an answer is decrypted before the rest has come."""
    topic = f"{listener}{mechanism}".lower()
    sent = [bytes([number]) * 100_000 for number in range(20)]
    options = ClientOptions(security=security_for(listener, mechanism, stores))
    with Client(secured.address_of(listener), options) as client:
        client.topic(topic, allow_auto_topic_creation=True)
        with Producer(client) as producer:
            for value in sent:
                producer.send(topic, value)
        fetcher = Fetcher(client, {TopicPartition(topic, 0): 0})
        found: list[bytes | None] = []
        while len(found) < len(sent):
            found += [record.value for fetched in fetcher.poll(10_000) for record in fetched.records()]
    assert found == sent


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_is_not_let_in_is_told_at_once(secured: KafkaPeer, stores: Stores, mechanism: str) -> None:
    options = ClientOptions(security=security_for("SASL_SSL", mechanism, stores, password="wrong"))
    expected = "has not SCRAM-SHA-512, but" if mechanism == "SCRAM-SHA-512" else "user 'alice' was refused"
    with Client(secured.address_of("SASL_SSL"), options) as client, pytest.raises(AuthenticationError, match=expected):
        client.cluster()


def test_a_broker_that_is_not_trusted_is_not_spoken_to(secured: KafkaPeer, tmp_path: Path) -> None:
    other = make_stores(tmp_path)
    options = ClientOptions(security=security_for("SSL", "", other))
    with Client(secured.address_of("SSL"), options) as client, pytest.raises(ConnectionFailedError, match="trusted"):
        client.cluster()


def test_a_plain_broker_says_so(barnabas_broker: Broker, stores: Stores) -> None:
    for listener, mechanism, error, reason in [
        ("SSL", "", ConnectionFailedError, "does this listener use TLS"),
        ("SASL_PLAINTEXT", "PLAIN", AuthenticationError, "this listener does not use SASL"),
    ]:
        options = ClientOptions(
            security=security_for(listener, mechanism, stores), socket_connection_setup_timeout_ms=2_000
        )
        with Client(barnabas_broker.bootstrap_servers, options) as client, pytest.raises(error, match=reason):
            client.cluster()
