"""A consumer's messages from their arrival until they are settled.

They wait in a bounded buffer, are handed out, and are settled through here, so that it is known of
each partition whether anything of it is worked on. Leases are kept up for as long as somebody means
to end them: while a message waits, and while it is worked on. A stream keeps them up by itself:
there a lease that nobody means to end is given the end that it would have had. Members that share
partitions don't hoard: what has waited for a whole lease goes back, for others to take.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import Any

from goqueue.consume.credit import Room
from goqueue.consume.in_flight import InWork, Work
from goqueue.consume.line import Line
from goqueue.consume.prefetch import Held, Prefetch, Want
from goqueue.consume.settle_queue import SettleQueue, Told, teller
from goqueue.models.groups import TopicPartition
from goqueue.models.options import Action, Position
from goqueue.models.queued import Leased, Received
from goqueue.models.settles import ACTIONS, Settle, Settled, SettleResult
from goqueue.models.times import Duration, duration_ms
from goqueue.transport.spans import SPANS
from goqueue.wire.errors import BadRequest, GoQueueError

RELEASE_S = 0.05
"""How long a partition's handover waits for the answer that its buffered messages went back."""
LOOK_S_MIN = 0.05
_UNTRACED = nullcontext()
UNANSWERED_MAX = 1000
"""Settles on their way; beyond them nothing is received."""

log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
"""Runs work that nobody has to wait for."""


