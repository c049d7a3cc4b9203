"""Proofs that a key was shown: every node can check them, and none keeps any.

A proof names the key and its own end, under a code of authentication made with a secret of the
cluster and the stored digest of the key's secret. So it holds on every node and after restarts, and
ends with the secret: when it is rotated out, runs out, or its key is revoked. Nobody who has only a
disk, or only the cluster's secret, can make one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.access.api_keys import ApiKey, ApiKeys
from coordinator.commands.keys import SecretDigest
from goqueue.wire.errors import Unauthenticated, Unavailable

_PROOF = re.compile(
    r"(?P<id>[A-Za-z0-9][A-Za-z0-9_-]{0,62})\.(?P<ends>[0-9]{1,12})\.(?P<nonce>[A-Za-z0-9_-]{22})"
    r"\.(?P<code>[A-Za-z0-9_-]{43})",
    re.ASCII,
)


class KeysStale(Unavailable):
    """Keys may have been revoked long ago, and nobody told this node."""

    text = "this node has not heard of the cluster for too long to know which keys hold"


class Proven(NamedTuple):
    """What a proof says, which holds."""

    key: ApiKey
    nonce: str
    ends_s: int


@dataclass(frozen=True, slots=True)
class KeyProofs:
    """Proofs of one kind, which is their `label`: one of another kind is none here. `digest_of`
    tells which secret of its key a proved token is."""

    label: bytes
    cluster_secret: bytes
    keys: Callable[[], ApiKeys]
    now_ms: Callable[[], int]
    digest_of: Callable[[str], SecretDigest | None]
    is_stale: Callable[[], bool] = lambda: False
    """Whether this node has not heard of the cluster group for too long."""

    def make(self, token: str, life_s: int) -> str:
        """For a token that was proved right now. Raises Unauthenticated where it ended since."""
        digest = self.digest_of(token)
        if digest is None:
            raise Unauthenticated("this API key does not hold", reason="invalid")
        ends_s = self.now_ms() // 1000 + life_s
        told = f"{token.partition('.')[0]}.{ends_s}.{_text(os.urandom(16))}"
        return f"{told}.{self._sign(told, digest)}"

    def admit(self, proof: str, *, may_be_over: bool = False) -> Proven | None:
        """As `check`, for who is let in by it. Raises KeysStale, too."""
        if self.is_stale():
            raise KeysStale
        return self.check(proof, may_be_over=may_be_over)

    def check(self, proof: str, *, may_be_over: bool = False) -> Proven | None:
        """What it proves; None where its time is over, unless it may be. Raises Unauthenticated
        where its key has ended, or it is none."""
        found, now_ms = _PROOF.fullmatch(proof), self.now_ms()
        if found is None or (int(found["ends"]) * 1000 <= now_ms and not may_be_over):
            return None
        key = self.keys().by_id.get(found["id"])
        told = proof.rpartition(".")[0]
        for secret in [] if key is None else key.live_secrets(now_ms):
            if hmac.compare_digest(self._sign(told, secret.secret), found["code"]):
                assert key is not None
                return Proven(key, found["nonce"], int(found["ends"]))
        raise Unauthenticated("this has ended with its key, or never was", reason="invalid")

    def _sign(self, told: str, digest: SecretDigest) -> str:
        made_with = code_of(self.cluster_secret, self.label + digest.salt + digest.digest)
        return _text(code_of(made_with, told.encode()))


def code_of(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
