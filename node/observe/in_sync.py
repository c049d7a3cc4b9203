"""Who is not in sync, of the partitions led here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator.cluster.state import ClusterState
from coordinator.groups.holdings import short
from goqueue.wire.types import PartitionId
from node.partition.host import PartitionHost
from node.runtime.looks import Looks


class Kept(Protocol):
    """The replicas of this node; `node.replicas.local.Replicas` is one."""

    def find(self, partition_id: PartitionId) -> PartitionHost | None: ...

    def looks(self) -> Looks[PartitionHost]: ...


class InSync:
    """Loop thread only."""

    def __init__(self, replicas: Kept, state: Callable[[], ClusterState]) -> None:
        self._replicas = replicas
        self._state = state
        self._looks = replicas.looks()
        self._short: dict[PartitionId, tuple[bool, set[str]]] = {}
        """What lacks a replica in sync: whether that is a voter, and whose."""

    def look(self) -> tuple[int, Counter[str]]:
        """How many partitions led here lack replicas in sync, and how many of them each node's. One
        that rests with all is looked at again when it is roused, or is to have others."""
        looked_at = self._looks.take(self._state().applied_index)
        if self._short:
            for partition_id in self._short.keys() - {host.id for host in looked_at}:
                host = self._replicas.find(partition_id)
                if host is not None:
                    looked_at.append(host)
        self._short = {host.id: found for host in looked_at if (found := self._found(host))}
        lagging = Counter[str]()
        for _lacks_voters, nodes in self._short.values():
            lagging.update(nodes)
        return sum(lacks_voters for lacks_voters, _nodes in self._short.values()), lagging

    def is_under_replicated(self, host: PartitionHost) -> bool:
        """Whether fewer voters are in sync than there are, or than are wanted: whoever is still
        learning does not count."""
        return self._lacks_voters(host, len(host.in_sync()))

    # private

    def _found(self, host: PartitionHost) -> tuple[bool, set[str]] | None:
        if not host.is_leader or (_is_whole(host) and self._has_all_wanted(host)):
            return None
        in_sync = host.in_sync()
        found = self._lacks_voters(host, len(in_sync)), self._lacking(host, in_sync)
        return found if any(found) else None

    def _lacking(self, host: PartitionHost, in_sync: Sequence[str]) -> set[str]:
        """Nodes that a partition led here lacks: they vote there or are to, without having been
        chosen for it by a move that is on its way."""
        wanted: set[str] = {voter.node for voter in host.voters}
        layout = self._state().layout
        if layout.reassignments.of(short(host.id)) is None:
            placement = layout.placement(host.id)
            wanted.update(() if placement is None else placement.nodes)
        return wanted.difference(in_sync) if len(wanted) > 1 else set()

    def _lacks_voters(self, host: PartitionHost, in_sync: int) -> bool:
        placement = self._state().placement(host.id)
        wanted = 0 if placement is None else len(placement.replicas)
        return in_sync < max(len(host.voters), wanted)

    def _has_all_wanted(self, host: PartitionHost) -> bool:
        """Whether its voters are the replicas that its placement names."""
        placement = self._state().placement(host.id)
        return placement is None or set(host.voters) == set(placement.replicas)


def _is_whole(host: PartitionHost) -> bool:
    """Whether its group rests with all its replicas, which then hold the same."""
    return host.rests and all(peer.connected for peer in host.raft_group.peers.values())
