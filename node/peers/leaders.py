"""Asking the leaders of many partitions, each once for all of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from goqueue.wire.types import NodeId, PartitionId

PAUSE_S = 0.1

Ask = Callable[[NodeId, list[PartitionId]], Awaitable[Iterable[PartitionId]]]
"""Asks one node for its partitions; those of them that it has answered as their leader."""


class Known(Protocol):
    """What this node knows of who leads; `node.replicas.topology.Topology` is one."""

    def leader(self, partition_id: PartitionId) -> NodeId | None: ...

    def learn(self, partition_id: PartitionId, leader: NodeId | None, asked: NodeId) -> None: ...


async def ask_leaders(
    known: Known, partitions: Iterable[PartitionId], ask: Ask, rounds: int
) -> set[PartitionId]:
    """Ask each leader, and again those of what is not answered, with a pause before each further
    round; what is left. Where this node can only guess who leads, one voter after the other is
    asked in each round, and who has answered is remembered."""
    wanted = set(partitions)
    for attempt in range(rounds):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        asked: set[tuple[NodeId, PartitionId]] = set()
        while by_leader := _not_asked(known, wanted, asked):
            answers = await asyncio.gather(*map(ask, by_leader, by_leader.values()))
            for (node, partition_ids), answered in zip(by_leader.items(), answers, strict=True):
                told = set(answered)
                wanted -= told
                for partition_id in partition_ids:
                    asked.add((node, partition_id))
                    known.learn(partition_id, node if partition_id in told else None, node)
        if not wanted:
            break
    return wanted


def _not_asked(
    known: Known, wanted: Iterable[PartitionId], asked: set[tuple[NodeId, PartitionId]]
) -> dict[NodeId, list[PartitionId]]:
    """By leader, where it was not asked in this round."""
    by_leader: dict[NodeId, list[PartitionId]] = {}
    for partition_id in sorted(wanted):
        leader = known.leader(partition_id)
        if leader is not None and (leader, partition_id) not in asked:
            by_leader.setdefault(leader, []).append(partition_id)
    return by_leader
