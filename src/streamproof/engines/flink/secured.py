"""Who may speak with a Flink of ours: only who has the key of its start. A key and a certificate of its own, used by all of its processes.

Flink's internal connections and its REST interface then ask each side for the certificate. Key, certificate and password lie in the run's
temporary folder, which only its owner may enter and which goes with the run.

Checked against: Flink 2.3 (``security.ssl.internal`` covers RPC, blobs and data and is always mutual, ``security.ssl.rest`` is mutual with
``authentication-enabled``), Java 17 (a PKCS #12 file's own key is trusted where it is the trust store).
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

LOOPBACK = "127.0.0.1"
STORE, CERTIFICATE, KEY = "flink.p12", "flink.crt", "flink.key"
DAYS = 2
BITS = 2048  # RSA: the ciphers that Flink allows by default are for that


def settings(folder: Path) -> dict[str, str]:
    """Make a key in ``folder``, and return what Flink is to be told of it. An earlier one is replaced."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import pkcs12
    from cryptography.x509.oid import NameOID

    key, password, now = rsa.generate_private_key(65537, BITS), secrets.token_urlsafe(24), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flink of a run")])
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key(), serial_number=x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK)), x509.DNSName("localhost")]), False)
        .sign(key, hashes.SHA256())
    )
    private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    locked = serialization.BestAvailableEncryption(password.encode())
    _write(folder / STORE, pkcs12.serialize_key_and_certificates(b"flink", key, certificate, None, locked))
    _write(folder / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))
    _write(folder / KEY, key.private_bytes(*private))
    stores = {"keystore": str(folder / STORE), "truststore": str(folder / STORE)}
    passwords = {"keystore-password": password, "key-password": password, "truststore-password": password}
    return {
        "security.ssl.internal.enabled": "true",
        "security.ssl.rest.enabled": "true",
        "security.ssl.rest.authentication-enabled": "true",
        **{f"security.ssl.{kind}.{key}": value for kind in ("internal", "rest") for key, value in {**stores, **passwords}.items()},
    }


def context(folder: Path) -> ssl.SSLContext:
    """For a client that has the key in ``folder``. Raises FileNotFoundError where there is none."""
    found = ssl.create_default_context(cafile=str(folder / CERTIFICATE))
    found.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    return found


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
