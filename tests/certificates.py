"""Certificates for tests, in files: made here, signed by an authority of the test's own."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LOOPBACK = (x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1")))
PLAIN = serialization.NoEncryption()


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in PEM form."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates, and writes them where a node finds them."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = _build(self._name, self._name, self._key.public_key(), 1)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.path = self.folder / "ca.pem"
        signed = own.sign(self._key, hashes.SHA256())
        self.path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def sign(
        self,
        common_name: str,
        *alternatives: x509.GeneralName,
        days: float = 1,
        encryption: serialization.KeySerializationEncryption = PLAIN,
    ) -> Pair:
        """Valid for so many days from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = _build(subject, self._name, key.public_key(), days)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
        signed = builder.sign(self._key, hashes.SHA256())
        form = serialization.PrivateFormat.PKCS8
        return Pair(
            signed.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(serialization.Encoding.PEM, form, encryption),
        )

    def issue(self, common_name: str, *alternatives: x509.GeneralName) -> tuple[Path, Path]:
        """As `sign`, in files named after it: certificate and key."""
        pair = self.sign(common_name, *alternatives)
        certificate = self.folder / f"{common_name}.pem"
        key = self.folder / f"{common_name}.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        return certificate, key

    def trust(self) -> ssl.SSLContext:
        """For clients of who has a certificate of this authority."""
        return ssl.create_default_context(cafile=str(self.path))


class Mounted:
    """A folder as the kubelet mounts a Secret: links through `..data`, swapped at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._turn = 0
        folder.mkdir()
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (folder / name).symlink_to(Path("..data") / name)

    def write(self, pair: Pair, authority: Authority) -> tuple[str, str, str]:
        """New files, taken up by one rename; the paths that a node reads."""
        self._turn += 1
        content = self.folder / f"..{self._turn}"
        content.mkdir()
        (content / "tls.crt").write_bytes(pair.certificate)
        (content / "tls.key").write_bytes(pair.key)
        (content / "ca.crt").write_bytes(authority.path.read_bytes())
        fresh = self.folder / "..data_tmp"
        fresh.symlink_to(content.name)
        os.replace(fresh, self.folder / "..data")
        return tuple(str(self.folder / name) for name in ("tls.crt", "tls.key", "ca.crt"))  # type: ignore[return-value]


def _build(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + timedelta(days=days)) - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
    )
