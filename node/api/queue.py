"""What the HTTP front asks of the node about taking and settling messages: `Queue` and `Receipts`.

Times are log time in Unix milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import msgspec

from goqueue.wire.batch import Headers
from goqueue.wire.errors import BadReceipt, GoQueueError
from goqueue.wire.ids import OFFSET_MAX
from goqueue.wire.types import Offset
from node.api.auth.principal import OutOfScope
from node.api.claims import NOBODY, Claim
from node.api.rules.groups import EVERY_GROUPS, in_topic, in_topic_or_whole, in_topics
from node.api.rules.rule import admins, scoped
from node.api.rules.scope import Scope


class QueuedMessage(msgspec.Struct):
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


class SettleRequest(msgspec.Struct, frozen=True):
    """One receipt and what is to become of it; `delay_ms` None means the group's backoff."""

    receipt: str
    action: str  # ack | nack | reject | extend | release
    reason: str = ""
    delay_ms: int | None = None
    to_back: bool = False
    visibility_ms: int = 0


class SettleView(msgspec.Struct):
    """What became of one receipt.

    `outcome` is acked, requeued, dead, parked, halted, expired, extended or released;
    `committed_offset` the group's committed offset in the partition after it, `advanced` whether
    this request moved it.
    """

    group: str
    topic: str
    partition: int
    offset: Offset
    outcome: str
    attempts: int
    visible_at_ms: int
    committed_offset: Offset
    advanced: bool
    in_flight: int


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message in flight: with whom, for how long, and the receipt of its lease.

    `message` is None where it can't be read any more. `idle_ms` is told by the group's visibility:
    of a lease that was given another one, or extended, it is as far off.
    """

    partition: int
    offset: Offset
    consumer: str
    idle_ms: int
    attempt: int
    receipt: str
    message: QueuedMessage | None


@dataclass(frozen=True, slots=True)
class Pending:
    """What of a group is in flight in one partition: all of it is counted, by consumer, from the
    `first` to the `last` offset (-1 for none). `following` is the offset from which there may be
    more of what was asked for, -1 at the end."""

    found: Sequence[PendingMessage]
    following: int
    by_consumer: Mapping[str, int]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PendingFilter:
    """What of it is told: at most `limit` messages, 0 for none, from offset `start` to `end`, or
    these `offsets`, of one `consumer` where it is named, that are idle for so long."""

    limit: int = 0
    start: int = 0
    end: int = OFFSET_MAX
    consumer: str | None = None
    idle_ms_min: int = 0
    offsets: Sequence[int] | None = None


def _received(scope: Scope, method: Any) -> Any:
    """A group in some topics, or some partitions of some."""

    async def checked(
        group: str, topics: Sequence[str], *, claim: Claim = NOBODY, **named: Any
    ) -> Received:
        for topic in topics:
            scope.principal.require(topic)
        for topic, _partition in named.get("places") or ():
            scope.principal.require(topic)
        claim = replace(claim, maker=await scope.maker(group))
        return cast(Received, await method(group, topics, claim=claim, **named))

    return checked


def _received_for_all(_scope: Scope, method: Any) -> Any:
    async def made(
        group: str, topics: Sequence[str], *, claim: Claim = NOBODY, **named: Any
    ) -> Received:
        claim = replace(claim, maker=EVERY_GROUPS)
        return cast(Received, await method(group, topics, claim=claim, **named))

    return made


def settled(scope: Scope, method: Any) -> Any:
    """Each receipt by the topic and the group that it names."""

    async def checked(
        requests: Sequence[SettleRequest], group: str | None = None, claim: Claim = NOBODY
    ) -> list[SettleView | GoQueueError]:
        if group is not None:
            await scope.judge(group)
        if scope.is_everywhere:
            return cast(list[SettleView | GoQueueError], await method(requests, group, claim))
        places = await scope.broker.receipts.receipt_places([one.receipt for one in requests])
        results: list[SettleView | GoQueueError] = [BadReceipt()] * len(requests)
        mine: list[int] = []
        for row, place in enumerate(places):
            if place is None:
                continue
            if scope.principal.covers(place[0]) and scope.sees(place[1]):
                mine.append(row)
            else:
                results[row] = OutOfScope(scope.principal, "the receipt's topic or group")
        allowed = [requests[row] for row in mine]
        ends = await method(allowed, group, claim) if allowed else ()
        for row, end in zip(mine, ends, strict=True):
            results[row] = end
        return results

    return checked


class Queue(Protocol):
    """Taking messages, from any node."""

    @scoped(_received, admins=_received_for_all)
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
        beside: Sequence[str] = (),
    ) -> Received:
        """Lease up to `limit` messages; waits up to `wait_s` for the first one.

        They come from `places`, (topic, partition) each, where these are given; else from all
        partitions of the topics, or those numbered. Messages of lanes below `lowest_lane` are left.
        `beside` are receipts that are settled at the same time: mostly their partitions are asked
        first, so that it is one entry.
        The group is created with defaults where there is none. A caller that is cancelled gets
        nothing leased for good: what was granted to it is released. Raises `UnknownTopic`,
        `GroupHalted` (409), `TooManyInFlight` (429), `StaleGeneration` (409, its `partitions` as
        topic:partition) where one is not the claimant's and nothing was leased.
        """
        ...

    @scoped(in_topics)
    async def peek(
        self, group: str, topics: Sequence[str], *, limit: int, partitions: Sequence[int] | None
    ) -> list[QueuedMessage]:
        """What would be received next, without taking it. Raises `UnknownGroup`."""
        ...

    @scoped(in_topic)
    async def pending(
        self, group: str, topic: str, partition: int, which: PendingFilter
    ) -> Pending:
        """What is in flight, in the order of offsets, as the partition's leader knows it. Raises
        `UnknownGroup`, `UnknownPartition`, `NotFinished` below the level of `Feature.PENDING`."""
        ...

    @scoped(in_topic)
    async def take_over(
        self, group: str, topic: str, partition: int, consumer: str, which: PendingFilter
    ) -> tuple[Received, Pending]:
        """Lease to this consumer what others, or itself, have in flight, and what they were.

        Each has failed for whoever had it, as with a nack, and may be dead by that: then it is in
        the second and not in the first. In one entry: nobody else gets it in between. Raises as
        `pending`.
        """
        ...

    @scoped(in_topic_or_whole)
    async def resume(self, group: str, topic: str | None) -> int:
        """Let a halted group go on; how many partitions were halted."""
        ...

    @scoped(in_topic)
    async def park(self, group: str, topic: str, key: bytes, *, release: bool) -> int:
        """Withhold a key of an `ordering: key` group, or release it; how many messages wait. Raises
        `BadRequest` for a group that does not keep keys in order."""
        ...


class Receipts(Protocol):
    """Settling what was received."""

    @scoped(settled)
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

    @scoped(admins)
    async def receipt_places(self, receipts: Sequence[str]) -> list[tuple[str, str] | None]:
        """The topic and the group, "" for one that is gone, of each receipt; None for what is none,
        or of a topic that is gone."""
        ...
