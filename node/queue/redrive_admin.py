"""Redrives as the front asks for them: counted, started, listed and stopped."""

from __future__ import annotations

import random
from collections.abc import Sequence

from coordinator.commands.queue import RedriveResult, StartRedrive, StopRedrive
from coordinator.errors import UnknownRedrive
from coordinator.jobs.redrives import Redrive
from delivery.entries.ops import CountResult, Redriven
from goqueue.wire.errors import GoQueueError, Unavailable
from goqueue.wire.types import PartitionId
from node.api.dead_letters import DeadFilter, RedriveView
from node.cluster.host import ClusterHost
from node.cluster.topic_finder import TopicFinder
from node.queue.calls import QueueCalls
from node.queue.dead_letters import dead_request, wanted_partitions
from node.queue.group_admin import GroupsBroker
from node.queue.redrive_worker import Cursor, DeadLetterSource, DeadOffsets, dead_letter_filter

COMMAND_DEADLINE_S = 15.0
COUNTED_AT_ONCE = 10_000


class RedrivesBroker:
    """Implements `node.api.dead_letters.Redrives`. Loop thread only."""

    def __init__(
        self,
        cluster: ClusterHost,
        groups: GroupsBroker,
        source: DeadLetterSource,
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._groups = groups
        self._source = source
        self._rng = rng

    async def redrive(
        self, group: str, topic: str, which: DeadFilter, *, rate: float, dry_run: bool, force: bool
    ) -> RedriveView:
        """Start a job that makes dead letters ready again, at most `rate` a second; 0: unbounded.

        With `dry_run` only counts: id 0, nothing is kept. Raises UnknownGroup, UnknownTopic,
        BadRequest, Busy.
        """
        found = await self._groups.find(group)
        matched = await self._count(group, topic, which)
        if dry_run:
            return RedriveView(0, group, topic, "done", matched, 0, 0, rate, 0)
        command = StartRedrive(
            group,
            found.id,
            topic,
            dead_letter_filter(which),
            rate,
            force,
            matched,
            self._rng.getrandbits(63) or 1,
        )
        started = await self._cluster.command(command, COMMAND_DEADLINE_S)
        assert isinstance(started, RedriveResult), "what this command results in"
        try:
            return redrive_view(await self._numbered(group, started.job))
        except GoQueueError as error:
            error.outcome = "unknown"  # it has begun, and this node lags
            raise

    async def redrives(self, group: str) -> list[RedriveView]:
        """The group's jobs that run, and the last ones that ended; oldest first.

        Raises UnknownGroup.
        """
        found = await self._groups.find(group)
        await self._cluster.refresh()
        jobs = self._cluster.state.redrives.values()
        return [redrive_view(job) for job in jobs if job.group_id == found.id]

    async def stop_redrive(self, group: str, job: int) -> RedriveView:
        """What has moved has moved; the rest stays dead. Raises UnknownRedrive, or Unavailable
        where nobody can say."""
        await self._numbered(group, job)
        await self._cluster.command(StopRedrive(job), COMMAND_DEADLINE_S)
        return redrive_view(await self._numbered(group, job))

    # private

    async def _numbered(self, group: str, job: int) -> Redrive:
        """Raises UnknownRedrive, or Unavailable where nobody can say."""
        found, is_current = self._cluster.state.redrives.get(job), True
        if found is None:
            is_current = await self._cluster.refresh()
            found = self._cluster.state.redrives.get(job)
        if found is None and not is_current:
            problem = self._cluster.not_ready() or "the cluster group's leader does not answer"
            raise Unavailable(f"redrive {job} is not known here: {problem}")
        if found is None or found.group != group:
            raise UnknownRedrive(job)
        return found

    async def _count(self, group: str, topic: str, which: DeadFilter) -> int:
        count, start = 0, None
        while True:
            page = await self._source.matching(
                topic, group, which, start=start, limit=COUNTED_AT_ONCE
            )
            count += sum(map(len, page.offsets.values()))
            start = page.following
            if start is None:
                return count


class PartitionDeadLetters:
    """Dead letters at the leaders of their partitions: a `DeadLetterSource`."""

    def __init__(self, groups: GroupsBroker, calls: QueueCalls, finder: TopicFinder) -> None:
        self._groups = groups
        self._calls = calls
        self._finder = finder

    async def matching(
        self, topic: str, group: str, which: DeadFilter, *, start: Cursor | None, limit: int
    ) -> DeadOffsets:
        """Raises UnknownTopic, UnknownGroup, UnknownPartition, BadRequest."""
        found = await self._finder.find(topic)
        group_id = (await self._groups.find(group)).id
        first, offset = start or (0, 0)
        offsets: dict[int, list[int]] = {}
        left = limit
        for number, named in wanted_partitions(found, which):
            if number < first:
                continue
            if left <= 0:
                return DeadOffsets(offsets, (number, 0))
            request = dead_request(
                PartitionId(found.id, number),
                group_id,
                which,
                named,
                start=offset if number == first else 0,
                limit=left,
                max_bytes=0,
                whole=False,
            )
            page = await self._calls.dead(request)
            if page.rows:
                offsets[number] = [row.offset for row in page.rows]
                left -= len(page.rows)
            if page.following >= 0:
                return DeadOffsets(offsets, (number, page.following))
        return DeadOffsets(offsets, None)

    async def redrive(
        self,
        topic: str,
        partition: int,
        group_id: int,
        offsets: Sequence[int],
        *,
        job: int,
        force: bool,
    ) -> tuple[int, int]:
        """Sent again where an answer was lost: what moved then is not counted."""
        found = await self._finder.find(topic)
        op = Redriven(group_id, list(offsets), job, force)
        result = (await self._calls.operations.put(PartitionId(found.id, partition), [op])).results[
            0
        ]
        return (result.count, result.refused) if isinstance(result, CountResult) else (0, 0)


def redrive_view(redrive: Redrive) -> RedriveView:
    """The job as the front shows it."""
    return RedriveView(
        redrive.id,
        redrive.group,
        redrive.topic,
        redrive.state,
        redrive.matched,
        redrive.moved,
        redrive.refused,
        redrive.rate,
        redrive.created_ms,
        redrive.error,
    )
