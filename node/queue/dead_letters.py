"""Dead letters and delayed messages of whole topics, gathered from the leaders of partitions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from coordinator.cluster.state import Topic
from delivery.entries.ops import OK, TOO_LATE, Cancelled, CodesResult, CountResult, Purged
from goqueue.wire.errors import AlreadyDue, BadRequest, GoQueueError, NotFound, UnknownPartition
from goqueue.wire.types import Offset, PartitionId
from node.api.dead_letters import DeadFilter, DeadMessage, DeadPage
from node.api.delays import DelayedView
from node.api.queue import QueuedMessage
from node.cluster.topic_finder import TopicFinder
from node.partition.reading.message_reader import row_bytes
from node.queue.calls import QueueCalls
from node.queue.group_admin import GroupsBroker
from node.queue.views import OFFSETS_MAX
from node.rpc.queue import DeadRequest, DeadRow, DelayedRequest, queued

PURGED_AT_ONCE = 5000
"""Dead letters that one operation forgets."""


class DeadLetters:
    """Implements `node.api.dead_letters.DeadLetters`. Loop thread only."""

    def __init__(
        self,
        *,
        groups: GroupsBroker,
        calls: QueueCalls,
        finder: TopicFinder,
        answer_bytes: int,
    ) -> None:
        self._groups = groups
        self._calls = calls
        self._finder = finder
        self._answer_bytes = answer_bytes

    async def dead_letters(
        self,
        group: str,
        topic: str,
        which: DeadFilter,
        *,
        after: tuple[int, int] | None,
        limit: int,
    ) -> DeadPage:
        found = await self._finder.find(topic)
        id = (await self._groups.find(group)).id
        first, start = after or (0, 0)
        messages: list[DeadMessage] = []
        following: tuple[int, int] | None = None
        left = self._answer_bytes
        for number, offsets in wanted_partitions(found, which):
            if number < first:
                continue
            if len(messages) >= limit or left <= 0:
                following = (number, 0)
                break
            request = dead_request(
                PartitionId(found.id, number),
                id,
                which,
                offsets,
                start=start if number == first else 0,
                limit=limit - len(messages),
                max_bytes=left,
            )
            answer = await self._calls.dead(request)
            messages += [_dead_message(topic, number, group, row) for row in answer.rows]
            left -= sum(row_bytes(row.message) for row in answer.rows)
            if answer.following >= 0:
                following = (number, answer.following)
                break
        by_reason = (await self.dead_groups(topic)).get(group, {})
        return DeadPage(messages, following, sum(by_reason.values()), by_reason)

    async def dead_groups(self, topic: str) -> dict[str, dict[str, int]]:
        figures = await self._calls.figures([await self._finder.find(topic)])
        found: dict[str, Counter[str]] = {}
        for _partition, groups in figures.dead:
            for name, by_reason in groups.items():
                found.setdefault(name, Counter()).update(by_reason)
        return {name: dict(found[name]) for name in sorted(found)}

    async def purge(self, group: str, topic: str, which: DeadFilter, *, dry_run: bool) -> int:
        found = await self._finder.find(topic)
        id = (await self._groups.find(group)).id
        count = 0
        for number, offsets in wanted_partitions(found, which):
            partition = PartitionId(found.id, number)
            try:
                dead = await self.matching(partition, id, which, offsets)
                if dry_run:
                    count += len(dead)
                    continue
                for at in range(0, len(dead), PURGED_AT_ONCE):
                    op = Purged(id, dead[at : at + PURGED_AT_ONCE])
                    result = (await self._calls.operations.put(partition, [op])).results[0]
                    count += result.count if isinstance(result, CountResult) else 0
            except GoQueueError as error:
                if count and not dry_run:
                    error.outcome = "unknown"  # what was purged before is gone
                raise
        return count

    async def matching(
        self,
        partition: PartitionId,
        group: int,
        which: DeadFilter,
        offsets: list[int] | None = None,
    ) -> list[int]:
        """Offsets of the dead letters of a partition that a filter means."""
        request = dead_request(
            partition, group, which, offsets, limit=OFFSETS_MAX, max_bytes=1 << 30, whole=False
        )
        return [row.offset for row in (await self._calls.dead(request)).rows]


class DelayedMessages:
    """Implements `node.api.delays.Delays`. Loop thread only."""

    def __init__(self, calls: QueueCalls, finder: TopicFinder) -> None:
        self._calls = calls
        self._finder = finder

    async def delayed(self, topic: str, *, limit: int, skip: int) -> tuple[list[DelayedView], int]:
        found = await self._finder.find(topic)
        answers = await asyncio.gather(
            *(
                self._calls.delayed(
                    DelayedRequest(PartitionId(found.id, number).pack(), limit + skip)
                )
                for number in range(len(found.partitions))
            )
        )
        views = [view for answer in answers for view in answer.views]
        views.sort(key=lambda view: (view.deliver_at_ms, view.partition, view.offset))
        return views[skip : skip + limit], sum(answer.count for answer in answers)

    async def find_delayed(self, topic: str, partition: int | None, offset: int) -> DelayedView:
        found = await self._finder.find(topic, 0 if partition is None else partition + 1)
        numbers: Sequence[int] = range(len(found.partitions))
        if partition is not None:
            if partition not in numbers:
                raise UnknownPartition(topic, partition)
            numbers = (partition,)
        answers = await asyncio.gather(
            *(self._find(PartitionId(found.id, number), offset) for number in numbers),
            return_exceptions=True,
        )
        views = [answer for answer in answers if isinstance(answer, DelayedView)]
        if views:
            return min(views, key=lambda view: view.state != "pending")
        faults = [answer for answer in answers if isinstance(answer, BaseException)]
        raise min(faults, key=lambda fault: isinstance(fault, NotFound))

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> DelayedView:
        found = await self._finder.find(topic, partition + 1)
        if not 0 <= partition < len(found.partitions):
            raise UnknownPartition(topic, partition)
        partition_id = PartitionId(found.id, partition)
        result = (await self._calls.operations.put(partition_id, [Cancelled([offset])])).results[0]
        code = result.codes[0] if isinstance(result, CodesResult) else TOO_LATE
        facts: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
        if code == TOO_LATE:
            raise AlreadyDue(**facts)
        if code != OK:
            raise NotFound(f"no delayed message at offset {offset}", **facts)
        return await self._find(partition_id, offset)

    async def _find(self, partition: PartitionId, offset: int) -> DelayedView:
        answer = await self._calls.delayed(DelayedRequest(partition.pack(), 1, offset))
        return answer.views[0]


def dead_request(
    partition: PartitionId,
    group: int,
    which: DeadFilter,
    offsets: list[int] | None = None,
    *,
    start: int = 0,
    limit: int,
    max_bytes: int,
    whole: bool = True,
) -> DeadRequest:
    """The question for one partition's dead letters; `offsets` are those that the filter names."""
    return DeadRequest(
        partition.pack(),
        group,
        start,
        limit,
        max_bytes,
        whole,
        which.reason,
        which.from_ms,
        which.to_ms,
        which.key,
        dict(which.headers),
        offsets,
    )


