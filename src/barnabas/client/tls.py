"""TLS over a socket: contexts from stores of keys and certificates, and the handshake.

Stores are PEM or PKCS12, told apart by what is in them, because Kafka's default type means both JKS and PKCS12. Java's
own format, JKS, is refused with the command that converts it.

Rule 1: with a truststore only what is in it is trusted, as in Java; without one, what the system trusts.
Rule 2: no sentence here has a password in it.
"""

import re
import socket
import ssl
import tempfile
from functools import lru_cache
from pathlib import Path

from barnabas.client.security import Security

_CERTIFICATE = re.compile(rb"-----BEGIN [A-Z ]*CERTIFICATE-----.*?-----END [A-Z ]*CERTIFICATE-----\s*", re.DOTALL)
_JKS_MAGICS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


class TlsError(Exception):
    """There is no secure connection; the message is why."""


def secure(opened: socket.socket, security: Security, host: str) -> ssl.SSLSocket:
    """Return TLS over a socket that has a connection; raises TlsError, with the socket closed."""
    try:
        return tls_context(security).wrap_socket(opened, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        opened.close()
        raise TlsError(f"the certificate of the broker is not trusted: {error.verify_message}") from None
    except (ssl.SSLError, ConnectionResetError) as error:
        opened.close()
        said = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise TlsError(f"no TLS connection came about ({said}); does this listener use TLS?") from None


@lru_cache(maxsize=16)
def tls_context(security: Security) -> ssl.SSLContext:
    """Return what TLS connections are made by; raises ValueError when a store can not be read."""
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = security.checks_host_name
    try:
        if security.truststore:
            setting = "ssl.truststore.location"
            context = _empty_context(security)
            store = _pem_of(security.truststore, security.truststore_password, setting)
            # Bundles of certificates have comments between them, in any language.
            context.load_verify_locations(cadata=b"".join(_CERTIFICATE.findall(store)).decode("ascii"))
        if security.keystore:
            setting = "ssl.keystore.location"
            pem = _pem_of(security.keystore, security.keystore_password, setting)
            with tempfile.NamedTemporaryFile(suffix=".pem") as file:
                # The library reads keys from files only. This one is readable for nobody else, and gone at once.
                file.write(pem)
                file.flush()
                # With no password at all the library would ask for one at the terminal.
                context.load_cert_chain(file.name, password=security.key_password)
    except OSError as error:
        if not isinstance(error, ssl.SSLError):
            raise ValueError(f"{setting}: the key can not be read; is ssl.key.password right?") from None
        raise ValueError(f"{setting}: what it has can not be used ({error.reason or error})") from None
    return context


def _empty_context(security: Security) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = security.checks_host_name
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _pem_of(store: str, password: str, setting: str) -> bytes:
    """Return what a store has as PEM: a text that is PEM already, or the content of a file."""
    if store.lstrip().startswith("-----BEGIN"):
        return store.encode()
    try:
        content = Path(store).read_bytes()
    except OSError as error:
        raise ValueError(f"{setting}: {store} can not be read ({error.strerror})") from None
    if content.startswith(_JKS_MAGICS):
        raise ValueError(
            f"{setting}: {store} is a JKS store, which only Java reads; to convert it: keytool -importkeystore "
            f"-srckeystore {store} -destkeystore store.p12 -deststoretype pkcs12"
        )
    if b"-----BEGIN" in content:
        return content
    return _pkcs12_as_pem(content, password, f"{setting}: {store}")


def _pkcs12_as_pem(content: bytes, password: str, what: str) -> bytes:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
    except ImportError:
        raise ValueError(f"{what} is read with the package 'cryptography', which is not installed") from None
    try:
        store = pkcs12.load_pkcs12(content, password.encode() or None)
    except ValueError:
        raise ValueError(f"{what} is neither PEM nor PKCS12, or the password is wrong") from None
    certificates = [store.cert] if store.cert is not None else []
    parts = [each.certificate.public_bytes(Encoding.PEM) for each in [*certificates, *store.additional_certs]]
    if store.key is not None:
        parts.insert(0, store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    if not parts:
        raise ValueError(f"{what} is empty")
    return b"".join(parts)
