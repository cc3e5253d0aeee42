"""How connections are secured: Kafka's settings for TLS and SASL, read into plain values.

    read_security({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "... username=..."})

Rule 1: `Security` is plain values: it is pickled to other machines, where its files must be too.
Rule 2: a ValueError names the setting and never shows a password.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.client.sasl import MECHANISMS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SETTINGS = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
"""The settings that are read here; all others of `ssl.` and `sasl.` are for Java only."""

_MECHANISM_DEFAULT = "GSSAPI"
_LOGIN_MODULE = re.compile(r"^\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*?);?\s*$", re.DOTALL)
_JAAS_OPTION = re.compile(r"""\s*([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How a connection is secured. Stores are texts in PEM, or the paths of files."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    truststore: str = ""
    truststore_password: str = field(default="", repr=False)
    keystore: str = field(default="", repr=False)
    keystore_password: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    checks_host_name: bool = True

    @property
    def has_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether the client says who it is."""
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")


def read_security(settings: Mapping[str, str]) -> Security:
    """Read Kafka's settings; raises ValueError."""
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol is one of {', '.join(PROTOCOLS)}, but {protocol!r} was given")
    has_sasl = protocol.startswith("SASL_")
    username, password = _credentials(settings) if has_sasl else ("", "")
    keystore = settings.get("ssl.keystore.location", "")
    if "ssl.keystore.key" in settings:
        keystore = f"{settings['ssl.keystore.key']}\n{settings.get('ssl.keystore.certificate.chain', '')}"
    keystore_password = settings.get("ssl.keystore.password", "")
    security = Security(
        protocol=protocol,
        mechanism=_mechanism(settings) if has_sasl else "",
        username=username,
        password=password,
        truststore=settings.get("ssl.truststore.certificates", settings.get("ssl.truststore.location", "")),
        truststore_password=settings.get("ssl.truststore.password", ""),
        keystore=keystore,
        keystore_password=keystore_password,
        key_password=settings.get("ssl.key.password", keystore_password),
        checks_host_name=settings.get("ssl.endpoint.identification.algorithm", "https") != "",
    )
    if security.has_tls:
        from barnabas.client.tls import tls_context  # It takes longer to import than most commands take to run.

        tls_context(security)  # A store that can not be read is to be heard of now, and not at the first connection.
    return security


def _mechanism(settings: Mapping[str, str]) -> str:
    mechanism = settings.get("sasl.mechanism", _MECHANISM_DEFAULT)
    if mechanism not in MECHANISMS:
        raise ValueError(f"sasl.mechanism is one of {', '.join(MECHANISMS)} here, but {mechanism!r} was given")
    return mechanism


def _credentials(settings: Mapping[str, str]) -> tuple[str, str]:
    """Return the name and the password that a JAAS line of Java has."""
    line = settings.get("sasl.jaas.config")
    if line is None:
        raise ValueError('sasl.jaas.config is needed with SASL: a login module with username="..." password="...";')
    module = _LOGIN_MODULE.match(line)
    if module is None:
        raise ValueError('sasl.jaas.config can not be read: it is CLASS required username="..." password="...";')
    if not module[1].endswith(("PlainLoginModule", "ScramLoginModule")):
        raise ValueError(
            f"sasl.jaas.config names {module[1]}; only PlainLoginModule and ScramLoginModule are known here"
        )
    options = {
        found[1]: re.sub(r"\\(.)", r"\1", found[2] if found[2] is not None else found[3] or "") or (found[4] or "")
        for found in _JAAS_OPTION.finditer(module[2])
    }
    if _JAAS_OPTION.sub("", module[2]).strip():
        raise ValueError('sasl.jaas.config can not be read: a value with signs in it stands in quotes, as in "..."')
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        raise ValueError(f"sasl.jaas.config has no {' and no '.join(missing)}")
    return options["username"], options["password"]
