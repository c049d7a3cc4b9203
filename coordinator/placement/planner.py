"""Which replicas should move where: plans only, the same from the same picture. Nothing is changed.

A plan moves few replicas, keeps those of a partition spread over zones before all else, then gives
no broker more than its share. Only brokers that take replicas get any, and no plan has more rows
than one command may have: what is left is planned again when those are under way.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.commands.members import Partition
from coordinator.commands.placement import ROWS_MAX, Row
from coordinator.errors import TooFewBrokers
from goqueue.wire.types import NodeId

CANDIDATES_MAX = 512
"""Partitions looked at for one move; more would not make the plan better by much."""
LEADERS_OUT_OF_BALANCE = 2
"""Leaderships by which brokers may differ before any is moved for that alone."""

Nodes = tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A broker as planners see it."""

    zone: str = ""
    takes: bool = True


@dataclass(frozen=True, slots=True)
class Picture:
    """Where replicas should be now, the preferred leader first, and the replication factor of each
    topic, by the index in its id."""

    sites: Mapping[NodeId, Site]
    desired: Mapping[Partition, Nodes]
    factors: Mapping[int, int] = field(default_factory=dict[int, int])


def plan_drain(
    picture: Picture, leaving: Collection[NodeId], rows_max: int = ROWS_MAX
) -> list[Row]:
    """Take the replicas off these brokers. Raises TooFewBrokers."""
    plan = _Plan(picture, shunned=leaving)
    for partition in sorted(picture.desired):
        for node in picture.desired[partition]:
            if node in leaving:
                plan.replace(partition, node)
        if len(plan.changed) >= rows_max:
            break
    plan.even_out_new()
    plan.lead_evenly(plan.changed)
    return plan.rows(rows_max)


def plan_factor(picture: Picture, rows_max: int = ROWS_MAX) -> list[Row]:
    """Give each partition as many replicas as its topic's factor says. Raises TooFewBrokers."""
    plan = _Plan(picture)
    for partition in sorted(picture.desired):
        factor = picture.factors.get(partition[0], len(picture.desired[partition]))
        while len(plan.desired[partition]) < factor:
            plan.add(partition)
        while len(plan.desired[partition]) > factor:
            plan.shed(partition)
        if len(plan.changed) >= rows_max:
            break
    plan.even_out_new()
    plan.lead_evenly(plan.changed)
    return plan.rows(rows_max)


def plan_rebalance(picture: Picture, rows_max: int = ROWS_MAX) -> list[Row]:
    """Spread all replicas over zones and brokers, then leaderships over brokers: what `cluster
    rebalance` does, and what brings replicas to a broker that was added. `rows_max` is no less
    than the number of brokers: what balances as a whole is planned as a whole."""
    plan = _Plan(picture)
    plan.spread_zones(rows_max)
    plan.even_out(rows_max)
    plan.lead_evenly(plan.desired, rows_max)
    return plan.rows(rows_max)


def plan_leaders(picture: Picture, rows_max: int = ROWS_MAX) -> list[Row]:
    """Other preferred leaders among the same replicas, where brokers differ by too much."""
    plan = _Plan(picture)
    led = [plan.led[node] for node in plan.takers]
    if led and max(led) - min(led) >= LEADERS_OUT_OF_BALANCE:
        plan.lead_evenly(plan.desired, rows_max)
    return plan.rows(rows_max)


