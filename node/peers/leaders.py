"""Asking the leaders of many partitions, each once for all of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from goqueue.wire.types import GroupId, NodeId

PAUSE_S = 0.1

Ask = Callable[[NodeId, list[GroupId]], Awaitable[Iterable[GroupId]]]
"""Asks one node for its partitions; those of them that it has answered as their leader."""


class Known(Protocol):
    """What this node knows of who leads; `node.replicas.topology.Topology` is one."""

    def leader(self, group: GroupId) -> NodeId | None: ...

    def learn(self, group: GroupId, leader: NodeId | None, asked: NodeId) -> None: ...


async def ask_leaders(
    known: Known, partitions: Iterable[GroupId], ask: Ask, rounds: int
) -> set[GroupId]:
    """Ask each leader, and again those of what is not answered, with a pause before each further
    round; what is left. Where this node can only guess who leads, one voter after the other is
    asked in each round, and who has answered is remembered."""
    wanted = set(partitions)
    for attempt in range(rounds):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        asked: set[tuple[NodeId, GroupId]] = set()
        while by_leader := _not_asked(known, wanted, asked):
            answers = await asyncio.gather(*map(ask, by_leader, by_leader.values()))
            for (node, groups), answered in zip(by_leader.items(), answers, strict=True):
                told = set(answered)
                wanted -= told
                for group in groups:
                    asked.add((node, group))
                    known.learn(group, node if group in told else None, node)
        if not wanted:
            break
    return wanted


def _not_asked(
    known: Known, wanted: Iterable[GroupId], asked: set[tuple[NodeId, GroupId]]
) -> dict[NodeId, list[GroupId]]:
    """By leader, where it was not asked in this round."""
    by_leader: dict[NodeId, list[GroupId]] = {}
    for group in sorted(wanted):
        leader = known.leader(group)
        if leader is not None and (leader, group) not in asked:
            by_leader.setdefault(leader, []).append(group)
    return by_leader
