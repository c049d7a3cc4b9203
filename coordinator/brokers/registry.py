"""The brokers of the cluster: which may hold replicas, and which data directory each has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.commands.codec import BrokerRegistered, RegisterBroker
from coordinator.commands.placement import FinishLevel, LevelFinished
from coordinator.errors import (
    BrokerGone,
    BrokerWiped,
    ClusterFull,
    LevelNotSpoken,
    LevelRefused,
    UnknownBroker,
)
from goqueue.wire.errors import BadName
from goqueue.wire.ids import is_name
from goqueue.wire.types import Incarnation, NodeId, Voter
from log.levels import FIRST, Spoken, outdated

BROKERS_MAX = 256
FORMER_MAX = 16
"""Data directories of a broker that are remembered as lost."""
GONE_MAX = 256
"""Removed brokers that are not let in again; the oldest are forgotten."""
ACTIVE, DRAINING, DRAINED = "active", "draining", "drained"


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered node, with the data directory it registered from."""

    node: NodeId
    incarnation: Incarnation
    peer_address: str
    http_url: str
    zone: str
    version: str
    labels: dict[str, str]
    joined_at_ms: int
    state: str = ACTIVE
    """`active`; `draining`: its replicas move to others; `drained`: it has none and gets none."""
    former: tuple[Incarnation, ...] = ()
    """Its data directories that were lost, the newest last: none of them is let in again."""
    drain_ms: int = 0
    """Since when it is drained."""
    drain_replicas: int = 0
    """How many replicas it had then."""
    drain_bytes_s: int = 0
    """What each of them may be sent a second; 0 leaves that to the nodes."""
    lowest_level: int = FIRST
    highest_level: int = FIRST
    """The feature levels that its version speaks."""

    @property
    def voter(self) -> Voter:
        return Voter(self.node, self.incarnation)

    @property
    def takes(self) -> bool:
        """Whether it may be given replicas."""
        return self.state == ACTIVE

    @property
    def spoken(self) -> Spoken:
        return Spoken(self.lowest_level, self.highest_level)


class Brokers:
    """By name; the data directories of those that were removed; and the feature level that all of
    them speak, and that is finished."""

    def __init__(
        self, brokers: Iterable[Broker] = (), gone: Iterable[Voter] = (), level: int = FIRST
    ) -> None:
        self.by_name = {broker.node: broker for broker in brokers}
        self.gone = dict.fromkeys(gone)
        self.level = level

    def named(self, node: str) -> Broker:
        """Raises UnknownBroker."""
        broker = self.by_name.get(NodeId(node))
        if broker is None:
            raise UnknownBroker(node[:64])
        return broker

    def register(self, time_ms: int, command: RegisterBroker) -> BrokerRegistered:
        """Raises BadName, BrokerWiped, BrokerGone, LevelRefused, ClusterFull."""
        if not is_name(command.node):
            raise BadName(f"bad broker name {command.node[:64]!r}", name=command.node[:64])
        node, incarnation = NodeId(command.node), Incarnation(command.incarnation)
        known = self.by_name.get(node)
        self._check(known, Voter(node, incarnation), replaces=command.replaces)
        spoken = Spoken(command.lowest_level, command.highest_level)
        if not spoken.speaks(self.level):
            raise LevelRefused(outdated(spoken, self.level, f"{node}'s version"), node=node)
        if known is None and len(self.by_name) >= BROKERS_MAX:
            raise ClusterFull(f"there are {BROKERS_MAX} brokers already")
        replaced = known is not None and known.incarnation != incarnation
        former = () if known is None else known.former
        if known is not None and replaced:
            former = (*former, known.incarnation)[-FORMER_MAX:]
        broker = Broker(
            node,
            incarnation,
            command.peer_address,
            command.http_url,
            command.zone,
            command.version,
            dict(command.labels),
            time_ms if known is None else known.joined_at_ms,
            ACTIVE if known is None else known.state,
            former,
            0 if known is None else known.drain_ms,
            0 if known is None else known.drain_replicas,
            0 if known is None else known.drain_bytes_s,
            command.lowest_level,
            command.highest_level,
        )
        self.by_name[node] = broker
        return BrokerRegistered(node, broker != known, replaced)

    def finish(self, command: FinishLevel) -> LevelFinished:
        """Raises LevelNotSpoken, naming every broker that does not speak the level."""
        before, level = self.level, command.level
        silent = sorted(one.node for one in self.by_name.values() if not one.spoken.speaks(level))
        if level > before and silent:
            raise LevelNotSpoken(level, {node: self.by_name[node].spoken for node in silent})
        self.level = max(before, level)
        return LevelFinished(self.level, before)

    def put(self, broker: Broker, **changes: object) -> Broker:
        """The broker with these changes, kept."""
        changed = dataclasses.replace(broker, **changes)  # type: ignore[arg-type]
        self.by_name[broker.node] = changed
        return changed

    def remove(self, broker: Broker) -> None:
        """Its data directory is not let in again, by any name it could register."""
        del self.by_name[broker.node]
        for incarnation in (*broker.former, broker.incarnation):
            self.gone[Voter(broker.node, incarnation)] = None
        while len(self.gone) > GONE_MAX:
            del self.gone[next(iter(self.gone))]

    def _check(self, known: Broker | None, told: Voter, *, replaces: bool) -> None:
        if told in self.gone:
            raise BrokerGone(told.node)
        if known is None or known.incarnation == told.incarnation:
            return
        if told.incarnation in known.former or not replaces:
            raise BrokerWiped(
                f"{told.node} is known with another data directory: it was wiped or replaced",
                node=told.node,
                known=f"{known.incarnation:016x}",
                told=f"{told.incarnation:016x}",
            )


def not_empty(broker: Broker, replicas: int) -> str:
    """Why a broker can't be removed yet."""
    if broker.state == ACTIVE:
        return f"{broker.node} is active (replicas: {replicas}): drain it first"
    if replicas:
        return f"{broker.node} is being drained (replicas left: {replicas})"
    return (
        f"{broker.node} is being drained (its vote in the cluster group, or a confirmation is left)"
    )