class _Plan:
    """A picture that is being changed. Order never depends on how its mappings are ordered."""

    def __init__(self, picture: Picture, shunned: Collection[NodeId] = ()) -> None:
        self._before = picture.desired
        self._factors = picture.factors
        self._zone = {node: site.zone for node, site in picture.sites.items()}
        self.takers = sorted(
            node for node, site in picture.sites.items() if site.takes and node not in shunned
        )
        self.desired: dict[Partition, Nodes] = {
            p: picture.desired[p] for p in sorted(picture.desired)
        }
        self.changed: dict[Partition, None] = {}
        self._has_moved = False
        self._new: dict[tuple[Partition, NodeId], None] = {}
        """Replicas that this plan has placed: to place them elsewhere instead moves no more."""
        self.load: Counter[NodeId] = Counter(dict.fromkeys(self._zone, 0))
        self.led: Counter[NodeId] = Counter(dict.fromkeys(self._zone, 0))
        self._of_topic: Counter[tuple[NodeId, int]] = Counter()
        self._on: dict[NodeId, dict[Partition, None]] = {node: {} for node in self._zone}
        for partition, nodes in self.desired.items():
            self._count(partition, nodes, 1)

    def rows(self, rows_max: int) -> list[Row]:
        """What is another than it was, at most so many."""
        changed = [
            partition
            for partition in sorted(self.changed)
            if self.desired[partition] != self._before[partition] and self._is_whole(partition)
        ]
        return [
            Row(*partition, list(self._before[partition]), list(self.desired[partition]))
            for partition in changed[:rows_max]
        ]

    def _is_whole(self, partition: Partition) -> bool:
        """Whether it has as many replicas as it should: others wait for their own plan."""
        count = len(self.desired[partition])
        return self._factors.get(partition[0], count) == count

    # -- single replicas

    def replace(self, partition: Partition, node: NodeId) -> None:
        """Put a replica of one broker on the best other one. Raises TooFewBrokers."""
        to = self._best(partition, [one for one in self.desired[partition] if one != node])
        self._move(partition, node, to)

    def add(self, partition: Partition) -> None:
        """One replica more. Raises TooFewBrokers."""
        to = self._best(partition, self.desired[partition])
        self._put(partition, (*self.desired[partition], to))
        self._new[partition, to] = None

    def shed(self, partition: Partition) -> None:
        """One replica less: of the zone that has most, there of the fullest broker; not the
        preferred leader's."""
        nodes = self.desired[partition]
        zones = self._zones(nodes)
        worst = max(
            nodes[1:],
            key=lambda node: (
                node not in self.takers,
                zones[self._zone_of(node)],
                self.load[node],
                node,
            ),
        )
        self._new.pop((partition, worst), None)
        self._put(partition, tuple(node for node in nodes if node != worst))

    def _best(self, partition: Partition, staying: Collection[NodeId]) -> NodeId:
        zones = self._zones(staying)
        taken = self.desired[partition]
        free = [node for node in self.takers if node not in taken]
        if not free:
            raise TooFewBrokers(
                f"{len(self.takers)} brokers may take replicas: too few for {len(taken)} of one "
                "partition",
                replication_factor=len(taken),
                brokers=len(self.takers),
            )
        return min(
            free,
            key=lambda node: (
                zones[self._zone_of(node)],
                self.load[node],
                self._of_topic[node, partition[0]],
                node,
            ),
        )

    def _move(self, partition: Partition, node: NodeId, to: NodeId) -> None:
        nodes = self.desired[partition]
        self._put(partition, tuple(to if one == node else one for one in nodes))
        self._new.pop((partition, node), None)
        if to not in self._before[partition]:
            self._new[partition, to] = None

    def _put(self, partition: Partition, nodes: Nodes) -> None:
        self._count(partition, self.desired[partition], -1)
        self.desired[partition] = nodes
        self._count(partition, nodes, 1)
        self.changed[partition] = None

    def _count(self, partition: Partition, nodes: Nodes, by: int) -> None:
        self.led[nodes[0]] += by
        for node in nodes:
            self.load[node] += by
            self._of_topic[node, partition[0]] += by
            if by > 0:
                self._on.setdefault(node, {})[partition] = None
            else:
                del self._on[node][partition]

    # -- zones

    def _zone_of(self, node: NodeId) -> str:
        return self._zone.get(node, "")

    def _zones(self, nodes: Collection[NodeId]) -> Counter[str]:
        return Counter(map(self._zone_of, nodes))

    def spread_zones(self, rows_max: int) -> None:
        """Where a zone has two replicas more than another could have, one goes there."""
        for partition in list(self.desired):
            while len(self.changed) < rows_max and (move := self._unspread(partition)):
                self._move(partition, *move)

    def _unspread(self, partition: Partition) -> tuple[NodeId, NodeId] | None:
        nodes = self.desired[partition]
        zones = self._zones(nodes)
        to = [node for node in self.takers if node not in nodes]
        if not to:
            return None
        best = min(to, key=lambda n: (zones[self._zone_of(n)], self.load[n], n))
        crowded = max(nodes, key=lambda n: (zones[self._zone_of(n)], self.load[n], n))
        if zones[self._zone_of(crowded)] - zones[self._zone_of(best)] < 2:
            return None
        return crowded, best

    def _may_move(self, partition: Partition, node: NodeId, to: NodeId) -> bool:
        nodes = self.desired[partition]
        if to in nodes:
            return False
        here, there = self._zone_of(node), self._zone_of(to)
        if here == there:
            return True
        zones = self._zones(nodes)
        return zones[there] < zones[here]

    # -- shares

    def even_out(self, rows_max: int) -> None:
        """Move replicas along chains of brokers until none has two more than another could."""
        self._even_out(rows_max, only_new=False)

    def even_out_new(self) -> None:
        """The same with nothing but replicas that this plan has placed: it moves no more."""
        self._even_out(len(self._before) + 1, only_new=True)

    def _even_out(self, rows_max: int, *, only_new: bool) -> None:
        blocked: set[NodeId] = set()
        while len(self.changed) < rows_max:
            chain = self._chain(blocked, only_new=only_new)
            if chain is not None:
                if not self._fits(chain, rows_max):
                    return
                for partition, node, to in chain:
                    self._move(partition, node, to)
                self._has_moved = True
            elif self._has_moved and blocked:
                self._has_moved = False
                blocked.clear()  # what was moved since may have opened a way
            else:
                return

    def _fits(self, chain: Sequence[tuple[Partition, NodeId, NodeId]], rows_max: int) -> bool:
        """Whether the plan has room for it: half of a chain brings no balance, and the next plan
        might take it back."""
        return len(self.changed.keys() | {partition for partition, _, _ in chain}) <= rows_max

    def _chain(
        self, blocked: set[NodeId], *, only_new: bool
    ) -> list[tuple[Partition, NodeId, NodeId]] | None:
        """Moves that bring one replica from a broker to one that has at least two fewer; brokers
        from which there are none are `blocked`."""
        least = min((self.load[node] for node in self.takers), default=0)
        for start in sorted(self.takers, key=lambda node: (-self.load[node], node)):
            if self.load[start] - least < 2:
                return None
            if start not in blocked:
                chain = self._chain_from(start, only_new=only_new)
                if chain is not None:
                    return chain
                blocked.add(start)
        return None

    def _chain_from(
        self, start: NodeId, *, only_new: bool
    ) -> list[tuple[Partition, NodeId, NodeId]] | None:
        came: dict[NodeId, tuple[NodeId, Partition] | None] = {start: None}
        queue = deque([start])
        order = sorted(self.takers, key=lambda node: (self.load[node], node))
        while queue:
            node = queue.popleft()
            used = _used(came, node)
            for to in order:
                if to in came:
                    continue
                partition = self._pick(node, to, used, only_new=only_new)
                if partition is None:
                    continue
                came[to] = (node, partition)
                if self.load[start] - self.load[to] >= 2:
                    return _walk_back(came, to)
                queue.append(to)
        return None

    def _pick(
        self, node: NodeId, to: NodeId, used: Collection[Partition], *, only_new: bool
    ) -> Partition | None:
        """The partition whose topic gains most in balance by the move."""
        best: tuple[int, int] | None = None
        found: Partition | None = None
        for looked, partition in enumerate(self._on[node]):
            if looked >= CANDIDATES_MAX and found is not None:
                break
            if partition in used or not self._may_move(partition, node, to):
                continue
            is_new = (partition, node) in self._new
            if only_new and not is_new:
                continue
            topic = partition[0]
            gain = self._of_topic[node, topic] - self._of_topic[to, topic]
            score = (int(is_new), gain)
            if best is None or score > best:
                best, found = score, partition
        return found

    # -- leaders

    def lead_evenly(self, partitions: Collection[Partition], moves_max: int = ROWS_MAX) -> None:
        """Other preferred leaders among the same replicas of these partitions, until none of the
        brokers leads two more than another could."""
        by_leader: dict[NodeId, dict[Partition, None]] = {}
        for partition in sorted(partitions):
            by_leader.setdefault(self.desired[partition][0], {})[partition] = None
        while len(self.changed) < moves_max or partitions is self.changed:
            chain = self._leader_chain(by_leader)
            if chain is None or not (partitions is self.changed or self._fits(chain, moves_max)):
                return
            for partition, node, to in chain:
                del by_leader[node][partition]
                by_leader.setdefault(to, {})[partition] = None
                rest = [one for one in self.desired[partition] if one != to]
                self._put(partition, (to, *rest))

    def _leader_chain(
        self, by_leader: Mapping[NodeId, Mapping[Partition, None]]
    ) -> list[tuple[Partition, NodeId, NodeId]] | None:
        takers = set(self.takers)
        for start in sorted(by_leader, key=lambda node: (-self.led[node], node)):
            came: dict[NodeId, tuple[NodeId, Partition] | None] = {start: None}
            queue = deque([start])
            while queue:
                node = queue.popleft()
                for partition in by_leader.get(node, ()):
                    for to in self.desired[partition][1:]:
                        if to in came or to not in takers:
                            continue
                        came[to] = (node, partition)
                        if self.led[start] - self.led[to] >= 2:
                            return _walk_back(came, to)
                        queue.append(to)
        return None


def _used(came: Mapping[NodeId, tuple[NodeId, Partition] | None], node: NodeId) -> set[Partition]:
    return {partition for partition, _, _ in _walk_back(came, node)}


def _walk_back(
    came: Mapping[NodeId, tuple[NodeId, Partition] | None], node: NodeId
) -> list[tuple[Partition, NodeId, NodeId]]:
    """From the end of the chain to its start: each broker gives after it got nothing yet."""
    chain: list[tuple[Partition, NodeId, NodeId]] = []
    while (step := came[node]) is not None:
        chain.append((step[1], step[0], node))
        node = step[0]
    return chain