class Workbench:
    """Nothing is handed out after `stop`; `changed` is called when it may want other messages."""

    def __init__(
        self,
        line: Line,
        *,
        prefetch: int,
        work_s: float,
        spawn: Spawn,
        changed: Callable[[], None],
    ) -> None:
        self._line = line
        self._buffer = Prefetch(prefetch)
        self._in_work = InWork()
        self._work_s = work_s
        self._spawn = spawn
        self._changed = changed
        self._settles = SettleQueue(line.settle, spawn, self._look)
        self._news = asyncio.Event()
        self._extending: set[str] = set()
        self._releases: set[asyncio.Task[None]] = set()
        self._releasing = 0
        """Messages that are on their way back."""
        self._lowest: int | None = None
        """The lowest lane that it wanted when it said so last."""
        self._stopped = False
        self._is_traced = False
        """Whether the application recorded spans when messages came last."""
        self.visibility_s = 30.0
        self.is_shared = False
        self.lasting = True
        """Whether leases of a stream end with it, and no sooner."""

    # -- messages come and are handed out

    def hold_up_to(self, bound: int) -> None:
        """So many may wait from now on; what is too many goes back."""
        if bound != self._buffer.bound:
            self._buffer.bound = bound
            self._give_back(self._buffer.overflow())
            self._changed()

    def want(self) -> Want | None:
        """What to receive now; None for nothing, also while many settles are unanswered."""
        if self._stopped or self._settles.unanswered > UNANSWERED_MAX:
            return None
        return self._buffer.want()

    def room(self) -> Room:
        """What a stream has room for."""
        waiting = len(self._buffer)
        unsettled = waiting + len(self._in_work) + self._releasing
        return Room(self._buffer.bound, waiting, unsettled, self.want())

    def came(
        self,
        messages: Sequence[Received],
        asked_s: float,
        places: Iterable[TopicPartition],
        stream: object | None = None,
    ) -> None:
        """Messages were received, over a stream, or else with leases that began after `asked_s`.
        Those that are not of these places, or have no room, go back."""
        now_s, wanted = _now_s(), set(places)
        self._is_traced = SPANS.is_active()
        lasts_s = inf if stream is not None and self.lasting else asked_s + self.visibility_s
        back: list[Held] = []
        for message in messages:
            held = Held(message, now_s, lasts_s, stream)
            if self._stopped or held.place not in wanted:
                back.append(held)
            else:
                self._buffer.add(held)
        self._give_back(back + self._buffer.overflow())
        if len(self._buffer):
            self._news.set()

    def take(self, by: object, *, is_handled: bool) -> Received | None:
        """Hand out the next message to `by`; None where there is none."""
        now_s = _now_s()
        while (held := self._buffer.take(now_s)) is not None:
            if held.deadline_s > now_s:
                self._look()
                return self._in_work.begin(held, by, now_s, is_handled=is_handled)
            log.warning("the lease of %s is over before it was begun", held.message.id)
        return None

    def processing(self, message: Received) -> AbstractContextManager[None]:
        """The span of a handler's work, around it."""
        return SPANS.processing(message) if self._is_traced else _UNTRACED

    async def news(self) -> None:
        """Wait until messages came, or none will."""
        if not self._stopped:
            self._news.clear()
            await self._news.wait()

    def put_aside(self, by: object, *, ack: bool) -> None:
        """`by` is done with what it was handed before, and settled it, or does so in time; with
        `ack`, it is settled here."""
        for work in self._in_work.put_aside(by):
            if ack and not work.is_ending:
                self._end(work, Settle(work.held.message.receipt))

    def gone(self, stream: object) -> None:
        """A stream has ended: what came over it has been given to others, or will be. What waits is
        dropped. What is worked on may be in vain; for as long as a lease lasts it is known who
        works on it."""
        self._buffer.remove(lambda held: held.stream is stream)
        until_s = _now_s() + self.visibility_s
        for work in self._in_work.all():
            if work.held.stream is stream:
                work.held.is_lost = True
                work.held.deadline_s = min(work.held.deadline_s, until_s)
        self._look()

    # -- partitions move

    def put_down(self, places: Iterable[TopicPartition]) -> asyncio.Future[None]:
        """Give back what waits of these partitions; done when that is told, or soon."""
        return self._give_back(self._buffer.drop(set(places)))

    def is_idle(self, place: TopicPartition) -> bool:
        """Whether nothing of the partition is worked on."""
        return not self._in_work.has(place)

    async def idle(self, place: TopicPartition) -> None:
        """Wait until nothing of the partition is worked on."""
        await self._in_work.ended(lambda work: work.held.place == place)

    def lost(self, places: Sequence[TopicPartition]) -> None:
        """These are somebody else's: what waits of them is dropped, their leases have ended. Where
        members share partitions leases stand: what waits is given back."""
        if self.is_shared:
            self.put_down(places)
            return
        self._buffer.drop(places)
        self._in_work.lose(places)

    # -- settling

    async def settle_one(
        self,
        message: Leased,
        action: Action,
        *,
        reason: str = "",
        delay: Duration | None = None,
        position: Position | None = None,
        visibility: Duration | None = None,
    ) -> Settled:
        """What a message's own methods do. Raises its error."""
        if action not in ACTIONS:
            raise BadRequest(f"action {action!r}: want one of {', '.join(ACTIONS)}")
        settle = Settle(message.receipt, action, reason, delay, position, visibility)
        settle.to_body()
        work = self._in_work.get(message.receipt)
        told: asyncio.Future[SettleResult] = asyncio.get_running_loop().create_future()
        asked_s, is_extended = _now_s(), action == "extend"
        if work is None or is_extended:
            self._put(settle, message, teller(told))
        else:
            self._end(work, settle, teller(told), may_repeat=True)
        result = await told
        if (
            work is not None
            and is_extended
            and visibility is not None
            and isinstance(result, Settled)
        ):
            work.held.deadline_s = asked_s + duration_ms(visibility, "visibility") / 1000
        if isinstance(result, GoQueueError):
            raise result
        return result

    def finish(
        self, message: Received, action: Action, reason: str = "", delay_s: float | None = None
    ) -> None:
        """A handler has ended: settle its message, unless it has done so itself."""
        work = self._in_work.get(message.receipt)
        if work is not None and not work.is_ending:
            self._end(work, Settle(message.receipt, action, reason, delay_s))

    def _end(
        self, work: Work, settle: Settle, told: Told | None = None, *, may_repeat: bool = False
    ) -> None:
        """With `may_repeat`, it is still worked on where that fails for now."""
        work.is_ending = True

        def ended(result: SettleResult) -> None:
            is_open = False
            if isinstance(result, GoQueueError):
                log.info("%s of %s: %s", settle.action, work.held.message.id, result.message)
                is_open = result.retriable
            if is_open and may_repeat:
                work.is_ending = False
            elif is_open and work.held.deadline_s == inf:
                self._in_work.let_lapse(work)
            else:
                self._in_work.end(settle.receipt)
            if told is not None:
                told(result)

        self._put(settle, work.held.message, ended)

    def _put(self, settle: Settle, message: Leased, told: Told) -> None:
        place = TopicPartition(message.topic, message.partition)
        if not self._is_traced:
            self._settles.put(settle, place, told)
            return
        ended = SPANS.settling(settle.action, [message])

        def told_and_ended(result: SettleResult) -> None:
            ended(result if isinstance(result, GoQueueError) else None)
            told(result)

        self._settles.put(settle, place, told_and_ended)

    # -- leases

    async def keep_leases(self) -> None:
        """For ever: extend leases when half of their time is over, and end those that last as long
        as a stream, and that nobody means to end."""
        while True:
            await asyncio.sleep(max(self.visibility_s / 6, LOOK_S_MIN))
            now_s = _now_s()
            self._in_work.expire(now_s)
            self._look()
            if self.is_shared:
                self._give_back(self._buffer.came_before(now_s - self.visibility_s))
            for held in self._to_extend(now_s):
                self._extending.add(held.message.receipt)
                self._spawn(self._extend(held))

    def _to_extend(self, now_s: float) -> list[Held]:
        found = [held for held in self._buffer.all() if held.deadline_s != inf]
        for work in self._in_work.all():
            is_kept = work.by is not None and now_s - work.begun_s < self._work_s
            if not work.is_ending and is_kept != (work.held.deadline_s == inf):
                found.append(work.held)
        return [
            held
            for held in found
            if not held.is_lost
            and held.message.receipt not in self._extending
            and (held.deadline_s == inf or held.deadline_s - now_s < self.visibility_s / 2)
        ]

    async def _extend(self, held: Held) -> None:
        receipt, asked_s = held.message.receipt, _now_s()
        try:
            result = await self._settles.settled(
                Settle(receipt, "extend", visibility=self.visibility_s), held.place
            )
        finally:
            self._extending.discard(receipt)
        if isinstance(result, Settled):
            held.deadline_s = asked_s + self.visibility_s
        elif not result.retriable:  # somebody else's, or settled
            self._buffer.remove(lambda other: other is held)
            self._look()

    # -- the end

    def stop(self) -> asyncio.Future[None]:
        """Hand out nothing more, and give back what waits; done when that is told, or soon."""
        self._stopped = True
        self._news.set()
        return self._give_back(self._buffer.remove(lambda _: True))

    async def ended(self) -> None:
        """Wait until nothing is worked on."""
        await self._in_work.ended(lambda _: True)

    async def handled(self) -> None:
        """Wait until no handler works on anything."""
        await self._in_work.ended(lambda work: work.is_handled)

    async def finish_all(self, action: Action) -> None:
        """Settle all that is still handed out, and wait until all is answered."""
        for work in self._in_work.all():
            if not work.is_ending:
                self._end(work, Settle(work.held.message.receipt, action))
        await self._settles.flush()
        if self._releases:
            await asyncio.wait(set(self._releases))

    def close(self) -> None:
        """Nothing is settled any more. Idempotent."""
        self._settles.close()

    # -- giving back

    def _look(self) -> None:
        """Say so when it wants messages of other lanes than it did, and to its stream at once."""
        if self._line.stream is not None:
            self._line.stream.wake()
        want = self.want()
        lowest = None if want is None else want.lowest
        if lowest != self._lowest:
            self._lowest = lowest
            self._changed()

    def _give_back(self, held: Sequence[Held]) -> asyncio.Future[None]:
        """Done when that is told, or soon."""
        if not held:
            self._look()
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            done.set_result(None)
            return done
        self._releasing += len(held)
        self._look()
        releasing = self._spawn(self._release(held))
        self._releases.add(releasing)
        releasing.add_done_callback(lambda task: self._released(task, len(held)))
        return self._spawn(_soon(releasing))

    def _released(self, releasing: asyncio.Task[None], messages: int) -> None:
        self._releases.discard(releasing)
        self._releasing -= messages
        self._look()

    async def _release(self, held: Sequence[Held]) -> None:
        """What can't be given back comes again when its lease is over, or has another owner."""
        settles = [Settle(one.message.receipt, "release") for one in held]
        results = await self._line.settle(settles)
        failed = [
            (one, result)
            for one, result in zip(held, results, strict=True)
            if isinstance(result, GoQueueError)
        ]
        if failed:
            log.info("%d messages not given back: %s", len(failed), failed[0][1].message)
        for one, result in failed:
            if result.retriable and one.deadline_s == inf:
                self._in_work.begin(one, None, _now_s(), is_handled=False)


async def _soon(releasing: asyncio.Task[None]) -> None:
    await asyncio.wait({releasing}, timeout=RELEASE_S)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
