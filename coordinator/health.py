"""Who is up, who is down and who was wiped, from what is known of each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from goqueue.wire.types import Incarnation, NodeId


class Standing(Enum):
    """A broker as the cluster sees it."""

    UP = "up"
    DOWN = "down"
    WIPED = "wiped"
    """There, with another data directory than the cluster knows."""


@dataclass(frozen=True, slots=True)
class Health:
    """All brokers by name, and whether those that are up are a majority of the voters."""

    brokers: dict[NodeId, Standing]
    has_quorum: bool

    def problems(self) -> list[str]:
        """One line a broker that is not up."""
        return [
            f"{node} is {standing.value}"
            for node, standing in self.brokers.items()
            if standing is not Standing.UP
        ]


def standing(known: Incarnation | None, present: Incarnation | None) -> Standing:
    """One broker: `known` to the cluster, `present` as it tells now; None where there is none."""
    if present is None:
        return Standing.DOWN
    return Standing.UP if known is None or known == present else Standing.WIPED


def cluster_health(
    known: Mapping[NodeId, Incarnation | None],
    present: Mapping[NodeId, Incarnation],
    voters: Iterable[NodeId],
) -> Health:
    """`known`: all brokers that there should be; `present`: those that are reached, and oneself."""
    brokers = {node: standing(known[node], present.get(node)) for node in sorted(known)}
    all_voters = list(voters)
    up = sum(brokers.get(node) is Standing.UP for node in all_voters)
    return Health(brokers, 2 * up > len(all_voters))
