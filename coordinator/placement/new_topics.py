"""Where the replicas of a new topic go, and who leads which: balanced, spread by zone.

Deterministic: the same brokers and loads give the same placement, in whatever order they come.
Replicas of a topic differ by at most one between brokers, and so do its leaders, where zones leave
that choice (one zone, or zones of one size); a spread over zones comes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator.errors import BadConfig, TooFewBrokers
from coordinator.topics.settings import REPLICAS_MAX
from goqueue.wire.types import NodeId


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that may hold replicas, with what it holds already in all topics."""

    node: NodeId
    zone: str = ""
    replicas: int = 0
    leaders: int = 0


def place(
    candidates: Sequence[Candidate], partitions: int, replication_factor: int
) -> list[list[NodeId]]:
    """For each partition its replicas, the one that should lead first.

    Raises TooFewBrokers where there are fewer candidates than replicas.
    """
    if len(candidates) < replication_factor:
        raise TooFewBrokers(
            f"replication factor {replication_factor} with {len(candidates)} brokers",
            replication_factor=replication_factor,
            brokers=len(candidates),
        )
    brokers = sorted(candidates, key=lambda broker: broker.node)
    replicas = _choose_replicas(brokers, partitions, replication_factor)
    leaders = _choose_leaders(brokers, replicas)
    return [
        [leader, *(node for node in nodes if node != leader)]
        for leader, nodes in zip(leaders, replicas, strict=True)
    ]


def _choose_replicas(
    brokers: Sequence[Candidate], partitions: int, replication_factor: int
) -> list[list[NodeId]]:
    """Each replica goes to the least used zone, there to the broker with the fewest replicas."""
    here = {broker.node: 0 for broker in brokers}
    placed: list[list[NodeId]] = []
    for _ in range(partitions):
        chosen: list[NodeId] = []
        zones: dict[str, int] = {}
        for _ in range(replication_factor):
            broker = min(
                (broker for broker in brokers if broker.node not in chosen),
                key=lambda broker: (
                    zones.get(broker.zone, 0),
                    here[broker.node],
                    broker.replicas + here[broker.node],
                    broker.node,
                ),
            )
            chosen.append(broker.node)
            here[broker.node] += 1
            zones[broker.zone] = zones.get(broker.zone, 0) + 1
        placed.append(chosen)
    return placed


def _choose_leaders(
    brokers: Sequence[Candidate], replicas: Sequence[Sequence[NodeId]]
) -> list[NodeId]:
    """Greedily the one that leads least, then moved along chains until none can be moved."""
    before = {broker.node: broker.leaders for broker in brokers}
    led = dict.fromkeys(before, 0)
    leaders: list[NodeId] = []
    for nodes in replicas:
        leader = min(nodes, key=lambda node: (led[node], led[node] + before[node], node))
        led[leader] += 1
        leaders.append(leader)
    while (chain := _chain(led, leaders, replicas)) is not None:
        for partition, to in chain:
            led[leaders[partition]] -= 1
            led[to] += 1
            leaders[partition] = to
    return leaders


def _chain(
    led: Mapping[NodeId, int], leaders: Sequence[NodeId], replicas: Sequence[Sequence[NodeId]]
) -> list[tuple[int, NodeId]] | None:
    """Moves of leadership from a broker that leads two more than another, to that other one."""
    for start in sorted(led, key=lambda node: (-led[node], node)):
        came: dict[NodeId, tuple[NodeId, int] | None] = {start: None}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            if led[start] - led[node] >= 2:
                return _walk_back(came, node)
            for partition, leader in enumerate(leaders):
                if leader != node:
                    continue
                for other in replicas[partition]:
                    if other not in came:
                        came[other] = (node, partition)
                        queue.append(other)
    return None


def _walk_back(
    came: Mapping[NodeId, tuple[NodeId, int] | None], node: NodeId
) -> list[tuple[int, NodeId]]:
    chain: list[tuple[int, NodeId]] = []
    while (step := came[node]) is not None:
        chain.append((step[1], node))
        node = step[0]
    return chain


def check_factor(factor: int, takers: int) -> None:
    """Raises BadConfig, TooFewBrokers."""
    if not 1 <= factor <= REPLICAS_MAX:
        raise BadConfig([f"replication_factor: {factor} is out of range, 1 to {REPLICAS_MAX}"])
    if factor > takers:
        raise TooFewBrokers(
            f"replication factor {factor} with {takers} brokers",
            replication_factor=factor,
            brokers=takers,
        )
