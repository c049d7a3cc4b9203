"""The cluster as a whole: whether it serves, and which feature level it has finished."""

from __future__ import annotations

from typing import Any

import msgspec

from goqueue.models.topics import Cluster, ClusterHealth, ClusterNode
from goqueue.transport.calls import Calls
from goqueue.transport.http import join


class BrokerVersion(msgspec.Struct, frozen=True):
    """A broker's version and the feature levels that it speaks; `status` is alive, dead or wiped,
    as the node sees it that was asked."""

    id: str
    version: str
    status: str
    lowest_level: int
    highest_level: int


class ClusterVersion(msgspec.Struct, frozen=True):
    """Which versions run. What came with a level above `finished_level` can't be used yet;
    `next_level` is what an upgrade would finish, the same where there is nothing to finish, and
    `waiting` says what must happen before."""

    version: str
    finished_level: int
    next_level: int
    brokers: list[BrokerVersion]
    waiting: list[str] = []


class WholeCluster:
    """The part of the admin that knows the cluster and its versions."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def cluster(self) -> Cluster:
        """The cluster in short, as the node that answers sees it."""
        return await self._calls.get(join("cluster"), Cluster)

    async def cluster_nodes(self) -> list[ClusterNode]:
        """Every broker, and whether it is alive."""
        return (await self._calls.get(join("cluster", "nodes"), _Nodes)).nodes

    async def cluster_health(self) -> ClusterHealth:
        """Whether the cluster serves, and what is wrong with it."""
        return await self._calls.get(join("cluster", "health"), ClusterHealth)

    async def stats(self) -> dict[str, Any]:
        """`/stats` of the node that answers."""
        return await self._calls.get("/stats", dict[str, Any])

    async def level(self) -> int:
        """The feature level that the cluster has finished: what came with a higher one is refused
        (`level_not_finished`). Ask before using it; needs no key."""
        return (await self._calls.get(join("version"), _Level)).level

    async def cluster_version(self) -> ClusterVersion:
        """Which versions run, and which feature level may be used."""
        return await self._calls.get(join("cluster", "version"), ClusterVersion)

    async def plan_upgrade(self) -> ClusterVersion:
        """What `finish_upgrade` would finish, and what it waits for."""
        path = join("admin", "cluster", "upgrade")
        return await self._calls.send(
            "POST", path, {"dry_run": True}, ClusterVersion, repeatable=True
        )

    async def finish_upgrade(self) -> ClusterVersion:
        """Let the cluster use what came with `next_level`; versions that don't speak it can't come
        back. Again, it changes nothing. Raises Conflict (`upgrade_waits`)."""
        path = join("admin", "cluster", "upgrade")
        return await self._calls.send("POST", path, {}, ClusterVersion, repeatable=True)


class _Level(msgspec.Struct, frozen=True):
    level: int = 0
    """Release 0.1.0 tells none."""


class _Nodes(msgspec.Struct):
    nodes: list[ClusterNode]
