"""The queue of the fake broker: leases, positions and dead letters in memory.

It keeps the contract of `QueueBroker`, with one node and no log: what it holds dies with it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from delivery.config import LANES_COUNT, QueueConfig
from goqueue.wire.errors import (
    BadReceipt,
    BadRequest,
    GoQueueError,
    GroupActive,
    GroupHalted,
    NotFound,
    StaleGeneration,
    TooManyInFlight,
)
from goqueue.wire.ids import MessageId
from goqueue.wire.types import Offset, PartitionId, TopicId
from node.api.claims import NOBODY, Claim
from node.api.dead_letters import DeadFilter, DeadMessage, DeadPage, RedriveView
from node.api.figures import PartitionQueueStats
from node.api.queue import QueuedMessage, Received, SettleRequest, SettleView
from node.http.fake.group import FakeDead, FakeGroup
from node.http.fake.groups import FakeGroups, Named, Place
from node.http.fake.log import FakeRecord
from node.queue.receipt import decode_receipt, encode_receipt

LOOK_AGAIN_S = 0.005


class FakeQueue(FakeGroups):
    """The queue's half of `FakeBroker`, which says where the partitions are."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms)
        self._deliveries = 0

    def _reconcile(self) -> None:
        """Time has passed: who owns what may have changed."""

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
        places: Sequence[Place] | None = None,
        lowest_lane: int = LANES_COUNT - 1,
    ) -> Received:
        self._check(topics, partitions)
        for topic, partition in places or ():
            self._check([topic], [partition])
        self._ensured(group, claim.maker)
        ends_s = time.monotonic() + wait_s
        while True:
            self._reconcile()
            named = self._group(group)
            wanted = list(self._places(named, topics, partitions))
            wanted += [(t, p, self._place(named, t, p)) for t, p in places or ()]
            found = self._take(named, wanted, limit, claim, visibility_ms, lowest_lane)
            left_s = ends_s - time.monotonic()
            if found or left_s <= 0:
                return Received(found)
            await asyncio.sleep(min(left_s, LOOK_AGAIN_S))

    async def peek(
        self, group: str, topics: Sequence[str], *, limit: int, partitions: Sequence[int] | None
    ) -> list[QueuedMessage]:
        self._check(topics, partitions)
        named = self._group(group)
        found: list[QueuedMessage] = []
        for topic, partition, place in self._places(named, topics, partitions):
            for record in place.select(limit - len(found)):
                message = record.message(topic, partition)
                attempt, reason = (
                    place.attempts(record.offset) + 1,
                    place.last_reason(record.offset),
                )
                redrives = place.redrives[record.offset]
                found.append(replace(message, attempt=attempt, reason=reason, redrives=redrives))
        return found

    async def settle(
        self,
        requests: Sequence[SettleRequest],
        group: str | None = None,
        claim: Claim = NOBODY,
    ) -> list[SettleView | GoQueueError]:
        self._reconcile()
        outcomes: list[SettleView | GoQueueError] = []
        for request in requests:
            try:
                outcomes.append(self._settle(request, group, claim))
            except GoQueueError as error:
                outcomes.append(error)
        return outcomes

    async def receipt_places(self, receipts: Sequence[str]) -> list[tuple[str, str] | None]:
        by_id = {self.topic_id(name): name for name in self.list_topics()}
        found: list[tuple[str, str] | None] = []
        for text in receipts:
            try:
                receipt = decode_receipt(text)
            except BadReceipt:
                found.append(None)
                continue
            topic, group = by_id.get(str(receipt.partition.topic)), receipt.group
            known = self._known.by_id().get(group)
            found.append((topic, known.name if known else "") if topic else None)
        return found

    async def commit(
        self, group: str, topic: str, offsets: Mapping[int, int], claim: Claim = NOBODY
    ) -> dict[int, int]:
        self._check([topic], list(offsets))
        named = self._ensured(group, claim.maker)
        self._reconcile()
        places = {p: self._place(named, topic, p) for p in offsets}
        self._check_owner([(topic, p, place) for p, place in places.items()], claim)
        for partition, place in places.items():
            place.commit(offsets[partition])
        return {partition: place.committed_offset for partition, place in places.items()}

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
        self._check([topic], None if partition is None else [partition])
        named = self._group(group)
        self._reconcile()
        committed_offsets: dict[int, int] = {}
        places = list(self._places(named, [topic], None if partition is None else [partition]))
        try:
            self._check_owner(places, claim)
        except StaleGeneration as error:
            if claim != NOBODY:
                raise
            raise GroupActive(group=group, generation=error.data.get("generation")) from None
        for _, number, place in places:
            log = place.log.partition
            if offset is None:
                later = (r.offset for r in place.log.records() if r.time_ms >= (time_ms or 0))
                to = next(later, log.next)
            else:
                to = log.start if offset == -1 else log.next if offset == -2 else offset
            place.seek(min(max(to, log.start), log.next))
            committed_offsets[number] = place.committed_offset
        return committed_offsets

    async def resume(self, group: str, topic: str | None) -> int:
        halted = [
            place
            for where, place in self._live(self._group(group))
            if topic in (None, where[0]) and place.halted
        ]
        for place in halted:
            place.halted = ""
        return len(halted)

    async def park(self, group: str, topic: str, key: bytes, *, release: bool) -> int:
        self._check([topic], None)
        waiting = 0
        named = self._group(group)
        if not release and named.config.ordering != "key":
            raise BadRequest("keys are parked in groups of ordering: key", group=group)
        for _, _, place in self._places(named, [topic], None):
            waiting += sum(
                record.key == key for record in place.log.records(place.committed_offset)
            )
            (place.parked.discard if release else place.parked.add)(key)
        return waiting

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
        by_reason = Counter(letter.reason for letter in self._dead(group, topic, DeadFilter()))
        found = [
            letter
            for letter in self._dead(group, topic, which)
            if after is None or _place_of(letter) >= after
        ]
        following = _place_of(found[limit]) if len(found) > limit else None
        return DeadPage(found[:limit], following, by_reason.total(), by_reason)

    async def dead_groups(self, topic: str) -> dict[str, dict[str, int]]:
        self._check([topic], None)
        found = {
            name: Counter(letter.reason for letter in self._dead(name, topic, DeadFilter()))
            for name in self._groups
        }
        return {name: dict(by_reason) for name, by_reason in found.items() if by_reason}

    async def redrive(
        self,
        group: str,
        topic: str,
        which: DeadFilter,
        *,
        rate: float,
        dry_run: bool,
        force: bool,
    ) -> RedriveView:
        named, matched = self._group(group), list(self._dead(group, topic, which))
        job = RedriveView(0, group, topic, "done", len(matched), 0, 0, rate, self._clock_ms())
        if dry_run:
            return job
        looping = [m for m in matched if m.redrives >= named.config.redrives_max and not force]
        for letter in matched:
            if letter not in looping:
                place = self._place(named, topic, letter.message.partition)
                place.revive(letter.message.offset)
        moved = len(matched) - len(looping)
        job = replace(job, id=len(named.jobs) + 1, moved=moved, refused=len(looping))
        named.jobs.append(job)
        return job

    async def redrives(self, group: str) -> list[RedriveView]:
        return list(self._group(group).jobs)

    async def stop_redrive(self, group: str, job: int) -> RedriveView:
        for known in self._group(group).jobs:
            if known.id == job:
                return known
        raise NotFound(f"no redrive {job} of group {group}", group=group, job=job)

    async def purge(self, group: str, topic: str, which: DeadFilter, *, dry_run: bool) -> int:
        letters = list(self._dead(group, topic, which))
        for letter in () if dry_run else letters:
            place = self._place(self._group(group), topic, letter.message.partition)
            place.purge(letter.message.offset)
        return len(letters)

    # figures

    async def queue_stats(self, topic: str | None = None) -> list[PartitionQueueStats]:
        topics = self.list_topics() if topic is None else [topic]
        return [self._stats(t, p) for t in topics for p in range(self.partition_count(t))]

    # how

    def _stats(self, topic: str, partition: int) -> PartitionQueueStats:
        stored = [0] * QueueConfig().lanes
        for record in self._log(topic, partition).records():
            stored[record.lane] += 1
        delayed = [view for view in self._delayed(topic) if view.partition == partition]
        states = [view.state for view in delayed]
        due_ms = [view.deliver_at_ms for view in delayed if view.state == "pending"]
        groups = {
            name: named.places[topic, partition].view(topic, partition)
            for name, named in self._groups.items()
            if (topic, partition) in named.places
        }
        return PartitionQueueStats(
            topic=topic,
            partition=partition,
            stored_by_lane=stored,
            delayed=len(due_ms),
            delayed_next_ms=min(due_ms, default=0),
            scheduled=len(states),
            released=states.count("delivered"),
            cancelled=states.count("cancelled"),
            expired=states.count("expired"),
            dedup_tracked=0,
            dedup_hits=0,
            groups=groups,
            delay_ms_sum=sum(
                (record.deliver_at_ms or record.time_ms) - record.time_ms
                for record in self._log(topic, partition).records()
            ),
        )

    def _take(
        self,
        named: Named,
        wanted: Sequence[tuple[str, int, FakeGroup]],
        limit: int,
        claim: Claim,
        visibility_ms: int | None,
        lowest_lane: int,
    ) -> list[QueuedMessage]:
        found: list[QueuedMessage] = []
        for topic, partition, place in wanted:
            if not place.is_owned_by(claim):
                continue
            if place.halted:
                raise GroupHalted(reason=place.halted)
            records = [r for r in place.select(limit - len(found)) if r.lane <= lowest_lane]
            if not records:
                continue
            if len(place.leases) + len(records) > named.config.in_flight_max:
                raise TooManyInFlight(limit=named.config.in_flight_max)
            self._deliveries += 1
            ms = named.config.visibility_ms if visibility_ms is None else visibility_ms
            deadline_ms = place.lease(records, self._deliveries, claim.member, ms)
            group_id = PartitionId(TopicId.parse(self.topic_id(topic)), partition).pack()
            for record in records:
                offset = record.offset
                found.append(
                    replace(
                        record.message(topic, partition),
                        receipt=encode_receipt(group_id, named.group.id, self._deliveries, offset),
                        attempt=place.attempts(offset),
                        reason=place.last_reason(offset),
                        redrives=place.redrives[offset],
                        deadline_ms=deadline_ms,
                    )
                )
        if not found:
            self._check_owner(wanted, claim)
        return found

    @staticmethod
    def _check_owner(places: Sequence[tuple[str, int, FakeGroup]], claim: Claim) -> None:
        """Raises StaleGeneration for those that are not the claimant's."""
        foreign = [found for found in places if not found[2].is_owned_by(claim)]
        if foreign:
            error = foreign[0][2].stale()
            error.data["partitions"] = [f"{topic}:{number}" for topic, number, _ in foreign]
            raise error

    def _settle(self, request: SettleRequest, group: str | None, claim: Claim) -> SettleView:
        receipt = decode_receipt(request.receipt)
        by_id = {named.group.id: name for name, named in self._groups.items()}
        name = by_id.get(receipt.group)
        if name is None or group not in (None, name):
            raise NotFound("the receipt is of another group")
        named, topic_id = self._groups[name], str(receipt.partition.topic)
        for (topic, partition), place in self._live(named):
            if self.topic_id(topic) == topic_id and partition == receipt.partition.partition:
                if claim.generation:
                    self._check_owner([(topic, partition, place)], claim)
                done = place.settle(receipt.offset, receipt.delivery, request)
                return SettleView(
                    name,
                    topic,
                    partition,
                    receipt.offset,
                    done.outcome,
                    done.attempts,
                    done.visible_at_ms,
                    Offset(place.committed_offset),
                    done.advanced,
                    len(place.leases),
                )
        raise NotFound("the receipt's topic is gone")

    def _dead(self, group: str, topic: str, which: DeadFilter) -> Iterator[DeadMessage]:
        self._check([topic], None)
        for (name, partition), place in sorted(self._live(self._group(group)), key=_where):
            if name != topic:
                continue
            place.expire()
            for offset, dead in sorted(place.dead.items()):
                record = place.log.record(offset)
                if record is not None and _matches(which, topic, partition, record, dead):
                    message = record.message(topic, partition)
                    yield DeadMessage(
                        replace(message, attempt=dead.attempts, redrives=dead.redrives),
                        group,
                        dead.died_ms,
                        dead.attempts,
                        dead.reason,
                        dead.history,
                        dead.redrives,
                    )


def _matches(
    which: DeadFilter, topic: str, partition: int, record: FakeRecord, dead: FakeDead
) -> bool:
    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
    return (
        (which.reason is None or which.reason in dead.reason)
        and (which.from_ms is None or dead.died_ms >= which.from_ms)
        and (which.to_ms is None or dead.died_ms < which.to_ms)
        and (which.key is None or record.key == which.key)
        and which.headers.items() <= headers.items()
        and (which.partition is None or partition == which.partition)
        and (not which.ids or str(MessageId(topic, partition, Offset(record.offset))) in which.ids)
    )


def _place_of(letter: DeadMessage) -> tuple[int, int]:
    return letter.message.partition, letter.message.offset


def _where(found: tuple[Place, FakeGroup]) -> Place:
    return found[0]
