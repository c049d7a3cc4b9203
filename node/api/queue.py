"""What the HTTP front asks of the node about the queue: groups, leases, dead letters, delays.

`QueueBroker` is the second half of `Broker`. Times are log time in Unix milliseconds. Every method
may raise a `GoQueueError`, which the front renders as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from goqueue.wire.batch import Headers
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import Offset


@dataclass(slots=True)
class QueuedMessage:
    """A message as the queue shows it: received (with a receipt), peeked, delayed or dead."""

    topic: str
    partition: int
    offset: Offset
    time_ms: int
    value: bytes
    key: bytes | None
    headers: Headers
    lane: int
    message_id: str | None = None
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    receipt: str = ""
    attempt: int = 0
    reason: str = ""
    """Why the attempt before failed; of a dead letter, why it died."""
    redrives: int = 0
    deadline_ms: int = 0
    """When the lease of a received message ends."""
    is_null: bool = False
    """The value is null, and empty here: in a compacted topic, it deletes the key."""


class Received(list[QueuedMessage]):
    """What a receive leased; `unanswered` are the partitions, as (topic, number), whose leaders'
    answers did not come, or who could not read all that was to be delivered. What they may have
    leased for it is given back soon, and what they can't read is set aside until it is mended."""

    def __init__(
        self,
        messages: Iterable[QueuedMessage] = (),
        unanswered: Iterable[tuple[str, int]] = (),
    ) -> None:
        super().__init__(messages)
        self.unanswered = list(unanswered)


@dataclass(frozen=True, slots=True)
class Maker:
    """For whom a group is made where there is none: it will belong to the prefix `owner`, with ""
    to every key of all groups, with None to nobody. The key was held against the group `judged`, 0
    for none: where another one has the name by then, it is `GroupTaken` (409)."""

    owner: str | None = None
    judged: int = 0


NOBODYS = Maker()


@dataclass(frozen=True, slots=True)
class Claim:
    """Who acts for a group: a member in a generation. Generation 0 is of those who are no members,
    -1 of those who act whoever owns the partitions. `maker` counts where a group is made."""

    member: str = ""
    generation: int = 0
    maker: Maker = NOBODYS


NOBODY = Claim()
FORCED = Claim(generation=-1)


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """One receipt and what is to become of it; `delay_ms` None means the group's backoff."""

    receipt: str
    action: str  # ack | nack | reject | extend | release
    reason: str = ""
    delay_ms: int | None = None
    to_back: bool = False
    visibility_ms: int = 0


@dataclass(slots=True)
class SettleView:
    """What became of one receipt.

    `outcome` is acked, requeued, dead, parked, halted, expired, extended or released; `floor` the
    group's committed offset in the partition after it, `advanced` whether this request moved it.
    """

    group: str
    topic: str
    partition: int
    offset: Offset
    outcome: str
    attempts: int
    visible_at_ms: int
    floor: Offset
    advanced: bool
    in_flight: int


