"""How a client proves to a broker who it is: the messages of PLAIN (RFC 4616) and of SCRAM (RFC 5802), without sockets.

    exchange = sasl_exchange("SCRAM-SHA-256", "alice", "secret")
    question = next(exchange)               # what is sent first
    question = exchange.send(answer)        # what is sent next; at the end, StopIteration

Rule 1: a broker that does not prove that it knows the password too is not believed (SCRAM).
Rule 2: no sentence here has a password in it.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator

PLAIN = "PLAIN"
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *SCRAM)

_NONCE_BYTES = 18
# Fewer is what RFC 7677 forbids; more than this keeps a client busy for minutes, and is an attack.
_ITERATIONS_MIN = 4096
_ITERATIONS_MAX = 10_000_000

Exchange = Generator[bytes, bytes, None]


class SaslError(Exception):
    """The broker's part of the exchange is not as it must be."""


def sasl_exchange(mechanism: str, username: str, password: str) -> Exchange:
    """Return the exchange of a mechanism; raises ValueError for one that is not known."""
    if mechanism == PLAIN:
        return _plain(username, password)
    if mechanism in SCRAM:
        return _scram(SCRAM[mechanism], username, password, secrets.token_urlsafe(_NONCE_BYTES))
    raise ValueError(f"one of {', '.join(MECHANISMS)} was expected, but {mechanism!r} was given")


def _plain(username: str, password: str) -> Exchange:
    yield f"\0{username}\0{password}".encode()


def _scram(algorithm: str, username: str, password: str, nonce: str) -> Exchange:
    name = username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{client_first}".encode()).decode(errors="replace")
    fields = _fields(server_first)
    server_nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
    if not server_nonce.startswith(nonce) or server_nonce == nonce:
        raise SaslError("the broker's nonce does not begin with ours")
    if not iterations.isdecimal() or len(iterations) > 9 or not _ITERATIONS_MIN <= int(iterations) <= _ITERATIONS_MAX:
        raise SaslError(f"the broker asks for {iterations or 'no'} iterations, where {_ITERATIONS_MIN} or more are due")
    try:
        salted = hashlib.pbkdf2_hmac(
            algorithm, password.encode(), base64.b64decode(salt, validate=True), int(iterations)
        )
    except ValueError:
        raise SaslError("the broker's salt can not be read") from None
    without_proof = f"c={base64.b64encode(b'n,,').decode()},r={server_nonce}"
    signed = f"{client_first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server_final = (yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()).decode(errors="replace")
    answer = _fields(server_final)
    if "e" in answer:
        raise SaslError(f"the broker says: {answer['e']}")
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if not hmac.compare_digest(answer.get("v", "").encode(), base64.b64encode(expected)):
        raise SaslError("the broker does not prove that it knows the password")


def _fields(message: str) -> dict[str, str]:
    """Return the attributes of a message: letters, each with a value."""
    return {part[:1]: part[2:] for part in message.split(",") if part[1:2] == "="}
