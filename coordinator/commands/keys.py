"""The cluster group's commands about API keys. Secrets are never in them: only salted digests are,
and the log, snapshots and backups tell nobody how to come in.

All of them may be sent again because an outcome was lost: `request`, random and not 0, is that of
the call, and one that was applied is answered again as it was.
"""

from __future__ import annotations

import msgspec


class SecretDigest(msgspec.Struct, array_like=True, frozen=True):
    """What is kept of a secret: `digest` of it and `salt`, by the function `scheme` names."""

    scheme: str
    salt: bytes
    digest: bytes


class CreateKey(
    msgspec.Struct, frozen=True, tag="create_key", omit_defaults=True, forbid_unknown_fields=True
):
    """Create a key. `prefixes` are of the topics it may reach, "" is all; `group_prefixes` of the
    groups, the same ones where there are none. `expires_ms` is log time, 0 for never.

    With `seed` it is the first admin key: made only where no live key is an admin's of every topic,
    and never again once a key of this id was revoked.
    """

    id: str
    role: str
    prefixes: list[str]
    secret: SecretDigest
    name: str = ""
    expires_ms: int = 0
    seed: bool = False
    request: int = 0
    group_prefixes: list[str] = []


class RotateKey(
    msgspec.Struct, frozen=True, tag="rotate_key", omit_defaults=True, forbid_unknown_fields=True
):
    """Give a key a further secret; the others end `grace_ms` after this, by log time.

    While it has two that live, `keep` says which of them goes on beside the new one: `newest` or
    `oldest`.
    """

    id: str
    secret: SecretDigest
    grace_ms: int
    keep: str = ""
    request: int = 0


class RevokeKey(msgspec.Struct, frozen=True, tag="revoke_key", forbid_unknown_fields=True):
    """End a key for good; one that is revoked stays so."""

    id: str


class AddReceiptKey(msgspec.Struct, frozen=True, tag="add_receipt_key", forbid_unknown_fields=True):
    """Add a key for receipts, made at random by the proposer: the one with this id, where it is the
    next one and due. The secret itself is in it: the cluster's state can't do without."""

    id: int
    secret: bytes


class KeyResult(msgspec.Struct, frozen=True, tag="key"):
    """The key was made or changed; `created` is False where a seed was not needed."""

    id: str
    created: bool = False


class EndSession(msgspec.Struct, frozen=True, tag="end_session", forbid_unknown_fields=True):
    """End a session of the console, which is a proof that its key was shown, before its time:
    `ends_s`. The nonce alone opens nothing."""

    key: str
    nonce: str
    ends_s: int


KeyCommand = CreateKey | RotateKey | RevokeKey | AddReceiptKey | EndSession
