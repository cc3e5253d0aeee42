"""The exchanges of SASL against what the standards print, and against brokers that cheat."""

import base64
import hashlib
import hmac

import pytest

from barnabas.client import sasl
from barnabas.client.sasl import MECHANISMS, SaslError, sasl_exchange

# The example of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(password: str = "pencil") -> sasl.Exchange:
    return sasl._scram("sha256", "user", password, NONCE)


def test_plain_is_one_message() -> None:
    messages = sasl_exchange("PLAIN", "alice", "s3cret")
    assert next(messages) == b"\0alice\0s3cret"
    with pytest.raises(StopIteration):
        messages.send(b"")


def test_scram_is_as_the_standard_prints_it() -> None:
    messages = exchange()
    assert next(messages) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert messages.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        messages.send(SERVER_FINAL)


@pytest.mark.parametrize(
    ("server_first", "server_final", "reason"),
    [
        (b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=1", b"", "1 iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=99999999999", b"", "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=W22Z", b"", "no iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOx,s=*,i=4096", b"", "salt"),
        (b"\xff\xfe", b"", "nonce"),
        (SERVER_FIRST, b"v=AAAA", "prove"),
        (SERVER_FIRST, b"v=\xff", "prove"),
        (SERVER_FIRST, b"", "prove"),
        (SERVER_FIRST, b"e=other-error", "other-error"),
    ],
)
def test_a_broker_that_cheats_is_not_believed(server_first: bytes, server_final: bytes, reason: str) -> None:
    messages = exchange()
    next(messages)
    with pytest.raises(SaslError, match=reason):
        messages.send(server_first)
        messages.send(server_final)


def test_names_are_escaped_and_nonces_differ() -> None:
    first, second = (next(sasl_exchange("SCRAM-SHA-512", "a=b,c", "")) for _ in range(2))
    assert first.startswith(b"n,,n=a=3Db=2Cc,r=")
    assert first != second


def test_an_unknown_mechanism_is_named() -> None:
    with pytest.raises(ValueError, match="GSSAPI"):
        sasl_exchange("GSSAPI", "", "")
    assert MECHANISMS == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def test_the_password_is_not_sent_with_scram() -> None:
    messages = exchange("pencil")
    sent = next(messages) + messages.send(SERVER_FIRST)
    assert b"pencil" not in sent
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    assert hmac.digest(salted, b"Client Key", "sha256") not in sent
