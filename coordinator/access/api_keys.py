"""API keys as the cluster knows them: who may come in, for what, and until when.

A key has a role, prefixes of topics, and one or two secrets of which only salted digests are known.
It is over when it is revoked, or by log time: nothing happens then, whoever looks sees it. Keys
that are over are remembered, so that their use can be told from that of keys that never were, until
there is no room for new ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from coordinator.access.sessions import EndedSessions, Sessions
from coordinator.commands.keys import (
    CreateKey,
    EndSession,
    KeyResult,
    RevokeKey,
    RotateKey,
    SecretDigest,
)
from coordinator.errors import (
    BadConfig,
    ClusterFull,
    KeyExists,
    KeyRevoked,
    LastAdminKey,
    TwoSecrets,
    UnknownKey,
)
from goqueue.wire.errors import BadName
from goqueue.wire.ids import is_name

ROLES = ("admin", "producer", "consumer", "readonly")
KEYS_MAX = 10_000
PREFIXES_MAX = 100
NAME_MAX = 200
SECRETS_MAX = 2
GRACE_MS_MAX = 90 * 24 * 3600 * 1000
KEEP = ("newest", "oldest")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}", re.ASCII)
_SALT_BYTES = range(8, 65)
_DIGEST_BYTES = range(16, 129)


class KeySecret(msgspec.Struct, array_like=True, frozen=True):
    """One secret of a key; `expires_ms` is 0 where it lives as long as its key."""

    secret: SecretDigest
    created_ms: int
    expires_ms: int = 0
    request: int = 0


class ApiKey(msgspec.Struct, array_like=True, frozen=True):
    """One key; times are log time of the cluster group, 0 for never. Secrets oldest first; one
    that is revoked has none."""

    id: str
    name: str
    role: str
    prefixes: list[str]
    secrets: list[KeySecret]
    created_ms: int
    expires_ms: int
    revoked_ms: int = 0
    seeded: bool = False

    def state(self, time_ms: int) -> str:
        """active, expired or revoked."""
        if self.revoked_ms:
            return "revoked"
        return "expired" if 0 < self.expires_ms <= time_ms else "active"

    def live_secrets(self, time_ms: int) -> list[KeySecret]:
        """Those that open anything now."""
        if self.state(time_ms) != "active":
            return []
        return [one for one in self.secrets if not 0 < one.expires_ms <= time_ms]

    @property
    def is_master(self) -> bool:
        """Whether it may make other keys."""
        return self.role == "admin" and "" in self.prefixes


class ApiKeys:
    """All keys. Commands in, state out; `time_ms` is their entries'."""

    def __init__(
        self,
        keys: Iterable[ApiKey] = (),
        group_prefixes: Iterable[tuple[str, list[str]]] = (),
        ended: Iterable[EndedSessions] = (),
    ) -> None:
        self.by_id: dict[str, ApiKey] = {key.id: key for key in keys}
        self.group_prefixes = dict(group_prefixes)
        """By a key's id, of those whose groups begin otherwise than their topics."""
        self.sessions = Sessions(ended)
        self._reserved: frozenset[str] | None = None

    def named(self, id: str) -> ApiKey:
        """Raises UnknownKey."""
        key = self.by_id.get(id)
        if key is None:
            raise UnknownKey(id[:64])
        return key

    def groups_of(self, key: ApiKey) -> list[str]:
        """What the names of the groups begin with that a key reaches."""
        return self.group_prefixes.get(key.id, key.prefixes)

    def is_reserved(self, group: str) -> bool:
        """Whether the name begins as those of some key's groups do; not of keys of all groups."""
        if self._reserved is None:
            living = (key for key in self.by_id.values() if not key.revoked_ms)
            self._reserved = frozenset(p for key in living for p in self.groups_of(key) if p)
        return any(group[:length] in self._reserved for length in range(1, len(group) + 1))

    def has_master(self, time_ms: int) -> bool:
        """Whether anybody can make keys now."""
        return self._has_other_master("", time_ms, later=False)

    def create(self, time_ms: int, command: CreateKey) -> KeyResult:
        """Raises BadName, BadConfig with every problem, KeyExists, KeyRevoked, ClusterFull; nothing
        has changed then."""
        check_key(command)
        known = self.by_id.get(command.id)
        if command.seed and self.has_master(time_ms):
            return KeyResult(command.id)
        if known is not None:
            if command.request and known.secrets and known.secrets[0].request == command.request:
                return KeyResult(known.id, created=True)
            raise KeyRevoked(known.id) if known.revoked_ms else KeyExists(known.id)
        if 0 < command.expires_ms <= time_ms:
            raise BadConfig(["expires: this time has already passed"])
        self._make_room(time_ms)
        self.by_id[command.id] = ApiKey(
            command.id,
            command.name,
            command.role,
            sorted(set(command.prefixes)),
            [KeySecret(command.secret, time_ms, 0, command.request)],
            time_ms,
            command.expires_ms,
            seeded=command.seed,
        )
        if command.group_prefixes:
            self.group_prefixes[command.id] = sorted(set(command.group_prefixes))
        self._reserved = None
        return KeyResult(command.id, created=True)

    def rotate(self, time_ms: int, command: RotateKey) -> KeyResult:
        """Raises UnknownKey, KeyRevoked, BadConfig; TwoSecrets where two live and it is not said
        which one stays."""
        check_rotation(command)
        key = self.named(command.id)
        if command.request and any(one.request == command.request for one in key.secrets):
            return KeyResult(key.id)
        if key.state(time_ms) != "active":
            raise KeyRevoked(key.id)
        live = key.live_secrets(time_ms) if command.grace_ms else []
        if len(live) >= SECRETS_MAX:
            if not command.keep:
                raise TwoSecrets(key.id)
            live = [live[-1] if command.keep == "newest" else live[0]]
        ends_ms = time_ms + command.grace_ms
        kept = [
            msgspec.structs.replace(one, expires_ms=min(one.expires_ms or ends_ms, ends_ms))
            for one in live
        ]
        fresh = KeySecret(command.secret, time_ms, 0, command.request)
        self.by_id[key.id] = msgspec.structs.replace(key, secrets=[*kept, fresh])
        return KeyResult(key.id)

    def revoke(self, time_ms: int, command: RevokeKey) -> KeyResult:
        """Raises UnknownKey; LastAdminKey where nobody could make keys any more."""
        key = self.named(command.id)
        if key.revoked_ms:
            return KeyResult(key.id)
        is_last = key.is_master and not self._has_other_master(key.id, time_ms, later=True)
        if is_last and key.state(time_ms) == "active":
            raise LastAdminKey(key.id)
        self.by_id[key.id] = msgspec.structs.replace(key, revoked_ms=time_ms, secrets=[])
        self._reserved = None
        return KeyResult(key.id)

    def end_session(self, time_ms: int, command: EndSession) -> KeyResult:
        """Raises UnknownKey."""
        key = self.named(command.key)
        self.sessions.end(time_ms, command)
        return KeyResult(key.id)

    def dump(self) -> list[ApiKey]:
        """For a snapshot."""
        return list(self.by_id.values())

    def _has_other_master(self, id: str, time_ms: int, *, later: bool) -> bool:
        """`later`: one that does not end by itself counts only."""
        return any(
            key.is_master
            and key.id != id
            and key.state(time_ms) == "active"
            and not (later and key.expires_ms)
            for key in self.by_id.values()
        )

    def _make_room(self, time_ms: int) -> None:
        if len(self.by_id) < KEYS_MAX:
            return
        over = next(
            (
                key.id
                for key in self.by_id.values()
                if key.state(time_ms) != "active" and not key.seeded
            ),
            None,
        )
        if over is None:
            raise ClusterFull(f"there are {KEYS_MAX} API keys already")
        del self.by_id[over]
        self.group_prefixes.pop(over, None)


