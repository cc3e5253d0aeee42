"""Certificates for tests: an authority, and what it signs, as PEM and as PKCS12."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

PASSWORD = "store-secret"
YEAR = datetime.timedelta(days=365)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Files of one authority and of one server or client that it vouches for."""

    authority_pem: Path
    authority_p12: Path
    pem: Path
    p12: Path


def make_stores(folder: Path) -> Stores:
    """Make a key and a certificate for 127.0.0.1, and the authority that signed it."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("Test Authority", authority_key, None, authority_key)
    certificate = _certificate("127.0.0.1", key, authority, authority_key)
    stores = Stores(
        authority_pem=folder / "authority.pem",
        authority_p12=folder / "authority.p12",
        pem=folder / "server.pem",
        p12=folder / "server.p12",
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    stores.authority_pem.write_bytes(authority.public_bytes(Encoding.PEM))
    stores.pem.write_bytes(private + certificate.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM))
    encryption = BestAvailableEncryption(PASSWORD.encode())
    stores.p12.write_bytes(pkcs12.serialize_key_and_certificates(b"server", key, certificate, [authority], encryption))
    trusted = pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authority, b"ca")], encryption)
    stores.authority_p12.write_bytes(trusted)
    return stores


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - YEAR)
        .not_valid_after(now + YEAR)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if issuer is not None:
        address = x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
