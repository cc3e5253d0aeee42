"""From the options of a query to a client of the cluster, on the driver and in every task.

Rule 1: what travels to the tasks is plain values (`Cluster`), never a connection.
Rule 2: Spark uses a Python worker for many tasks, so that a process keeps one client a cluster, and its connections.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.client.client import Client
from barnabas.client.options import ClientOptions, parse_bootstrap_servers
from barnabas.client.sasl import MECHANISMS
from barnabas.client.security import PROTOCOLS, Security, read_security
from barnabas.spark.errors import OptionError
from barnabas.spark.options import PREFIX, OptionRow

BOOTSTRAP_SERVERS = PREFIX + "bootstrap.servers"

# Settings of Kafka's clients, and what they are here.
_NUMBERS = {
    "socket.connection.setup.timeout.ms": "socket_connection_setup_timeout_ms",
    "request.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "default_api_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
}
_MILLISECONDS = "milliseconds, 1 or more"
_PEM = "text in PEM"

CLUSTER_OPTIONS: tuple[OptionRow, ...] = (
    OptionRow("kafka.bootstrap.servers", "", "HOST:PORT, with commas between", "Brokers of the cluster; it is needed."),
    OptionRow("kafka.client.id", "spark", "a name", "What brokers know the query by."),
    OptionRow("kafka.request.timeout.ms", "30000", _MILLISECONDS, "How long one answer is waited for."),
    OptionRow(
        "kafka.default.api.timeout.ms",
        "60000",
        _MILLISECONDS,
        "How long something is tried again in all, such as while a broker is away.",
    ),
    OptionRow("kafka.retry.backoff.ms", "100", _MILLISECONDS, "The wait before the second attempt; it doubles."),
    OptionRow("kafka.retry.backoff.max.ms", "1000", _MILLISECONDS, "The longest wait between attempts."),
    OptionRow("kafka.socket.connection.setup.timeout.ms", "10000", _MILLISECONDS, "How long to connect."),
    OptionRow("kafka.security.protocol", "PLAINTEXT", ", ".join(PROTOCOLS), "How connections are secured."),
    OptionRow("kafka.sasl.mechanism", "", ", ".join(MECHANISMS), "How to say who one is; needed with SASL."),
    OptionRow(
        "kafka.sasl.jaas.config",
        "",
        "a line of JAAS",
        "Name and password, as Java's clients take them; PlainLoginModule and ScramLoginModule.",
    ),
    OptionRow(
        "kafka.ssl.truststore.location",
        "",
        "a file in PEM or PKCS12",
        "Whose certificates are trusted, on every machine; without it, those of the system. JKS is refused.",
    ),
    OptionRow("kafka.ssl.truststore.certificates", "", _PEM, "The same as text."),
    OptionRow("kafka.ssl.truststore.password", "", "a password", "That of the truststore."),
    OptionRow("kafka.ssl.truststore.type", "", "PEM, PKCS12", "Accepted; the content of the store says what it is."),
    OptionRow(
        "kafka.ssl.keystore.location", "", "a file in PEM or PKCS12", "The client's own key and certificate, if any."
    ),
    OptionRow("kafka.ssl.keystore.key", "", _PEM, "The client's key as text."),
    OptionRow("kafka.ssl.keystore.certificate.chain", "", _PEM, "The client's certificate as text."),
    OptionRow("kafka.ssl.keystore.password", "", "a password", "That of the keystore."),
    OptionRow("kafka.ssl.keystore.type", "", "PEM, PKCS12", "Accepted, as above."),
    OptionRow("kafka.ssl.key.password", "", "a password", "That of the key, if it has one of its own."),
    OptionRow(
        "kafka.ssl.endpoint.identification.algorithm",
        "https",
        "https, or nothing",
        "Whether the broker's certificate must be for its host name.",
    ),
)
"""The options that are read here, for source and sink alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a cluster is, and how to speak to it."""

    bootstrap_servers: str
    options: ClientOptions = field(default_factory=ClientOptions)


def read_cluster(options: Mapping[str, str]) -> Cluster:
    """Read what the options of a query say of the cluster; raises OptionError."""
    servers = options.get(BOOTSTRAP_SERVERS)
    if servers is None:
        raise OptionError(BOOTSTRAP_SERVERS, "is needed: the address of a broker, as HOST:PORT")
    try:
        parse_bootstrap_servers(servers)
    except ValueError as error:
        raise OptionError(BOOTSTRAP_SERVERS, f"can not be read: {error}") from None
    numbers = {name: _number(options, name) for name in _NUMBERS if PREFIX + name in options}
    return Cluster(
        bootstrap_servers=servers,
        options=ClientOptions(
            client_id=options.get("kafka.client.id", "spark"),
            security=_security(options),
            **{_NUMBERS[name]: number for name, number in numbers.items()},
        ),
    )


def _number(options: Mapping[str, str], name: str) -> int:
    text = options[PREFIX + name]
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise OptionError(PREFIX + name, f"is a number of milliseconds, but {text!r} was given")
    return int(text)


def _security(options: Mapping[str, str]) -> Security:
    given = {name.lower().removeprefix(PREFIX): value for name, value in options.items()}
    try:
        return read_security(given)
    except ValueError as error:
        # The sentence begins with the name of the setting.
        name, _, problem = str(error).partition(" ")
        raise OptionError(PREFIX + name.rstrip(":"), problem) from None


_clients: dict[Cluster, Client] = {}


def shared_client(cluster: Cluster) -> Client:
    """Return this process's client of a cluster; it is never closed, because the next task uses it again."""
    known = _clients.get(cluster)
    if known is None:
        known = _clients[cluster] = Client(cluster.bootstrap_servers, cluster.options)
    return known


def close_clients() -> None:
    """Close the connections of this process; who asks for a client after this gets a new one."""
    while _clients:
        _clients.popitem()[1].close()
