"""One partition of the target: each row of a run at the number that it has there.

The log keeps the count: the leader takes a batch only at the number that its producer has reached.
A run that was killed, and one that runs twice, publish as the same producer, so whoever comes
second is refused, is told the number, and goes on from there: no row is stored twice or left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from goqueue import AsyncClient
from goqueue.errors import GoQueueError, OutOfOrder, PayloadTooLarge, ServerError
from goqueue.models.messages import Message
from goqueue.publish.request import BATCH, decode_results
from goqueue.transport.http import join
from pipeline.restore.marks import ID, encoded
from pipeline.restore.state import State

PATIENCE_S = 120.0
"""For how long a batch is tried again where it may succeed."""
PAUSE_S = 0.5
LOST_S = 5.0
"""What was on its way to the log and has not come in this time went down with its leader."""


class RunBehind(GoQueueError):
    """Rows that were on their way to the log have not come: `done` is set back to what has."""

    code, http_status, retriable = "run_behind", 409, True
    text = "the target has lost rows that it had not stored yet"


class RunForgotten(GoQueueError):
    """The log does not know any more how far the run has come: it rested for days."""

    code, http_status = "run_forgotten", 409
    text = "the target has forgotten how far the run has come"


class TargetPartition:
    """Rows are fed in their order, from the first of the run on, or from those that are done on."""

    def __init__(self, client: AsyncClient, state: State, partition: int, fed: int) -> None:
        """`fed` is the number of the first row that will be fed."""
        self._client, self._state, self._partition = client, state, partition
        self._fed = fed
        self._is_sure = True
        """Whether all that is done is stored; else some of it may be on its way only."""

    @property
    def done(self) -> int:
        """How many of the run's rows are stored here."""
        return self._state.done.get(self._partition, 0)

    async def append(self, rows: Sequence[Message], wait: Callable[[int], Awaitable[None]]) -> None:
        """Return when the rows, which follow on those fed before, are stored.

        `wait(count)` is awaited before so many are sent. Raises RunBehind, RunForgotten, or
        GoQueueError where the cluster does not take them.
        """
        first, self._fed = self._fed, self._fed + len(rows)
        deadline_s = time.monotonic() + PATIENCE_S
        while left := rows[max(0, self.done - first) :]:
            await wait(len(left))
            number = self.done - self._state.bases.get(self._partition, 0)
            try:
                await self._post(left, number)
            except OutOfOrder as taken:
                self._catch_up(taken, number)
            except GoQueueError as error:
                if not error.retriable or time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                self._state.done[self._partition] = self.done + len(left)
                self._is_sure = True  # it follows on all before it

    async def confirm(self, count: Callable[[], Awaitable[int]]) -> None:
        """Return when all that is done is stored, as `count()` of the run's rows there tells where
        that is not sure. Raises RunBehind where some of it does not come."""
        deadline_s = time.monotonic() + LOST_S
        while not self._is_sure:
            stored = await count()
            if stored >= self.done:
                self._is_sure = True
            elif time.monotonic() > deadline_s:
                self._state.done[self._partition] = stored
                raise RunBehind
            else:
                await asyncio.sleep(PAUSE_S)

    def _catch_up(self, taken: OutOfOrder, number: int) -> None:
        """Others have come further, with the same rows; or the log has lost some on their way."""
        expected = taken.data.get("expected")
        if not isinstance(expected, int):
            raise taken
        self._is_sure = False
        if expected == 0:
            raise RunForgotten from taken
        self._state.done[self._partition] = self.done + expected - number
        if expected < number:
            raise RunBehind from taken

    async def _post(self, rows: Sequence[Message], number: int) -> None:
        plan, producer = self._state.plan, (self._state.producer_id, self._state.epoch)
        now_ms = time.time_ns() // 1_000_000
        try:
            body = encoded(rows, plan.run, producer, number, now_ms)
        except PayloadTooLarge as error:
            raise PayloadTooLarge(f"{rows[0].id} to {rows[-1].id}: {error.message}") from None
        answer = await self._client.transport.request(
            "POST",
            join("topics", plan.target, "partitions", self._partition, "messages"),
            body=body,
            headers=BATCH,
            repeatable=True,
        )
        (result,) = decode_results(answer, 1)
        if result.failure is not None:
            raise result.failure
        if result.rows is not None:
            raise ServerError(f"{plan.target}:{self._partition} has taken a batch in part")


async def count_restored(client: AsyncClient, state: State, partition: int) -> int:
    """How many of the run's messages a partition has, by their marks. Raises RunForgotten where
    retention may have taken some."""
    plan, begin, count = state.plan, state.plan.begins.get(partition, 0), 0
    mark = (ID, plan.run.encode())
    async for page in client.pages(plan.target, partition, begin):
        if page.log_start > begin:
            raise RunForgotten(
                f"{plan.target}:{partition}: retention has taken what was stored since offset"
                f" {begin}: it can't be told what of run {plan.run} is restored"
            )
        count += sum(mark in message.headers for message in page.messages)
    return count