@dataclass(frozen=True, slots=True)
class DeadFilter:
    """Which dead letters are meant: all conditions that are given must hold.

    `reason` is a substring; times are of death, `to_ms` exclusive; headers must be there with
    these values; `ids` are `topic:partition:offset`.
    """

    reason: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    key: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    ids: Sequence[str] = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A dead letter of a group: the message itself and why it died."""

    message: QueuedMessage
    group: str
    died_ms: int
    attempts: int
    reason: str
    history: Sequence[tuple[int, str]]
    """(time, reason) of each failed attempt that is remembered, oldest first."""
    redrives: int


@dataclass(frozen=True, slots=True)
class DeadPage:
    """Dead letters in the order of (partition, offset); `following` is where the next page begins,
    None at the end."""

    messages: Sequence[DeadMessage]
    following: tuple[int, int] | None
    total: int
    by_reason: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RedriveView:
    """A redrive job. `state` is running, done or stopped."""

    id: int
    group: str
    topic: str
    state: str
    matched: int
    moved: int
    refused: int
    rate: float
    created_ms: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class DelayedView:
    """A delayed message; `state` is pending, delivered (due), cancelled or expired."""

    topic: str
    partition: int
    offset: Offset
    deliver_at_ms: int
    remaining_ms: int
    state: str
    lane: int
    key: bytes | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupPartitionView:
    """A group in one partition. `lane_pending` counts what is ready, per lane; `lane_wait_ms` is
    how long the head of each lane has been ready."""

    topic: str
    partition: int
    floor: Offset
    end: Offset
    ready: int
    in_flight: int
    waiting: int
    """Failed messages that wait for their backoff, and those behind another of their key."""
    dead: int
    acked: int
    nacked: int
    rejected: int
    expired: int
    redelivered: int
    delivered: int
    fallen: int
    """Unsettled messages that fell to retention."""
    halted: str
    lane_pending: Sequence[int]
    lane_wait_ms: Sequence[int]
    lane_wait_ms_max: Sequence[int]
    """The longest that any message of the lane has waited before it was delivered."""
    parked: Sequence[tuple[bytes, int]] = ()
    """(key, how many messages wait behind it)."""
    lane_wait_ms_sum: Sequence[int] = ()
    """Of the waits that were measured, `lane_waits` of them."""
    lane_waits: Sequence[int] = ()
    extended: int = 0
    died: int = 0
    """Ever; `dead` counts those that still are."""
    lag: int = 0
    """Messages that are due and not settled; `lag_ms` is for how long the oldest of them could have
    been delivered, at most a second too long."""
    lag_ms: int = 0
    delayed: int = 0
    """Messages that come once they are due."""
    owner: str = ""
    """The member that has the partition, nobody where it is empty, since `generation`."""
    generation: int = 0
    stale: bool = False
    """The partition's leader did not tell in time: these are figures of some replica's."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group: its settings and where it stands."""

    name: str
    id: int
    settings: Mapping[str, object]
    created_ms: int
    partitions: Sequence[GroupPartitionView] = ()
    stale: bool = False
    """Some leaders did not tell in time: partitions are missing, or stale themselves."""
    owner: str | None = None
    """The prefix that it belongs to, "" for every key of all groups, None for nobody."""


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A recurring schedule. `state` is active or paused."""

    name: str
    topic: str
    cron: str | None
    every_ms: int | None
    timezone: str
    missed: str  # skip | once | all
    state: str
    next_ms: int
    last_ms: int
    runs: int
    value: bytes
    key: bytes | None
    headers: Headers
    lane: int
    created_ms: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class PartitionQueueStats:
    """Figures of one partition's queue, from its leader, since its state began."""

    topic: str
    partition: int
    stored_by_lane: Sequence[int]
    delayed: int
    delayed_next_ms: int
    scheduled: int
    """Ever stored with a delay."""
    released: int
    cancelled: int
    expired: int
    dedup_tracked: int
    dedup_hits: int
    groups: Mapping[str, GroupPartitionView] = field(default_factory=dict[str, GroupPartitionView])
    delay_ms_sum: int | None = None
    """Of all that were `scheduled`; None where it is not counted."""
    stale: bool = False
    """Its leader did not tell in time: these are figures of some replica's, or 0."""


