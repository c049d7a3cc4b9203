"""Partitions that move between brokers.

Every plan has a dry run. What is begun goes on by itself, whoever asked and whatever dies.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from goqueue.transport.calls import Calls, decode, given
from goqueue.transport.http import join


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


class Moves:
    """The part of the admin that moves partitions."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def plan_rebalance(
        self, *, leaders_only: bool = False, limit: int | None = None
    ) -> MovePlan:
        """What `rebalance` would do; no moves where brokers have equal shares."""
        body = {"dry_run": True, **given({"leaders_only": leaders_only, "limit": limit})}
        path = join("admin", "cluster", "rebalance")
        return await self._calls.send("POST", path, body, MovePlan, repeatable=True)

    async def rebalance(
        self, *, leaders_only: bool = False, limit: int | None = None, throttle_bytes_s: int = 0
    ) -> Reassignment | None:
        """Spread replicas and leaders over the brokers; None where nothing is to be done. `limit`
        bounds the partitions that move now."""
        body = {
            "throttle_bytes_per_sec": throttle_bytes_s,
            **given({"leaders_only": leaders_only, "limit": limit}),
        }
        answer = await self._calls.post("POST", join("admin", "cluster", "rebalance"), body)
        begun = decode(answer.body, _Begun)
        return None if begun.id is None else decode(answer.body, Reassignment)

    async def plan_moves(self, moves: Iterable[PartitionMove]) -> MovePlan:
        """What `reassign` would do. Raises what it would raise."""
        body = {"partitions": _wanted(moves), "dry_run": True}
        return await self._calls.send(
            "POST", join("admin", "reassignment"), body, MovePlan, repeatable=True
        )

    async def reassign(
        self, moves: Iterable[PartitionMove], *, throttle_bytes_s: int = 0
    ) -> Reassignment:
        """Move all of these, or none. Where `before` is given and not so, nothing is done: Conflict
        (`overtaken`)."""
        body = {"partitions": _wanted(moves), "throttle_bytes_per_sec": throttle_bytes_s}
        return await self._calls.send("POST", join("admin", "reassignment"), body, Reassignment)

    async def reassignments(self, *, running: bool = False) -> list[Reassignment]:
        """Newest first: those that run, and the last hundred that ended."""
        params = {"running": "true"} if running else None
        found = await self._calls.get(join("admin", "reassignment"), _Reassignments, params)
        return found.reassignments

    async def reassignment(self, id: str) -> Reassignment:
        """With each of its partitions. Raises NotFound (`unknown_reassignment`)."""
        return await self._calls.get(join("admin", "reassignment", id), Reassignment)

    async def cancel_reassignment(self, id: str) -> Reassignment:
        """What has not arrived goes back. Raises Conflict for one that follows from a drain or a
        replication factor: undo that instead."""
        path = join("admin", "reassignment", id)
        answer = await self._calls.transport.request("DELETE", path, repeatable=True)
        return decode(answer.body, Reassignment)


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
