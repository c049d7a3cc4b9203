"""When a certificate ends, read from its DER (RFC 5280, 4.1): `ssl` tells it of peers only."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
_BEFORE_VALIDITY = 3
"""Of the fields of a certificate, behind its version: serial number, signature, issuer."""


def expiry_s(pem: str) -> float:
    """Unix time at which the first certificate of a PEM chain ends. Raises ValueError."""
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("there is no certificate in PEM form")
    try:
        certificate = _content(ssl.PEM_cert_to_DER_cert(found[0]), _SEQUENCE)
        rest = _content(certificate, _SEQUENCE)
        if rest[0] == _VERSION:
            rest = _split(rest)[2]
        for _ in range(_BEFORE_VALIDITY):
            rest = _split(rest)[2]
        tag, until, _ = _split(_split(_content(rest, _SEQUENCE))[2])
        moment = datetime.strptime(until.decode("ascii"), _FORMATS[tag])
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"the certificate can't be read: {error}") from None
    return moment.replace(tzinfo=UTC).timestamp()


def _content(der: bytes, tag: int) -> bytes:
    found, content, _ = _split(der)
    if found != tag:
        raise ValueError(f"tag {found:#x} where {tag:#x} is expected")
    return content


def _split(der: bytes) -> tuple[int, bytes, bytes]:
    """The first element's tag and content, and what follows. Raises IndexError or ValueError."""
    tag, length, at = der[0], der[1], 2
    if length & 0x80:
        at += length & 0x7F
        length = int.from_bytes(der[2:at], "big")
    if len(der) < at + length:
        raise ValueError("it is cut off")
    return tag, der[at : at + length], der[at + length :]