def check_key(command: CreateKey) -> None:
    """Whether it may be proposed at all. Raises BadName, BadConfig with every problem."""
    if _ID.fullmatch(command.id) is None:
        raise BadName(
            f"bad key id {command.id[:64]!r}: ids match [A-Za-z0-9][A-Za-z0-9_-]{{0,62}}",
            id=command.id[:64],
        )
    problems = _digest_problems(command.secret)
    if command.role not in ROLES:
        problems.append(f"role: {command.role[:40]!r} is none of {', '.join(ROLES)}")
    if not command.prefixes:
        problems.append("prefixes: at least one is required; * is every topic")
    problems += _prefix_problems("prefixes", "topic", command.prefixes)
    problems += _prefix_problems("group_prefixes", "group", command.group_prefixes)
    if (
        command.role == "admin"
        and "" in command.prefixes
        and command.group_prefixes not in ([], [""])
    ):
        problems.append(
            "group_prefixes: not valid for an admin of every topic, which reaches every group"
        )
    if len(command.name) > NAME_MAX or not (command.name or "-").isprintable():
        problems.append(f"name: must have at most {NAME_MAX} characters, all printable")
    if command.expires_ms < 0:
        problems.append("expires: must not be negative")
    if problems:
        raise BadConfig(problems)


def check_rotation(command: RotateKey) -> None:
    """Raises BadConfig with every problem."""
    problems = _digest_problems(command.secret)
    if not 0 <= command.grace_ms <= GRACE_MS_MAX:
        problems.append("grace: out of range, which is 0 to 90 days")
    if command.keep and command.keep not in KEEP:
        problems.append(f"keep: {command.keep[:40]!r} is none of {', '.join(KEEP)}")
    if problems:
        raise BadConfig(problems)


def _prefix_problems(field: str, noun: str, prefixes: list[str]) -> list[str]:
    problems = [f"{field}: more than {PREFIXES_MAX}"] if len(prefixes) > PREFIXES_MAX else []
    return problems + [
        f"{field}: {prefix[:64]!r} is not how the name of a {noun} can begin"
        for prefix in prefixes[:PREFIXES_MAX]
        if prefix and not is_name(prefix)
    ]


def _digest_problems(secret: SecretDigest) -> list[str]:
    is_sound = len(secret.salt) in _SALT_BYTES and len(secret.digest) in _DIGEST_BYTES
    return [] if is_sound and 0 < len(secret.scheme) <= 32 else ["secret: not a digest"]
