"""Settles of one stream: begun as they come, many at once, and confirmed in the order they came."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from goqueue.background import TaskSet
from goqueue.signal import Signal
from goqueue.wire.errors import GoQueueError, ServerError
from node.api.queue import SettleRequest, SettleView
from node.http.budget.memory import Held

FRAMES_MAX = 256
RECEIPTS_MAX = 4_000
"""Unconfirmed, of one stream: with as many it reads on once some are confirmed."""

Entry = SettleRequest | GoQueueError
"""What is asked for a receipt, or why that can't be asked."""
Outcome = SettleView | GoQueueError


@dataclass(slots=True)
class Asked:
    """One `settle` frame; `held` is what its text is charged with until it is confirmed."""

    id: int
    entries: Sequence[Entry]
    receipts: Sequence[str]
    actions: Sequence[str]
    held: Held | None = None
    outcomes: list[Outcome] = field(default_factory=list[Outcome])


@dataclass(slots=True)
class _Batch:
    frames: list[Asked]
    is_done: bool = False


class Settling:
    """Of one stream. Loop thread only.

    The frames that come in one turn of the loop are settled together, beside those of earlier turns
    that are on their way. None is confirmed before its entries were applied, nor before the frames
    that came before it.
    """

    def __init__(
        self,
        settle: Callable[[Sequence[SettleRequest]], Awaitable[Sequence[Outcome]]],
        confirm: Callable[[Asked], Awaitable[None]],
    ) -> None:
        """`settle` answers for each request in order; `confirm` tells the client of one frame."""
        self._settle = settle
        self._confirm = confirm
        self._coming: list[Asked] = []
        self._batches: list[_Batch] = []
        self._tasks = TaskSet("node", "settling_failed")
        self._is_confirming = False
        self._frames = self._receipts = 0
        self._eased = Signal(is_set=True)

    def __len__(self) -> int:
        """Frames that are not confirmed."""
        return self._frames

    def add(self, asked: Asked) -> None:
        """It is settled with all that comes in this turn of the loop."""
        self._frames += 1
        self._receipts += len(asked.entries)
        if self._frames >= FRAMES_MAX or self._receipts >= RECEIPTS_MAX:
            self._eased.clear()
        if not self._coming:
            asyncio.get_running_loop().call_soon(self._begin)
        self._coming.append(asked)

    async def room(self) -> None:
        """Return when more may be added."""
        await self._eased.wait()

    async def drained(self, timeout_s: float) -> bool:
        """Whether all are confirmed, within this time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._frames:
                    self._eased.clear()
                    await self._eased.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Nothing is confirmed any more; what was begun may still happen. Idempotent."""
        await self._tasks.stop()
        for asked in (*self._coming, *(one for batch in self._batches for one in batch.frames)):
            if asked.held is not None:
                asked.held.release()
        self._coming.clear()
        self._batches.clear()
        self._frames = self._receipts = 0
        self._eased.set()

    # private

    def _begin(self) -> None:
        if self._coming:
            batch = _Batch(self._coming)
            self._coming = []
            self._batches.append(batch)
            self._tasks.begin(self._run(batch))

    async def _run(self, batch: _Batch) -> None:
        requests = [
            entry
            for asked in batch.frames
            for entry in asked.entries
            if isinstance(entry, SettleRequest)
        ]
        try:
            found = iter(await self._settle(requests) if requests else ())
            for asked in batch.frames:
                asked.outcomes = [
                    next(found) if isinstance(entry, SettleRequest) else entry
                    for entry in asked.entries
                ]
        except GoQueueError as error:
            self._fail(batch, error)
        except Exception:
            self._fail(batch, ServerError())
            raise
        finally:
            batch.is_done = bool(batch.frames[-1].outcomes)
            if batch.is_done:
                await self._confirm_all()

    def _fail(self, batch: _Batch, error: GoQueueError) -> None:
        for asked in batch.frames:
            asked.outcomes = [
                error if isinstance(entry, SettleRequest) else entry for entry in asked.entries
            ]

    async def _confirm_all(self) -> None:
        """Whoever finds the first batch done confirms all that are, in order."""
        if self._is_confirming:
            return
        self._is_confirming = True
        try:
            while self._batches and self._batches[0].is_done:
                for asked in self._batches.pop(0).frames:
                    try:
                        await self._confirm(asked)
                    finally:
                        self._done(asked)
        finally:
            self._is_confirming = False

    def _done(self, asked: Asked) -> None:
        self._frames -= 1
        self._receipts -= len(asked.entries)
        if asked.held is not None:
            asked.held.release()
        if self._frames < FRAMES_MAX and self._receipts < RECEIPTS_MAX:
            self._eased.set()
