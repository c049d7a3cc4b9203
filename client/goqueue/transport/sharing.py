"""Calls of one kind share requests: those that come while one is on its way go in the next one.

A call that finds its lane empty is sent at once, by itself, as if there were no lane: nothing waits
for company. Those that come meanwhile go together as soon as that request has ended. So a program
with one caller makes the requests that it always made, and one with many makes few.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from goqueue.background import TaskSet
from goqueue.models.failures import Closed
from goqueue.wire.errors import GoQueueError, Timeout

SLOW_S = 0.1
"""A request that takes longer holds up nobody who may go beside it."""
CLOSING_S = 1.0
"""So long `close` waits for requests on their way, which end at once where connections close."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class SharedRequests(Generic[K, T, R]):
    """Requests of one kind, a lane for each key. Loop thread only.

    In a lane calls are sent in the order in which they were made. Each has its own result, error
    and timeout; one that is cancelled takes nothing from those it shares a request with, and a
    request that nobody waits for any more is cancelled, too.
    """

    def __init__(
        self,
        send: Callable[[K, Sequence[T], float], Awaitable[Sequence[R | GoQueueError]]],
        fitting: Callable[[Iterable[T]], int],
        timeout_s: float,
    ) -> None:
        """`send` makes one request within so many seconds, and has a result or an error for each
        item, in their order. `fitting` tells how many of those that wait go in one
        request, from the first on: one or more. `timeout_s` bounds each call, its wait included."""
        self._send = send
        self._fitting = fitting
        self._timeout_s = timeout_s
        self._lanes: dict[K, _Lane[T, R]] = {}
        self._tasks = TaskSet(None, grace_s=CLOSING_S)

    async def call(self, key: K, item: T, *, abreast: int = 1) -> R | GoQueueError:
        """The item's result or error; a `Timeout` with the outcome none if it was never sent in
        time, and `Closed` if that is why. Raises nothing but what `send` raises.

        Requests of a lane follow each other, unless more of them may go `abreast`: then those that
        wait behind a slow one go beside it.
        """
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
            return await self._at_once(key, lane, item)
        loop = asyncio.get_running_loop()
        call: _Call[T, R] = _Call(item, loop.time() + self._timeout_s, loop.create_future())
        lane.waiting.append(call)
        lane.abreast = abreast
        self._watch(key, lane)
        late = loop.call_at(call.deadline_s, call.expire)
        try:
            return await call.result
        except asyncio.CancelledError:
            call.give_up()
            raise
        finally:
            late.cancel()

    async def close(self) -> None:
        """Nothing that waits is sent any more: it fails as closed, with the outcome none. What is
        on its way ends by itself, or is cut off soon. Idempotent."""
        for lane in self._lanes.values():
            while lane.waiting:
                lane.waiting.popleft().tell(Closed("the client is closed"))
        await self._tasks.stop()

    # -- private

    async def _at_once(self, key: K, lane: _Lane[T, R], item: T) -> R | GoQueueError:
        lane.under_way += 1
        try:
            # A turn of the loop, in which it learns that a server has closed the connection.
            await asyncio.sleep(0)
            (result,) = await self._send(key, [item], self._timeout_s)
        finally:
            self._ended(key, lane)
        return result

    def _ended(self, key: K, lane: _Lane[T, R]) -> None:
        lane.under_way -= 1
        try:
            self._go_on(key, lane)
        finally:
            if not lane.under_way:
                del self._lanes[key]

    def _go_on(self, key: K, lane: _Lane[T, R]) -> None:
        """Send what waits, as much of it as fits."""
        if lane.watch is not None:
            lane.watch.cancel()
            lane.watch = None
        lane.drop_given_up()
        if not lane.waiting:
            return
        calls = [
            lane.waiting.popleft() for _ in range(self._fitting(call.item for call in lane.waiting))
        ]
        lane.under_way += 1
        request = _Request(len(calls))
        for call in calls:
            call.request = request
        # Several calls have no context in common: a trace of one is not the others'.
        context = calls[0].context if len(calls) == 1 else Context()
        request.task = context.run(self._tasks.begin, self._run(key, lane, calls))
        self._watch(key, lane)

    async def _run(self, key: K, lane: _Lane[T, R], calls: Sequence[_Call[T, R]]) -> None:
        left_s = calls[-1].deadline_s - asyncio.get_running_loop().time()
        cut_off = Closed("the client was closed", outcome="unknown")
        results: Sequence[R | GoQueueError] = [cut_off] * len(calls)
        try:
            results = await self._send(key, [call.item for call in calls], left_s)
        except Exception as error:  # noqa: BLE001 - told to each of the callers
            for call in calls:
                call.fail(error)
        finally:
            for call, result in zip(calls, results, strict=True):
                call.tell(_own(result) if len(calls) > 1 else result)
            self._ended(key, lane)

    def _watch(self, key: K, lane: _Lane[T, R]) -> None:
        """Look again soon, where somebody waits who may go beside what is on its way."""
        if lane.waiting and lane.watch is None and lane.under_way < lane.abreast:
            loop = asyncio.get_running_loop()
            lane.watch = loop.call_later(SLOW_S, self._go_on, key, lane)


@dataclass(slots=True, eq=False)
class _Request:
    """One that is shared; `left` of its callers still wait for it."""

    left: int
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class _Call(Generic[T, R]):
    """A call that waits, and then is on its way."""

    item: T
    deadline_s: float
    result: asyncio.Future[R | GoQueueError]
    context: Context = field(default_factory=copy_context)
    request: _Request | None = None

    def tell(self, result: R | GoQueueError) -> None:
        if not self.result.done():  # its caller has given up, or its time was over
            self.result.set_result(result)

    def fail(self, error: Exception) -> None:
        if not self.result.done():
            self.result.set_exception(error)

    def expire(self) -> None:
        if self.request is None:
            self.tell(Timeout("not sent in time: others are on their way still", outcome="none"))
        else:
            self.tell(Timeout("no answer in time"))

    def give_up(self) -> None:
        if not self.result.cancelled():
            self.result.exception()  # told in the same moment
        if self.request is not None:
            self.request.left -= 1
            if not self.request.left and self.request.task is not None:
                self.request.task.cancel()


@dataclass(slots=True, eq=False)
class _Lane(Generic[T, R]):
    """Calls of one key, in their order; a lane is there while a request is on its way."""

    waiting: deque[_Call[T, R]] = field(default_factory=deque["_Call[T, R]"])
    under_way: int = 0
    abreast: int = 1
    watch: asyncio.TimerHandle | None = None

    def drop_given_up(self) -> None:
        if any(call.result.done() for call in self.waiting):
            self.waiting = deque(call for call in self.waiting if not call.result.done())


def _own(result: R | GoQueueError) -> R | GoQueueError:
    """An error of several callers, as one for each of them: raising changes it."""
    if not isinstance(result, GoQueueError):
        return result
    own = GoQueueError.from_body(result.to_body())
    own.__cause__ = result.__cause__
    return own
