"""Polls: receiving from whatever a member has, also while that changes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.groups.membership import OWNED, SHARED
from coordinator.groups.settings import Group
from goqueue.wire.errors import (
    GoQueueError,
    StaleGeneration,
    UnknownPartition,
    UnknownTopic,
)
from node.api.claims import Claim
from node.api.members import Place
from node.api.queue import QueuedMessage
from node.cluster.host import ClusterHost
from node.groups.heartbeats import SignsOfLife
from node.groups.members import HEARTBEATS_A_SESSION, GroupMembers
from node.groups.request_metrics import RequestMetrics

REFUSED_PAUSE_S = 0.05
REFUSALS_MAX = 20
"""How often a partition is asked again that refuses for a reason which this node does not know of:
its leader may have been replaced, and not know it."""


class Receive(Protocol):
    """`Queue.receive`, from these very places."""

    def __call__(
        self,
        group: str,
        topics: Sequence[str],
        *,
        claim: Claim,
        limit: int,
        wait_s: float,
        visibility_ms: int | None,
        places: Sequence[Place],
    ) -> Coroutine[Any, Any, list[QueuedMessage]]: ...


@dataclass(frozen=True, slots=True)
class Poll:
    """One member's request; see `Polls.poll`."""

    group: Group
    member: str
    generation: int | None
    limit: int


@dataclass(frozen=True, slots=True)
class _Share:
    """What a member may receive from, and since when it is known to have it."""

    places: Sequence[Place]
    claim: Claim


class GroupPolls:
    """Implements `node.api.members.Polls`. Loop thread only."""

    def __init__(
        self,
        cluster: ClusterHost,
        members: GroupMembers,
        signs: SignsOfLife,
        receive: Receive,
        requests: RequestMetrics,
    ) -> None:
        self._cluster = cluster
        self._members = members
        self._signs = signs
        self._receive = receive
        self._requests = requests

    async def poll(
        self, group: str, member: str, *, generation: int | None, limit: int, wait_s: float
    ) -> list[QueuedMessage]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        poll = Poll(await self._members.find(group, member), member, generation, limit)
        found = await self._poll(poll, loop.time() + wait_s)
        self._requests.polled(group, len(found), loop.time() - began_s)
        return found

    async def _poll(self, poll: Poll, end_s: float) -> list[QueuedMessage]:
        loop = asyncio.get_running_loop()
        refusals = 0
        with self._cluster.changes.watch(poll.group.id) as changed:
            while True:
                changed.clear()
                share = self._share(poll)
                self._tell(poll)
                try:
                    found = await self._from(poll, share, changed, max(0.0, end_s - loop.time()))
                except (StaleGeneration, UnknownTopic, UnknownPartition):
                    await self._cluster.refresh()
                    if self._share(poll).places != share.places:
                        continue
                    refusals += 1
                    if refusals > REFUSALS_MAX or loop.time() >= end_s:
                        raise
                    await asyncio.sleep(REFUSED_PAUSE_S)
                    continue
                if found or loop.time() >= end_s:
                    return found

    def _share(self, poll: Poll) -> _Share:
        """Raises UnknownMember, StaleGeneration where all that the member has is newer: then it
        has to learn of it. Who knows a part gets all, lest the rest waits for ever."""
        group, member = poll.group, poll.member
        membership = self._members.membership_of(group, member)
        current = self._cluster.state.group_of(group.id) or group
        if current.settings.mode == SHARED:
            return _Share(self._members.assignment(group, member).assigned, Claim(member))
        held = [held for held in membership.holdings.of(member) if held.state == OWNED]
        known = poll.generation
        if held and known is not None and all(h.generation > known for h in held):
            raise StaleGeneration(
                f"what {member} has of group {group.name} it got after generation "
                f"{poll.generation}",
                generation=membership.generation,
                partitions=[f"{h.topic}:{h.partition.partition}" for h in held],
            )
        places = sorted((h.topic, h.partition.partition) for h in held)
        return _Share(places, Claim(member, membership.generation))

    async def _from(
        self, poll: Poll, share: _Share, changed: asyncio.Event, wait_s: float
    ) -> list[QueuedMessage]:
        """What there is for the member; nothing where its share changes, or when time is over.

        The receive runs in the caller's own task: what it has leased when it is cancelled, it gives
        back itself.
        """
        try:
            async with asyncio.timeout(None) as scope:
                watching = asyncio.ensure_future(self._watch(poll, share, changed, scope))
                try:
                    return await self._received(poll, share, wait_s)
                finally:
                    watching.cancel()
        except TimeoutError:
            return []

    async def _watch(
        self, poll: Poll, share: _Share, changed: asyncio.Event, scope: asyncio.Timeout
    ) -> None:
        """End the scope once the member's share is another one; it is alive until then."""
        with suppress(GoQueueError):  # who polls will look, and learn it
            while self._share(poll).places == share.places:
                session_ms = self._tell(poll)
                with suppress(TimeoutError):
                    async with asyncio.timeout(session_ms / 1000 / HEARTBEATS_A_SESSION):
                        await changed.wait()
                changed.clear()
        scope.reschedule(asyncio.get_running_loop().time())

    async def _received(self, poll: Poll, share: _Share, wait_s: float) -> list[QueuedMessage]:
        if not share.places:
            await asyncio.sleep(wait_s)
            return []
        return await self._receive(
            poll.group.name,
            (),
            claim=share.claim,
            limit=poll.limit,
            wait_s=wait_s,
            visibility_ms=None,
            places=share.places,
        )

    def _tell(self, poll: Poll) -> int:
        """The member is alive; its session timeout."""
        known = self._members.membership_of(poll.group, poll.member).members[poll.member]
        self._signs.tell_soon(poll.group.id, poll.member, known.session_timeout_ms)
        return known.session_timeout_ms
