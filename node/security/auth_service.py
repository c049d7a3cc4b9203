"""A node's door: proves API keys, makes them, and sees to it that there is a first one."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from coordinator.commands.keys import CreateKey, EndSession
from goqueue.wire.errors import GoQueueError
from node.cluster.host import ClusterHost
from node.config.auth import AuthConfig
from node.metrics.doors import DoorMetrics
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.security.browser_tokens import KeyBrowserTokens
from node.security.key_admin import KeyAdmin
from node.security.key_checks import KeyChecks
from node.security.key_secrets import digest_of, read_token
from node.security.key_sessions import KeySessions

LOOK_S = 1.0
"""How often it is looked whether a first key is wanted, and whether the leader is heard."""
COMMAND_DEADLINE_S = 15.0

_log = get_logger("node")


class AuthService:
    """A service. Its thread tries secrets, one at a time: whoever guesses delays only others that
    come for the first time."""

    def __init__(
        self,
        config: AuthConfig,
        cluster: ClusterHost,
        wall_ms: Callable[[], int],
        rng: random.Random,
        metrics: DoorMetrics,
        cluster_secret: bytes = b"",
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._wall_ms = wall_ms
        self._metrics = metrics
        self._let_in = metrics.authentications.labels("ok")
        self._workers = ThreadPoolExecutor(1, thread_name_prefix="goqueue-door")
        self._now_s = now_s
        self._heard_s = now_s()
        self._stale_s = config.stale_ms / 1000
        self._looks = Periodic("door", self._round, LOOK_S, _log, "door_failed", first_s=0.0)
        self._complained = ""
        self.key_admin = KeyAdmin(cluster, self.now_ms, self._workers, rng)
        self.checks = KeyChecks(
            lambda: cluster.state.keys,
            self.now_ms,
            self._workers,
            self,
            self.is_stale,
            cluster.refresh,
        )
        self.sessions = KeySessions(
            lambda: cluster.state.keys,
            self.now_ms,
            self.checks.digest,
            cluster_secret,
            self.is_stale,
            self._end_session if cluster_secret else None,
        )
        self.browser_tokens = KeyBrowserTokens(
            lambda: cluster.state.keys,
            self.now_ms,
            self.checks.digest,
            cluster_secret,
            self.is_stale,
        )

    def now_ms(self) -> int:
        """By which keys expire: no earlier than the cluster group's log time."""
        return max(self._wall_ms(), self._cluster.state.time_ms)

    def is_stale(self) -> bool:
        """Whether keys may have been revoked long ago, and nobody told this node."""
        return self._now_s() - self._heard_s > self._stale_s

    async def _end_session(self, command: EndSession) -> None:
        await self._cluster.command(command, COMMAND_DEADLINE_S)

    # as `KeyFigures` has them

    def authenticated(self, result: str) -> None:
        if result == "ok":
            self._let_in.inc()
        else:
            self._metrics.authentications.labels(result).inc()

    def denied(self, missing: str) -> None:
        self._metrics.denials.labels(missing).inc()

    # a service

    async def start(self) -> None:
        if self._config.enabled:
            await self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _round(self) -> None:
        try:
            await self._look()
        except GoQueueError as error:
            self._complain(error.message)

    async def _look(self) -> None:
        raft_group = self._cluster.raft_group
        if raft_group is None:
            return
        if raft_group.is_ready_leader or raft_group.voting.hears_leader():
            self._heard_s = self._now_s()
        if raft_group.is_ready_leader and not self._cluster.state.keys.has_master(self.now_ms()):
            await self._seed()

    async def _seed(self) -> None:
        """The first admin key, from its file. Applying it judges again whether it is wanted."""
        if not self._config.admin_key_file:
            self._complain("there is no admin key, and auth.adminKeyFile names no file")
            return
        loop = asyncio.get_running_loop()
        try:
            id, secret = await loop.run_in_executor(
                self._workers, read_token, self._config.admin_key_file
            )
        except (OSError, ValueError) as error:
            self._complain(f"auth.adminKeyFile: {self._config.admin_key_file}: {error}")
            return
        digest = await loop.run_in_executor(self._workers, digest_of, secret)
        command = CreateKey(id, "admin", [""], digest, "first admin key", seed=True)
        await self._cluster.command(command, COMMAND_DEADLINE_S)
        _log.info("first_admin_key_made", key=id)

    def _complain(self, problem: str) -> None:
        """Once, until it is another problem."""
        if problem != self._complained:
            self._complained = problem
            _log.warning("no_admin_key", problem=problem)
