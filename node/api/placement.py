"""What the HTTP front asks of the node about growing, shrinking and moving.

`Placement`. Times are log time in Unix milliseconds. Every
method may raise a `GoQueueError`, which the front renders as it is; nothing has changed then.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast

from goqueue.wire.errors import UnknownTopic
from node.api.rules.rule import admins, everywhere, scoped, topic
from node.api.rules.scope import Scope

Nodes = tuple[str, ...]
"""Brokers that hold a partition, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class WantedMove:
    """One partition of a plan that somebody made: it is refused where `before` is given and is
    not what holds it now."""

    topic: str
    partition: int
    after: Nodes
    before: Nodes = ()


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One partition of a plan; `size_bytes` is that of one replica, None where nobody tells."""

    topic: str
    partition: int
    before: Nodes
    after: Nodes
    size_bytes: int | None = None

    @property
    def new_replicas(self) -> int:
        """How many brokers get a copy."""
        return len(set(self.after) - set(self.before))

    @property
    def copied_bytes(self) -> int | None:
        """What is sent; nothing where only the order of replicas changes."""
        if not self.new_replicas:
            return 0
        return None if self.size_bytes is None else self.size_bytes * self.new_replicas


@dataclass(frozen=True, slots=True)
class PlanView:
    """What would be done. `is_whole`: nothing is left for a further plan."""

    moves: Sequence[PlannedMove]
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class MoveView:
    """One partition of a reassignment. `bytes_left` is None where nobody tells; `waiting` says for
    what it waits, if for anything."""

    topic: str
    partition: int
    before: Nodes
    after: Nodes
    state: str  # moving | arrived | returning | returned | overtaken | deleted
    waiting: str = ""
    bytes_left: int | None = None
    rate_bytes_s: int = 0


@dataclass(frozen=True, slots=True)
class ReassignmentView:
    """A plan that is carried out, or was; `ended_ms` is 0 while it runs."""

    id: int
    state: str  # running | cancelling | done | cancelled
    cause: str  # reassign | drain | rebalance | replication_factor | leaders
    brokers: Sequence[str]
    throttle_bytes_s: int
    started_ms: int
    ended_ms: int
    total: int
    left: int
    bytes_left: int | None = None
    """Of the partitions that are being copied now."""
    rate_bytes_s: int = 0
    waiting: Sequence[str] = ()
    """What partitions wait for, each with its name; some of them, where there are many."""
    moves: Sequence[MoveView] = ()
    """Given where one reassignment is asked for."""

    @property
    def progress(self) -> float:
        """From 0 to 1."""
        return 1.0 if not self.total else (self.total - self.left) / self.total


@dataclass(frozen=True, slots=True)
class DrainView:
    """How far a drain is. `problem` says why it can't go on, `waiting` what its partitions wait
    for, if anything."""

    started_ms: int
    replicas_at_start: int
    replicas_left: int
    throttle_bytes_s: int = 0
    problem: str = ""
    waiting: Sequence[str] = ()
    bytes_left: int | None = None
    rate_bytes_s: int = 0


@dataclass(frozen=True, slots=True)
class BrokerView:
    """A registered broker. `replicas` are those that it should have, `held` those that it should
    have or still has, `leaders` the partitions that it leads."""

    id: str
    state: str  # active | draining | drained
    zone: str
    incarnation: int
    url: str
    peer_address: str
    status: str  # alive | dead | wiped
    replicas: int
    leaders: int
    held: int
    drain: DrainView | None = None


@dataclass(frozen=True, slots=True)
class MovingView:
    """A partition that is on its way: `before` take part in it now, `after` should."""

    partition: int
    before: Nodes
    after: Nodes
    waiting: str = ""
    bytes_left: int | None = None


@dataclass(frozen=True, slots=True)
class ScalingView:
    """A topic's size, and which of its partitions are on their way. `unplanned` have another
    number of replicas than they should, and nothing moves there yet."""

    topic: str
    partitions: int
    replication_factor: int
    moving: Sequence[MovingView]
    unplanned: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class GrownView:
    """A topic before and after partitions were added."""

    topic: str
    before: int
    partitions: int


def _grown(scope: Scope, method: Any) -> Any:
    async def checked(topic: str, count: int, *rest: Any) -> GrownView:
        scope.principal.require(topic)
        with suppress(UnknownTopic):  # the broker looks further, and says so
            more = count - scope.broker.topics.partition_count(topic)
            scope.broker.shares.partitions(scope.principal.prefixes, more)
        return cast(GrownView, await method(topic, count, *rest))

    return checked


class Placement(Protocol):
    """Brokers, and which of them hold what, from any node."""

    @scoped(_grown)
    async def add_partitions(
        self, topic: str, count: int, assignments: Sequence[Sequence[str]]
    ) -> GrownView:
        """Make it `count` partitions in all, and answer once the new ones are led. `assignments`
        are the brokers of each new one in turn; none are chosen ones. The present number changes
        nothing. Raises `UnknownTopic`, BadConfig, TooFewBrokers."""
        ...

    @scoped(topic)
    async def scaling(self, topic: str) -> ScalingView:
        """Raises `UnknownTopic`."""
        ...

    @scoped(admins)
    async def plan_moves(
        self, moves: Sequence[WantedMove], *, throttle_bytes_s: int = 0
    ) -> PlanView:
        """What `reassign` would do. Raises what it would raise."""
        ...

    @scoped(admins)
    async def reassign(
        self, moves: Sequence[WantedMove], *, throttle_bytes_s: int = 0
    ) -> ReassignmentView:
        """Move all of these, or none. Raises `UnknownTopic`, `UnknownPartition`, BadConfig with
        every problem, Overtaken where `before` is not so, Busy."""
        ...

    @scoped(admins)
    async def plan_rebalance(self, *, leaders_only: bool, limit: int) -> PlanView:
        """What `rebalance` would do; empty where all is even."""
        ...

    @scoped(admins)
    async def rebalance(
        self, *, leaders_only: bool, limit: int, throttle_bytes_s: int
    ) -> ReassignmentView | None:
        """Spread replicas and leaders over the brokers; None where nothing is to be done. `limit`
        bounds the partitions; the rest is for a further call."""
        ...

    @scoped(everywhere)
    async def reassignments(self, *, running_only: bool) -> list[ReassignmentView]:
        """Newest first."""
        ...

    @scoped(everywhere)
    async def reassignment(self, id: int) -> ReassignmentView:
        """Raises UnknownReassignment."""
        ...

    @scoped(admins)
    async def cancel_reassignment(self, id: int) -> ReassignmentView:
        """What has not arrived goes back. One that has ended stays as it is. Raises
        UnknownReassignment; Conflict for those that would be planned again."""
        ...

    @scoped(everywhere)
    async def brokers(self) -> list[BrokerView]:
        """By name."""
        ...

    @scoped(everywhere)
    async def broker(self, id: str) -> BrokerView:
        """Raises UnknownBroker."""
        ...

    @scoped(admins)
    async def plan_drain(self, id: str) -> PlanView:
        """What `drain` would move. Raises what it would raise."""
        ...

    @scoped(admins)
    async def drain(self, id: str, *, throttle_bytes_s: int = 0) -> BrokerView:
        """Begin to take all replicas off a broker; it gets no more. Raises UnknownBroker,
        TooFewBrokers."""
        ...

    @scoped(admins)
    async def undrain(self, id: str) -> BrokerView:
        """It takes replicas again, and what was on its way off comes back. Raises UnknownBroker."""
        ...

    @scoped(admins)
    async def remove_broker(self, id: str) -> None:
        """Forget a drained broker; its data directory is not let in again. Raises UnknownBroker,
        BrokerNotEmpty."""
        ...
