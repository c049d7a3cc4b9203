"""Secrets of API keys: made at random, and kept as salted digests that are slow to try out."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from base64 import b32encode
from pathlib import Path

from coordinator.commands.keys import SecretDigest

SECRET_BYTES = 32
SECRET_CHARACTERS_MIN = 16
TOKEN_FILE_BYTES_MAX = 4096
SCHEME = "scrypt-11-8-1"
"""N = 2^11, r = 8, p = 1: 2 MiB and some 8 ms. Secrets that are made here have 256 bits, so this is
for those that people make up; a request pays for it once, then its proof is remembered."""
_SALT_BYTES = 16
NOBODYS = SecretDigest(SCHEME, bytes(_SALT_BYTES), bytes(32))
"""The digest of no secret, and as slow to try."""


def new_id() -> str:
    return "k" + b32encode(os.urandom(10)).decode().lower()


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> SecretDigest:
    """With a salt of its own. Takes milliseconds: not for the loop's thread."""
    salt = os.urandom(_SALT_BYTES)
    return SecretDigest(SCHEME, salt, _scrypt(secret, salt))


def is_of(secret: str, digest: SecretDigest) -> bool:
    """Whether the digest is this secret's, in time that does not depend on it. False for a scheme
    of a later version. Not for the loop's thread."""
    return digest.scheme == SCHEME and hmac.compare_digest(
        _scrypt(secret, digest.salt), digest.digest
    )


def read_token(path: str) -> tuple[str, str]:
    """The (id, secret) of a file that holds `id.secret`. Raises OSError, ValueError."""
    with Path(path).open("rb") as file:
        text = file.read(TOKEN_FILE_BYTES_MAX).decode("ascii").strip()
    id, dot, secret = text.partition(".")
    if not (dot and id and len(secret) >= SECRET_CHARACTERS_MIN and secret.isprintable()):
        raise ValueError(
            f"does not hold <id>.<secret> with a secret of {SECRET_CHARACTERS_MIN} characters or"
            " more"
        )
    return id, secret


def _scrypt(secret: str, salt: bytes) -> bytes:
    return hashlib.scrypt(
        secret.encode(), salt=salt, n=1 << 11, r=8, p=1, maxmem=16 << 20, dklen=32
    )
