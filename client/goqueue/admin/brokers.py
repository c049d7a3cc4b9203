"""Brokers that come and go.

A drain has a dry run. What is begun goes on by itself, whoever asked and whatever dies.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from goqueue.admin.moves import MovePlan
from goqueue.transport.calls import Calls, decode
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


class Brokers:
    """The part of the admin that knows brokers."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def brokers(self) -> list[Broker]:
        """All brokers by name, with what each holds."""
        return (await self._calls.get(join("admin", "brokers"), _Brokers)).brokers

    async def broker(self, id: str) -> Broker:
        """One broker, and how far its drain is. Raises NotFound (`unknown_broker`)."""
        return await self._calls.get(join("admin", "brokers", id), Broker)

    async def plan_drain(self, id: str) -> MovePlan:
        """What `drain_broker` would move. Raises what it would raise."""
        path = join("admin", "brokers", id, "drain")
        return await self._calls.send("POST", path, {"dry_run": True}, MovePlan, repeatable=True)

    async def drain_broker(self, id: str, *, throttle_bytes_s: int = 0) -> Broker:
        """Move all replicas off a broker, which gets no more; again, it changes nothing.

        Raises BadRequest (`too_few_brokers`) where the others can't hold what it has.
        """
        path = join("admin", "brokers", id, "drain")
        body = {"throttle_bytes_per_sec": throttle_bytes_s}
        return await self._calls.send("POST", path, body, Broker, repeatable=True)

    async def undrain_broker(self, id: str) -> Broker:
        """Let it take replicas again; those that were on their way off it come back."""
        path = join("admin", "brokers", id, "drain")
        answer = await self._calls.transport.request("DELETE", path, repeatable=True)
        return decode(answer.body, Broker)

    async def remove_broker(self, id: str) -> None:
        """Forget a drained broker; its data directory is never let in again. Raises Conflict
        (`broker_not_empty`) for one that is not drained."""
        await self._calls.transport.request(
            "DELETE", join("admin", "brokers", id), repeatable=False
        )


class _Brokers(msgspec.Struct):
    brokers: list[Broker]
