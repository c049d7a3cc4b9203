"""Follows the applied cluster state: after each change, what runs here is made to agree."""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from coordinator.cluster.state import ClusterState
from goqueue.wire.types import GroupId

RETRY_S = 1.0
LOOK_S = 0.1
"""Between two looks at whether partitions may be founded."""

_log = structlog.get_logger("replicas")


class Known(Protocol):
    """What this node knows of the cluster."""

    state: ClusterState

    @property
    def is_newest(self) -> bool:
        """Whether the state is no older than any that this node has had before."""
        ...


class Kept(Protocol):
    """The replicas of this node, as `node.replicas.local` has them."""

    @property
    def waiting(self) -> list[GroupId]: ...

    async def reconcile(self, state: ClusterState, *, may_found: bool) -> None: ...

    def stop_all(self) -> None: ...


class Reconciler:
    """A service that runs `Replicas.reconcile` after `changed()`, many changes at once."""

    def __init__(self, cluster: Known, replicas: Kept) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """The cluster state is another one."""
        self._wake.set()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._follow(), name="reconciler")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        self._replicas.stop_all()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                cluster = self._cluster
                await self._replicas.reconcile(cluster.state, may_found=cluster.is_newest)
                if self._replicas.waiting:
                    asyncio.get_running_loop().call_later(LOOK_S, self._wake.set)
            except Exception:  # noqa: BLE001 - the task's outermost loop
                _log.exception("replicas_not_reconciled")
                await asyncio.sleep(RETRY_S)
                self._wake.set()
