"""What a client may be told: plain values that can be pickled and sent to another machine, and addresses as text."""

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.client.security import Security

PORT_DEFAULT = 9092
_PORT_MAX = 65535


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a client behaves; the names and their defaults are Kafka's where Kafka has them."""

    client_id: str = "barnabas"
    # One connection attempt, and the wait for one answer.
    socket_connection_setup_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    # An operation with all its attempts: after this the last error is raised.
    default_api_timeout_ms: int = 60_000
    # The wait before the second attempt; it doubles each time up to the maximum.
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    # The largest answer that is believed. A broker that announces more is not one.
    response_bytes_max: int = 256 * 1024 * 1024
    security: Security = field(default_factory=Security)


def parse_bootstrap_servers(text: str) -> list[Address]:
    """Read `host:port,host:port`; raises ValueError with a sentence that names the part that is wrong."""
    addresses = [parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError("bootstrap servers are given as HOST:PORT, several with commas between, but there is none")
    return addresses


def parse_address(text: str) -> Address:
    """Read `host:port`, `host` or `[::1]:port`."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        is_wrong = not bracket or (rest != "" and not rest.startswith(":"))
        port_text = rest[1:] if rest else str(PORT_DEFAULT)
    else:
        host, colon, port_text = text.partition(":")
        is_wrong = False
        port_text = port_text if colon else str(PORT_DEFAULT)
    is_port = port_text.isascii() and port_text.isdecimal() and 0 < int(port_text) <= _PORT_MAX
    if is_wrong or not host or not is_port:
        raise ValueError(f"an address is HOST:PORT with a port from 1 to {_PORT_MAX}, but {text!r} was given")
    return Address(host, int(port_text))