class QueueBroker(Protocol):
    """The queue of the cluster, from any node."""

    # groups

    async def put_group(
        self, name: str, settings: Mapping[str, object], maker: Maker = NOBODYS
    ) -> GroupView:
        """Create the group, or change the settings that are named. Raises `BadName`, `BadRequest`
        with every problem."""
        ...

    async def list_groups(self) -> list[GroupView]:
        """All groups, without partitions, by name."""
        ...

    async def group(self, name: str, topic: str | None = None) -> GroupView:
        """Raises `NotFound` (code `unknown_group`)."""
        ...

    async def delete_group(self, name: str, *, force: bool = False) -> None:
        """Raises `UnknownGroup`, `GroupActive` (409) where it has members, unless by force."""
        ...

    # taking and settling

    async def receive(
        self,
        group: str,
        topics: Sequence[str],
        *,
        claim: Claim,
        limit: int,
        wait_s: float,
        visibility_ms: int | None,
        partitions: Sequence[int] | None = None,
        places: Sequence[tuple[str, int]] | None = None,
        lowest_lane: int = 4,
    ) -> Received:
        """Lease up to `limit` messages; waits up to `wait_s` for the first one.

        They come from `places`, (topic, partition) each, where these are given; else from all
        partitions of the topics, or those numbered. Messages of lanes below `lowest_lane` are left.
        The group is created with defaults where there is none. A caller that is cancelled gets
        nothing leased for good: what was granted to it is released. Raises `UnknownTopic`,
        `GroupHalted` (409), `TooManyInFlight` (429), `StaleGeneration` (409, its `partitions` as
        topic:partition) where one is not the claimant's and nothing was leased.
        """
        ...

    async def peek(
        self, group: str, topics: Sequence[str], *, limit: int, partitions: Sequence[int] | None
    ) -> list[QueuedMessage]:
        """What would be received next, without taking it. Raises `UnknownGroup`."""
        ...

    async def settle(
        self,
        requests: Sequence[SettleRequest],
        group: str | None = None,
        claim: Claim = NOBODY,
    ) -> list[SettleView | GoQueueError]:
        """Each receipt's own end, in order. Errors: `BadReceipt` (400 `invalid_receipt`),
        `NotInFlight` (404), `ReceiptExpired` (409), `StaleGeneration` (409), NotFound for a group,
        topic or partition that is gone or is not `group`."""
        ...

    async def receipt_places(self, receipts: Sequence[str]) -> list[tuple[str, str] | None]:
        """The topic and the group, "" for one that is gone, of each receipt; None for what is none,
        or of a topic that is gone."""
        ...

    async def commit(
        self, group: str, topic: str, offsets: Mapping[int, int], claim: Claim = NOBODY
    ) -> dict[int, int]:
        """Settle all below each offset; the floors after it. Raises `StaleGeneration`."""
        ...

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

    async def resume(self, group: str, topic: str | None) -> int:
        """Let a halted group go on; how many partitions were halted."""
        ...

    async def park(self, group: str, topic: str, key: bytes, *, release: bool) -> int:
        """Withhold a key of an `ordering: key` group, or release it; how many messages wait. Raises
        `BadRequest` for a group that does not keep keys in order."""
        ...

    # dead letters

    async def dead_letters(
        self,
        group: str,
        topic: str,
        which: DeadFilter,
        *,
        after: tuple[int, int] | None,
        limit: int,
    ) -> DeadPage:
        """Those at and behind `after`, the `following` of an earlier page. Totals are of all that
        the group has in the topic, matching or not. Raises `NotFound`."""
        ...

    async def dead_groups(self, topic: str) -> dict[str, dict[str, int]]:
        """Group -> reason -> how many dead letters it has in the topic; without groups of none."""
        ...

    async def redrive(
        self, group: str, topic: str, which: DeadFilter, *, rate: float, dry_run: bool, force: bool
    ) -> RedriveView:
        """Start a job that makes dead letters ready again, at most `rate` a second (0: unbounded).
        With `dry_run` only counts: id 0, nothing is kept."""
        ...

    async def redrives(self, group: str) -> list[RedriveView]: ...

    async def stop_redrive(self, group: str, job: int) -> RedriveView:
        """What has moved has moved; the rest stays dead."""
        ...

    async def purge(self, group: str, topic: str, which: DeadFilter, *, dry_run: bool) -> int: ...

    # delays and schedules

    async def delayed(self, topic: str, *, limit: int, skip: int) -> tuple[list[DelayedView], int]:
        """Soonest first, and how many there are in all."""
        ...

    async def find_delayed(self, topic: str, partition: int | None, offset: int) -> DelayedView:
        """Raises `NotFound` for a message that never had a delay."""
        ...

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> DelayedView:
        """Also one that was cancelled before. Raises `NotFound`, `AlreadyDue` (409)."""
        ...

    async def put_schedule(self, schedule: Mapping[str, object]) -> ScheduleView:
        """Create or replace by name. The fields are `ScheduleView`'s own: name, topic, cron,
        every_ms, timezone, missed, value, key, headers, lane; the first two are legal names, and
        one of cron and every_ms is None. Raises `BadRequest` with every problem, `UnknownTopic`."""
        ...

    async def schedules(self) -> list[ScheduleView]: ...

    async def schedule(self, name: str) -> ScheduleView: ...

    async def pause_schedule(self, name: str, *, paused: bool) -> ScheduleView: ...

    async def delete_schedule(self, name: str) -> None: ...

    # figures

    async def queue_stats(self, topic: str | None = None) -> list[PartitionQueueStats]:
        """From every leader that answers."""
        ...
