"""The broker as admins of every topic have it: the broker itself, but that groups get an owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from node.api.broker import Broker
from node.api.members import Assignment, JoinRequest
from node.api.queue import NOBODY, Claim, GroupView, Maker, Received

EVERY_GROUPS = Maker("")
"""A group that such an admin makes belongs to all keys of every group, and of its name's prefix."""


class AdminsBroker:
    """Has what `Broker` has. Nothing is refused."""

    __slots__ = ("_inner",)

    def __init__(self, broker: Broker) -> None:
        self._inner = broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def put_group(self, name: str, settings: Mapping[str, object]) -> GroupView:
        return await self._inner.put_group(name, settings, EVERY_GROUPS)

    async def receive(
        self, group: str, topics: Sequence[str], *, claim: Claim = NOBODY, **named: Any
    ) -> Received:
        claim = replace(claim, maker=EVERY_GROUPS)
        return await self._inner.receive(group, topics, claim=claim, **named)

    async def commit(
        self, group: str, topic: str, offsets: Mapping[int, int], claim: Claim = NOBODY
    ) -> dict[int, int]:
        claim = replace(claim, maker=EVERY_GROUPS)
        return await self._inner.commit(group, topic, offsets, claim)

    async def join(self, group: str, request: JoinRequest, *, wait_s: float) -> Assignment:
        return await self._inner.join(group, replace(request, maker=EVERY_GROUPS), wait_s=wait_s)
