"""API keys as the front asks for them: made, listed, rotated and revoked in the cluster group."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from coordinator.access.api_keys import ApiKey, ApiKeys, check_key, check_rotation
from coordinator.commands.codec import Command, Result
from coordinator.commands.keys import CreateKey, RevokeKey, RotateKey, SecretDigest
from coordinator.errors import UnknownKey
from goqueue.wire.errors import Unavailable
from log.levels import Feature, Levels
from node.api.auth.keys import KeyView, NewSecret, SecretView
from node.security.key_secrets import digest_of, new_id, new_secret

COMMAND_DEADLINE_S = 15.0
_NO_DIGEST = SecretDigest("none", b"-" * 8, b"-" * 16)
"""Stands in while a command is judged: the digest takes its time."""


class KeysState(Protocol):
    """As `coordinator.cluster.state.ClusterState` has them."""

    keys: ApiKeys


class KeyGroup(Protocol):
    """The cluster group, as `node.cluster.host.ClusterHost` is it."""

    @property
    def state(self) -> KeysState: ...

    @property
    def levels(self) -> Levels: ...

    async def command(self, command: Command, deadline_s: float) -> Result: ...

    async def refresh(self) -> bool: ...


class KeyAdmin:
    """Implements `node.api.auth.keys.KeyBroker`. Loop thread only, but for the digests."""

    def __init__(
        self,
        cluster: KeyGroup,
        now_ms: Callable[[], int],
        workers: ThreadPoolExecutor,
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._now_ms = now_ms
        self._workers = workers
        self._rng = rng

    async def create_key(
        self,
        id: str,
        *,
        name: str,
        role: str,
        prefixes: Sequence[str],
        expires_ms: int,
        group_prefixes: Sequence[str] = (),
    ) -> NewSecret:
        if group_prefixes:
            self._cluster.levels.require(Feature.SCOPES)
        groups = [] if set(group_prefixes) == set(prefixes) else list(group_prefixes)
        id, secret = id or new_id(), new_secret()

        def command(digest: SecretDigest) -> CreateKey:
            return CreateKey(
                id,
                role,
                list(prefixes),
                digest,
                name,
                expires_ms,
                request=request,
                group_prefixes=groups,
            )

        request = self._request()
        check_key(command(_NO_DIGEST))
        digest = await self._digest(secret)
        await self._cluster.command(command(digest), COMMAND_DEADLINE_S)
        return NewSecret(await self.key(id), f"{id}.{secret}")

    async def keys(self) -> list[KeyView]:
        await self._cluster.refresh()
        now_ms = self._now_ms()
        keys = self._cluster.state.keys
        return [_view(keys.by_id[id], keys, now_ms) for id in sorted(keys.by_id)]

    async def key(self, id: str) -> KeyView:
        is_current = await self._cluster.refresh()
        try:
            keys = self._cluster.state.keys
            return _view(keys.named(id), keys, self._now_ms())
        except UnknownKey:
            if is_current:
                raise
            raise Unavailable(
                f"API key {id[:64]} is not known here: the cluster group's leader does not answer"
            ) from None

    async def rotate_key(self, id: str, *, grace_ms: int, keep: str) -> NewSecret:
        secret, request = new_secret(), self._request()
        check_rotation(RotateKey(id, _NO_DIGEST, grace_ms, keep, request))
        await self.key(id)
        command = RotateKey(id, await self._digest(secret), grace_ms, keep, request)
        await self._cluster.command(command, COMMAND_DEADLINE_S)
        return NewSecret(await self.key(id), f"{id}.{secret}")

    async def revoke_key(self, id: str) -> KeyView:
        await self._cluster.command(RevokeKey(id), COMMAND_DEADLINE_S)
        return await self.key(id)

    def _request(self) -> int:
        return self._rng.getrandbits(63) or 1

    async def _digest(self, secret: str) -> SecretDigest:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, digest_of, secret)


def _view(key: ApiKey, keys: ApiKeys, now_ms: int) -> KeyView:
    return KeyView(
        id=key.id,
        name=key.name,
        role=key.role,
        prefixes=key.prefixes,
        group_prefixes=keys.groups_of(key),
        state=key.state(now_ms),
        created_ms=key.created_ms,
        expires_ms=key.expires_ms,
        revoked_ms=key.revoked_ms,
        secrets=[SecretView(one.created_ms, one.expires_ms) for one in key.live_secrets(now_ms)],
    )
