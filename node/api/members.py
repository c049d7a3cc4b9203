"""What the HTTP front asks of the node about members of groups, their partitions, and how far each
group has come.

`Members` and `Positions`. Times are log time in Unix milliseconds. Every method
may raise a `GoQueueError`, which the front renders as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from node.api.auth.principal import OutOfScope
from node.api.claims import NOBODY, NOBODYS, Claim, Maker
from node.api.queue import QueuedMessage
from node.api.rules.groups import EVERY_GROUPS, in_topic, members
from node.api.rules.rule import admins, scoped
from node.api.rules.scope import Scope

Place = tuple[str, int]
"""(topic, partition)."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A member joins, or one that is known (`member`) changes its subscription.

    Timeouts of 0 are the group's. One that `lets_go` confirms revoked partitions itself; of the
    others it is waited until they have nothing in flight there. `settings` and `maker` are for a
    group that is created by this.
    """

    client_id: str
    topics: Sequence[str] = ()
    patterns: Sequence[str] = ()
    member: str = ""
    instance_id: str = ""
    host: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = 0
    lets_go: bool = False
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    maker: Maker = NOBODYS


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member is told: `assigned` is its own by now, `revoking` it is to let go of until
    `deadline_ms`. `revision` differs whenever anything else does."""

    group: str
    member: str
    generation: int
    assigned: Sequence[Place]
    revoking: Sequence[Place]
    deadline_ms: int
    revision: str
    leader: str
    members: Sequence[str]
    mode: str
    state: str  # empty | stable | rebalancing
    session_timeout_ms: int
    heartbeat_ms: int
    """How often to send heartbeats."""
    lets_go: bool = False
    """Whether it is the member itself that confirms what is revoked."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member. `silent_ms` is for how long it was not heard of, -1 where that is not known."""

    id: str
    client_id: str
    instance_id: str
    host: str
    topics: Sequence[str]
    patterns: Sequence[str]
    joined_ms: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    silent_ms: int
    assigned: Sequence[Place]
    revoking: Sequence[Place]


@dataclass(frozen=True, slots=True)
class MoveView:
    """A partition that changed hands in a rebalance; "" is nobody.

    See `coordinator.groups.rebalances`.
    """

    topic: str
    partition: int
    former: str
    member: str
    pause_ms: int
    in_flight: int
    fenced: bool


@dataclass(frozen=True, slots=True)
class RebalanceView:
    """One rebalance; `ended_ms` is 0 while it runs."""

    id: int
    cause: str
    members: Sequence[str]
    started_ms: int
    ended_ms: int
    moved: int
    moves: Sequence[MoveView]


@dataclass(frozen=True, slots=True)
class RebalanceTotalsView:
    """Counted since the group was created."""

    by_cause: Mapping[str, int]
    moved: int
    fenced: int
    pause_ms_sum: int
    pause_ms_max: int


@dataclass(frozen=True, slots=True)
class MembershipView:
    """A group's members and where its rebalances stand; `rebalances` oldest first, 100 at most."""

    group: str
    group_id: int
    generation: int
    state: str
    mode: str
    assignor: str
    leader: str
    topics: Sequence[str]
    """Those that anybody subscribes to, by name or pattern, and that exist."""
    members: Sequence[MemberView]
    rebalances: Sequence[RebalanceView]
    totals: RebalanceTotalsView
    created_ms: int


@dataclass(frozen=True, slots=True)
class LagView:
    """How far a group has come in one partition.

    `committed` is the offset below which all is settled; `lag` counts messages that are stored, due
    and not settled, `lag_ms` is for how long the oldest of them could have been delivered, 0 where
    there is none. `delayed` counts those not due yet. `owner` is "" where no member has it.
    """

    topic: str
    partition: int
    committed: int
    end: int
    lag: int
    lag_ms: int
    in_flight: int
    delayed: int
    dead: int
    owner: str
    generation: int


@dataclass(frozen=True, slots=True)
class ResetTo:
    """Where positions go: exactly one is given. `at` is earliest, latest; `duration_ms` is so long
    before now; `shift` is relative to the committed offset."""

    at: str | None = None
    offset: int | None = None
    time_ms: int | None = None
    duration_ms: int | None = None
    shift: int | None = None


@dataclass(frozen=True, slots=True)
class ResetView:
    """One partition's position before and after; `replayed` messages come again, `skipped` don't
    come any more (unsettled ones below the new position)."""

    topic: str
    partition: int
    before: int
    after: int
    replayed: int
    skipped: int


def _joined(scope: Scope, method: Any) -> Any:
    async def checked(group: str, request: JoinRequest, *, wait_s: float) -> Assignment:
        for topic in request.topics:
            scope.principal.require(topic)
        for pattern in request.patterns:
            scope.principal.require_pattern(pattern)
        maker = await scope.maker(group)
        await scope.require_group(group)
        if not request.member:
            groups = scope.principal.groups
            scope.broker.shares.member(groups, group, request.instance_id)
        request = replace(request, maker=maker)
        return cast(Assignment, await method(group, request, wait_s=wait_s))

    return checked


def _joined_for_all(_scope: Scope, method: Any) -> Any:
    async def made(group: str, request: JoinRequest, *, wait_s: float) -> Assignment:
        request = replace(request, maker=EVERY_GROUPS)
        return cast(Assignment, await method(group, request, wait_s=wait_s))

    return made


def _memberships(scope: Scope, method: Callable[[], Awaitable[list[MembershipView]]]) -> Any:
    async def seen() -> list[MembershipView]:
        found = []
        for view in await method():
            try:
                await scope.require_group(view.group)
            except OutOfScope:
                continue
            found.append(view)
        return found

    return seen


