"""A run: from the archive to the target, as far as it has not come, in the order of the archive.

A target with as many partitions as the topic gets each partition's messages in the same partition,
all of them at once; another one gets them by key, partition after partition, so that their order
is the same in every attempt.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from goqueue import AsyncClient
from goqueue.archive.reader import ArchivedTopic
from goqueue.archive.seam import Missing, PartitionReplay, Window, refuse
from goqueue.errors import Conflict
from goqueue.models.messages import Message
from goqueue.wire.partitioner import partition_for
from pipeline.restore import state as states
from pipeline.restore.marks import batches, size
from pipeline.restore.plan import skip_whole
from pipeline.restore.rate import Rate
from pipeline.restore.state import Files, Range, State
from pipeline.restore.target import RunBehind, RunForgotten, TargetPartition, count_restored

SAVED_EVERY_S = 2.0
REMEMBERED_MS = 6 * 24 * 3600 * 1000
"""A day less than partitions remember producers: a run that rested longer is counted anew."""
PARTITIONS_AT_ONCE = 16
ATTEMPTS_MAX = 20
"""At storing all of it, where leaders that fall take with them what was on its way."""


class Restore:
    """One attempt at a run; `state` is what is known of it, and is saved as it goes."""

    def __init__(
        self,
        client: AsyncClient,
        archived: ArchivedTopic,
        files: Files,
        state: State,
        rate: Rate,
        progress: Callable[[int], None],
    ) -> None:
        self._client, self._archived, self._files = client, archived, files
        self._state, self._rate, self._progress = state, rate, progress
        self._saving = asyncio.Lock()
        self._saved_s = time.monotonic()

    async def run(self) -> None:
        """Return when all of the plan is stored. Raises GoQueueError; what is stored then, the next
        attempt finds. Cancelled, it saves how far it is."""
        if await self._check_target():
            await self._recount()
        try:
            await self._store_whole()
            self._state.is_complete = True
        finally:
            await self._save()

    async def _store_whole(self) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                await self._store_all()
                return
            except RunBehind:
                continue
            except RunForgotten:
                await self._recount()
        raise RunBehind

    async def _check_target(self) -> bool:
        """Whether the log may have forgotten the run. Raises Conflict where it is another topic."""
        plan, state = self._state.plan, self._state
        topic = await self._client.topic(plan.target)
        if topic.id != plan.target_id or topic.partitions != plan.partitions:
            raise Conflict(
                f"{plan.target} is another topic, or has other partitions, than when run"
                f" {plan.run} began: begin another run (--replay-id)"
            )
        return bool(state.saved_ms) and state.saved_ms + REMEMBERED_MS < _now_ms()

    async def _recount(self) -> None:
        """Find in the target what is stored, and go on as another producer, numbered from there."""
        plan, state = self._state.plan, self._state
        identity = await self._client.init_producer()
        for partition in range(plan.partitions):
            state.done[partition] = await count_restored(self._client, state, partition)
        state.bases = dict(state.done)
        state.producer_id, state.epoch = identity.producer_id, identity.epoch
        await self._save()

    async def _store_all(self) -> None:
        plan = self._state.plan
        await self._archived.refresh()
        if not plan.is_spread:
            turn = asyncio.Semaphore(PARTITIONS_AT_ONCE)

            async def straight(range_: Range) -> None:
                async with turn:
                    await self._store_straight(range_)

            try:
                async with asyncio.TaskGroup() as tasks:
                    for range_ in plan.ranges:
                        tasks.create_task(straight(range_))
            except BaseExceptionGroup as failed:
                raise _first(failed) from None
            return
        targets = [
            TargetPartition(self._client, self._state, number, 0)
            for number in range(plan.partitions)
        ]
        for range_ in plan.ranges:
            await self._store_spread(range_, targets)
        for number, target in enumerate(targets):
            await self._confirm(target, number)

    async def _store_straight(self, range_: Range) -> None:
        """A partition's messages into the partition of the same number."""
        plan, number = self._state.plan, range_.partition
        items = (await self._archived.current()).partitions()[number]
        done = self._state.done.get(number, 0)
        position, ahead = skip_whole(items, range_, plan.from_ms, plan.to_ms, done)
        target = TargetPartition(self._client, self._state, number, done - ahead)
        async with aclosing(self._messages(range_, position)) as runs:
            async for run in runs:
                for batch in self._batches(run):
                    await self._append(target, batch)
        await self._confirm(target, number)

    async def _confirm(self, target: TargetPartition, number: int) -> None:
        await target.confirm(lambda: count_restored(self._client, self._state, number))

    async def _store_spread(self, range_: Range, targets: list[TargetPartition]) -> None:
        async with aclosing(self._messages(range_, range_.first)) as runs:
            async for run in runs:
                rows: dict[int, list[Message]] = {}
                for message in run:
                    rows.setdefault(_spread(message, len(targets)), []).append(message)
                for number, some in rows.items():
                    for batch in self._batches(some):
                        await self._append(targets[number], batch)

    async def _messages(self, range_: Range, position: int) -> AsyncGenerator[list[Message], None]:
        plan = self._state.plan

        def note(missing: Missing) -> None:
            if missing.why != "deleted":  # told by the plan
                refuse(missing)

        replay = PartitionReplay(
            plan.topic,
            range_.partition,
            Window(position, plan.from_ms, plan.to_ms),
            archived=self._archived,
            live=None,
            on_missing=note,
        )
        async with aclosing(replay.runs(range_.end)) as runs:
            async for run in runs:
                yield run

    def _batches(self, run: list[Message]) -> list[list[Message]]:
        rows_max = self._rate.rows_max or len(run)
        parts = (run[at : at + rows_max] for at in range(0, len(run), rows_max))
        return [batch for part in parts for batch in batches(part)]

    async def _append(self, target: TargetPartition, batch: list[Message]) -> None:
        weight = sum(map(size, batch))

        async def wait(count: int) -> None:
            await self._rate.wait(count, weight * count // len(batch))

        is_first = target.done == 0
        await target.append(batch, wait)
        self._progress(sum(self._state.done.values()))
        if is_first or time.monotonic() - self._saved_s > SAVED_EVERY_S:
            await self._save()

    async def _save(self) -> None:
        async with self._saving:
            await asyncio.to_thread(states.save, self._files, self._state, _now_ms())
            self._saved_s = time.monotonic()


def _spread(message: Message, partitions: int) -> int:
    if message.key is not None:
        return partition_for(message.key, partitions)
    return message.partition % partitions


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
