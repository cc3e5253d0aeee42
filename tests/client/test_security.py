"""Kafka's settings for TLS and SASL: what they become, and which sentence a bad one gets."""

import pickle

import pytest

from barnabas.client.security import Security, read_security

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


def test_without_settings_there_is_no_security() -> None:
    security = read_security({})
    assert security == Security()
    assert not security.has_tls
    assert not security.has_sasl


@pytest.mark.parametrize(
    "line",
    [
        f'{PLAIN} username="alice" password="s3\\"cret";',
        f"{PLAIN}\n  username='alice'\n  password='s3\"cret' ;",
        'com.example.ScramLoginModule required password="s3\\"cret" username=alice tokenauth="true";',
    ],
)
def test_jaas_lines(line: str) -> None:
    security = read_security({**SASL, "sasl.jaas.config": line})
    assert (security.username, security.password) == ("alice", 's3"cret')
    assert security.has_sasl
    assert pickle.loads(pickle.dumps(security)) == security
    assert "s3" not in repr(security)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is one of PLAINTEXT, SSL"),
        (SASL, "sasl.jaas.config is needed"),
        ({**SASL, "sasl.jaas.config": "nonsense"}, "sasl.jaas.config can not be read"),
        ({**SASL, "sasl.jaas.config": "x.Krb5LoginModule required;"}, "names x.Krb5LoginModule"),
        ({**SASL, "sasl.jaas.config": f"{PLAIN} username=a;"}, "has no password"),
        ({**SASL, "sasl.jaas.config": f'{PLAIN} username=a password=b"c;'}, "stands in quotes"),
        ({**SASL, "sasl.jaas.config": f"{PLAIN};"}, "has no username and no password"),
        ({**SASL, "sasl.mechanism": "GSSAPI", "sasl.jaas.config": f"{PLAIN} username=a password=b;"}, "GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.jaas.config": f"{PLAIN} username=a password=b;"}, "sasl.mechanism is"),
        (
            {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere/ca"},
            "ssl.truststore.location: /nowhere/ca",
        ),
    ],
)
def test_bad_settings_are_named(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as raised:
        read_security(settings)
    assert "password=b" not in str(raised.value)