def _lag(scope: Scope, method: Any) -> Any:
    async def checked(group: str, topics: Sequence[str] | None = None) -> list[LagView]:
        for topic in topics or ():
            scope.principal.require(topic)
        known = await scope.judge(group)
        rows = cast(list[LagView], await method(group, topics))
        mine = [row for row in rows if scope.principal.covers(row.topic)]
        if len(mine) < len(rows) and (known is None or known.owner is None):
            raise scope.beyond(group)
        return mine

    return checked


def _polled(scope: Scope, method: Any) -> Any:
    """Receives from whatever the member has: all that members subscribe to, whoever owns the
    group."""

    async def checked(group: str, *rest: Any, **named: Any) -> list[QueuedMessage]:
        await scope.judge(group)
        scope.require_subscribed(group)
        return cast(list[QueuedMessage], await method(group, *rest, **named))

    return checked


def _committed(scope: Scope, method: Any) -> Any:
    async def checked(
        group: str, topic: str, offsets: Mapping[int, int], claim: Claim = NOBODY
    ) -> dict[int, int]:
        scope.principal.require(topic)
        claim = replace(claim, maker=await scope.maker(group))
        return cast(dict[int, int], await method(group, topic, offsets, claim))

    return checked


def _committed_for_all(_scope: Scope, method: Any) -> Any:
    async def made(
        group: str, topic: str, offsets: Mapping[int, int], claim: Claim = NOBODY
    ) -> dict[int, int]:
        claim = replace(claim, maker=EVERY_GROUPS)
        return cast(dict[int, int], await method(group, topic, offsets, claim))

    return made


class Members(Protocol):
    """Members of groups, from any node."""

    @scoped(_joined, admins=_joined_for_all)
    async def join(self, group: str, request: JoinRequest, *, wait_s: float) -> Assignment:
        """Join, and wait up to `wait_s` until the member has all it is to have for now.

        The group is created where there is none. Raises `UnknownTopic`, `UnknownMember` for a
        `member` that is not in the group, BadName, BadConfig with every problem.
        """
        ...

    @scoped(members)
    async def heartbeat(
        self,
        group: str,
        member: str,
        *,
        revision: str | None = None,
        wait_s: float = 0.0,
        let_go: Sequence[Place] = (),
    ) -> Assignment:
        """A sign of life. Waits up to `wait_s`, at most a third of the session, for anything else
        than `revision`; answers at once where there is.

        `let_go` are partitions that the member works on no longer. Raises `UnknownGroup`,
        `UnknownMember`: it was not heard of for too long, and must join again.
        """
        ...

    @scoped(members)
    async def leave(self, group: str, member: str) -> None:
        """Raises `UnknownGroup`, `UnknownMember`."""
        ...

    @scoped(members)
    async def membership(self, group: str) -> MembershipView:
        """Raises `UnknownGroup`."""
        ...

    @scoped(_memberships)
    async def memberships(self) -> list[MembershipView]:
        """Of all groups, by name."""
        ...

    @scoped(admins)
    def subscribed(self, group: str) -> tuple[Sequence[str], Sequence[str]]:
        """Topics and patterns that the group's members subscribe to, as far as this node knows;
        nothing for no such group. Called for every request of a member whose key has a scope."""
        ...


class Polls(Protocol):
    """Receiving as a member."""

    @scoped(_polled)
    async def poll(
        self, group: str, member: str, *, generation: int | None, limit: int, wait_s: float
    ) -> list[QueuedMessage]:
        """Receive from whatever the member has; a sign of life. What it has may change while it
        waits.

        Raises `UnknownGroup`, `UnknownMember`, `StaleGeneration` where all it has is newer than
        `generation`.
        """
        ...


class Positions(Protocol):
    """How far groups have come, and where they go on."""

    @scoped(_committed, admins=_committed_for_all)
    async def commit(
        self, group: str, topic: str, offsets: Mapping[int, int], claim: Claim = NOBODY
    ) -> dict[int, int]:
        """Settle all below each offset; the floors after it. Raises `StaleGeneration`."""
        ...

    @scoped(in_topic)
    async def seek(
        self,
        group: str,
        topic: str,
        partition: int | None,
        *,
        offset: int | None,
        time_ms: int | None,
        claim: Claim = NOBODY,
    ) -> dict[int, int]:
        """Replay (or skip): the group goes on at the offset or time; -1 is earliest, -2 the end.

        Raises `UnknownGroup`; `GroupActive` while the group has members, unless one of them or
        force claims it.
        """
        ...

    @scoped(in_topic)
    async def begin(self, group: str, topic: str, partition: int, *, offset: int) -> bool:
        """The group begins in the partition, and at this offset: -1 is earliest, -2 the end. False
        where it has begun there before: it stays where it is. Of several at the same time one is
        told True; none is where the answer to it was lost and another node was asked again.

        Raises `UnknownGroup`, `UnknownTopic`, `UnknownPartition`.
        """
        ...

    @scoped(_lag)
    async def lag(self, group: str, topics: Sequence[str] | None = None) -> list[LagView]:
        """Of these topics, or of all that the group has ever been in or subscribes to."""
        ...

    @scoped(in_topic)
    async def reset(
        self,
        group: str,
        topic: str,
        to: ResetTo,
        *,
        partitions: Sequence[int] | None,
        dry_run: bool,
        claim: Claim,
    ) -> list[ResetView]:
        """Set positions; with `dry_run` only tell what would be. Raises `GroupActive` while the
        group has members, unless one of them or force claims it; `StaleGeneration` where any of
        the partitions is not the claimant's. Nothing has happened then."""
        ...