def wanted_partitions(topic: Topic, which: DeadFilter) -> list[tuple[int, list[int] | None]]:
    """Partitions that a filter can mean, with the offsets it names there (None: all)."""
    count = len(topic.partitions)
    if which.partition is not None and not 0 <= which.partition < count:
        raise UnknownPartition(topic.name, which.partition)
    numbers = (
        range(count) if which.partition is None else range(which.partition, which.partition + 1)
    )
    if not which.ids:
        return [(number, None) for number in numbers]
    named: dict[int, list[int]] = {}
    for id in which.ids:
        name, partition, offset = [*id.rsplit(":", 2), "", ""][:3]
        if not (partition.isdigit() and offset.isdigit()):
            raise BadRequest(f"not a message id: {id[:80]!r}", id=id[:300])
        if name == topic.name:
            named.setdefault(int(partition), []).append(int(offset))
    return [(number, named[number]) for number in numbers if number in named]


def _dead_message(topic: str, partition: int, group: str, row: DeadRow) -> DeadMessage:
    found = row.message
    if found is None:
        message = QueuedMessage(topic, partition, Offset(row.offset), 0, b"", None, (), 2)
    else:
        message = queued(topic, partition, found, reason=row.reason, redrives=row.redrives)
    return DeadMessage(
        message, group, row.died_ms, row.attempts, row.reason, row.history, row.redrives
    )
