"""Growing, shrinking and moving: brokers that come and go, and partitions between them.

Every plan has a dry run. What is begun goes on by itself, whoever asked and whatever dies.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from goqueue.transport.calls import Calls, decode, given
from goqueue.transport.http import join


class Drain(msgspec.Struct, frozen=True):
    """How far a drain is; `problem` says why it can't go on. `bytes_left` are those of partitions
    that are being copied now, None where nobody tells."""

    started_at: datetime
    replicas_at_start: int
    replicas_left: int
    throttle_bytes_per_sec: int = 0
    problem: str | None = None
    waiting: list[str] = []
    bytes_left: int | None = None
    bytes_per_sec: int = 0


class Broker(msgspec.Struct, frozen=True):
    """A broker: `state` is active, draining or drained. `replicas` are those it should have, `held`
    those that it should have or still has, `leaders` is what it leads."""

    id: str
    state: str
    up: bool
    replicas: int
    leaders: int
    held: int
    zone: str = ""
    url: str = ""
    peer_address: str = ""
    status: str = "alive"
    drain: Drain | None = None


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


class PartitionMove(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """One partition of a plan, by brokers, the one that should lead first. `bytes` are those to be
    copied, None where nobody tells."""

    topic: str
    partition: int
    before: list[str]
    after: list[str]
    bytes: int | None = None


class MovePlan(msgspec.Struct, frozen=True):
    """What would be done; `complete`: nothing is left for a further plan."""

    moves: list[PartitionMove]
    replicas_moved: int = 0
    bytes: int = 0
    bytes_unknown: int = 0
    complete: bool = True


class MovedPartition(msgspec.Struct, frozen=True):
    """One partition of a reassignment: `state` is moving, arrived, returning, returned, overtaken
    or deleted."""

    topic: str
    partition: int
    old_replicas: list[str]
    new_replicas: list[str]
    state: str
    waiting: str | None = None
    bytes_left: int | None = None


class Reassignment(msgspec.Struct, frozen=True):
    """A plan that is carried out, or was: `state` is running, cancelling, done or cancelled.
    `partitions` are given where it is asked for alone."""

    id: str
    state: str
    cause: str
    partitions_total: int
    partitions_left: int
    progress: float
    started_at: datetime
    ended_at: datetime | None = None
    brokers: list[str] = []
    throttle_bytes_per_sec: int = 0
    bytes_left: int | None = None
    bytes_per_sec: int = 0
    waiting: list[str] = []
    partitions: list[MovedPartition] = []

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "cancelled")


class PartitionsAdded(msgspec.Struct, frozen=True):
    """How many partitions a topic had and has."""

    topic_name: str
    old_partition_count: int
    new_partition_count: int
    partitions_added: list[int] = []


class Placement(Calls):
    """The part of the client that knows brokers and moves."""

    # brokers

    async def brokers(self) -> list[Broker]:
        """All brokers by name, with what each holds."""
        return (await self._get(join("admin", "brokers"), _Brokers)).brokers

    async def broker(self, id: str) -> Broker:
        """One broker, and how far its drain is. Raises NotFound (`unknown_broker`)."""
        return await self._get(join("admin", "brokers", id), Broker)

    async def plan_drain(self, id: str) -> MovePlan:
        """What `drain_broker` would move. Raises what it would raise."""
        path = join("admin", "brokers", id, "drain")
        return await self._send("POST", path, {"dry_run": True}, MovePlan, repeatable=True)

    async def drain_broker(self, id: str, *, throttle_bytes_s: int = 0) -> Broker:
        """Move all replicas off a broker, which gets no more; again, it changes nothing.

        Raises BadRequest (`too_few_brokers`) where the others can't hold what it has.
        """
        path = join("admin", "brokers", id, "drain")
        body = {"throttle_bytes_per_sec": throttle_bytes_s}
        return await self._send("POST", path, body, Broker, repeatable=True)

    async def undrain_broker(self, id: str) -> Broker:
        """Let it take replicas again; those that were on their way off it come back."""
        path = join("admin", "brokers", id, "drain")
        answer = await self._transport.request("DELETE", path, repeatable=True)
        return decode(answer.body, Broker)

    async def remove_broker(self, id: str) -> None:
        """Forget a drained broker; its data directory is never let in again. Raises Conflict
        (`broker_not_empty`) for one that is not drained."""
        await self._transport.request("DELETE", join("admin", "brokers", id), repeatable=False)

    # versions

    async def level(self) -> int:
        """The feature level that the cluster has finished: what came with a higher one is refused
        (`level_not_finished`). Ask before using it; needs no key."""
        return (await self._get(join("version"), _Level)).level

    async def cluster_version(self) -> ClusterVersion:
        """Which versions run, and which feature level may be used."""
        return await self._get(join("cluster", "version"), ClusterVersion)

    async def plan_upgrade(self) -> ClusterVersion:
        """What `finish_upgrade` would finish, and what it waits for."""
        path = join("admin", "cluster", "upgrade")
        return await self._send("POST", path, {"dry_run": True}, ClusterVersion, repeatable=True)

    async def finish_upgrade(self) -> ClusterVersion:
        """Let the cluster use what came with `next_level`; versions that don't speak it can't come
        back. Again, it changes nothing. Raises Conflict (`upgrade_waits`)."""
        path = join("admin", "cluster", "upgrade")
        return await self._send("POST", path, {}, ClusterVersion, repeatable=True)

    # moves

    async def plan_rebalance(
        self, *, leaders_only: bool = False, limit: int | None = None
    ) -> MovePlan:
        """What `rebalance` would do; no moves where brokers have equal shares."""
        body = {"dry_run": True, **given({"leaders_only": leaders_only, "limit": limit})}
        path = join("admin", "cluster", "rebalance")
        return await self._send("POST", path, body, MovePlan, repeatable=True)

    async def rebalance(
        self, *, leaders_only: bool = False, limit: int | None = None, throttle_bytes_s: int = 0
    ) -> Reassignment | None:
        """Spread replicas and leaders over the brokers; None where nothing is to be done. `limit`
        bounds the partitions that move now."""
        body = {
            "throttle_bytes_per_sec": throttle_bytes_s,
            **given({"leaders_only": leaders_only, "limit": limit}),
        }
        answer = await self._post("POST", join("admin", "cluster", "rebalance"), body)
        begun = decode(answer.body, _Begun)
        return None if begun.id is None else decode(answer.body, Reassignment)

    async def plan_moves(self, moves: Iterable[PartitionMove]) -> MovePlan:
        """What `reassign` would do. Raises what it would raise."""
        body = {"partitions": _wanted(moves), "dry_run": True}
        return await self._send(
            "POST", join("admin", "reassignment"), body, MovePlan, repeatable=True
        )

    async def reassign(
        self, moves: Iterable[PartitionMove], *, throttle_bytes_s: int = 0
    ) -> Reassignment:
        """Move all of these, or none. Where `before` is given and not so, nothing is done: Conflict
        (`overtaken`)."""
        body = {"partitions": _wanted(moves), "throttle_bytes_per_sec": throttle_bytes_s}
        return await self._send("POST", join("admin", "reassignment"), body, Reassignment)

    async def reassignments(self, *, running: bool = False) -> list[Reassignment]:
        """Newest first: those that run, and the last hundred that ended."""
        params = {"running": "true"} if running else None
        found = await self._get(join("admin", "reassignment"), _Reassignments, params)
        return found.reassignments

    async def reassignment(self, id: str) -> Reassignment:
        """With each of its partitions. Raises NotFound (`unknown_reassignment`)."""
        return await self._get(join("admin", "reassignment", id), Reassignment)

    async def cancel_reassignment(self, id: str) -> Reassignment:
        """What has not arrived goes back. Raises Conflict for one that follows from a drain or a
        replication factor: undo that instead."""
        path = join("admin", "reassignment", id)
        answer = await self._transport.request("DELETE", path, repeatable=True)
        return decode(answer.body, Reassignment)


class _Level(msgspec.Struct, frozen=True):
    level: int = 0
    """Release 0.1.0 tells none."""


class _Brokers(msgspec.Struct):
    brokers: list[Broker]


class _Reassignments(msgspec.Struct):
    reassignments: list[Reassignment]


class _Begun(msgspec.Struct):
    id: str | None = None


def _wanted(moves: Iterable[PartitionMove]) -> list[dict[str, object]]:
    return [
        {
            "topic": move.topic,
            "partition": move.partition,
            "new_replicas": move.after,
            "old_replicas": move.before or None,
        }
        for move in moves
    ]
