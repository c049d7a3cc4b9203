"""A consumer's membership: joins, heartbeats that wait for news, partitions got and let go of.

Heartbeats are long polls of their own, or what a stream tells; nothing that a handler does holds
them up. A partition that
is to be let go of is told to be free as soon as nothing of it is worked on. A member that was given
up as dead learns so by its next heartbeat: all it had is lost, and it joins anew.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol

from goqueue.background import TaskSet
from goqueue.consume.assignment import Holdings, State
from goqueue.consume.line import Line
from goqueue.models.failures import is_final
from goqueue.models.groups import MemberAnswer, TopicPartition
from goqueue.models.options import Assignor, GroupMode
from goqueue.models.times import Duration
from goqueue.wire.errors import GoQueueError, UnknownGroup, UnknownMember

if TYPE_CHECKING:
    from goqueue.api.client import AsyncClient

WAIT_S_MAX = 20.0
ANSWER_S = (0.3, 5.0)
"""The least and the most that an answer may take beyond its wait."""
OLD_PAUSE_S = 0.05
"""After an answer that told nothing new before its time: of a node that is a bit behind."""
LEAVE_S = 5.0

log = logging.getLogger(__name__)

Listener = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""Is told of partitions; what it returns is awaited."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member joins with; see `AsyncClient.join_group`. One that is not static has no
    `instance_id`: it makes one up, so that a join is safe to repeat."""

    group: str
    topics: Sequence[str]
    patterns: Sequence[str]
    client_id: str
    instance_id: str | None
    session_timeout: Duration | None
    rebalance_timeout: Duration | None
    mode: GroupMode | None
    assignor: Assignor | None


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of partitions that were got, are let go of, and were lost; one at a time."""

    on_assign: Listener | None = None
    on_revoke: Listener | None = None
    on_lost: Listener | None = None


class Desk(Protocol):
    """The consumer, as its membership sees it."""

    def put_down(self, places: Sequence[TopicPartition]) -> Awaitable[None]:
        """Give back what is buffered of these partitions: nobody begins it any more; waits for a
        short while until it is told."""
        ...

    def is_idle(self, place: TopicPartition) -> bool:
        """Whether nothing of it is worked on."""
        ...

    async def idle(self, place: TopicPartition) -> None:
        """Wait until nothing of it is worked on."""
        ...

    def lost(self, places: Sequence[TopicPartition]) -> None:
        """These are somebody else's."""
        ...


class MemberSession:
    """One consumer in its group. `join`, then `run` until it is cancelled."""

    def __init__(
        self,
        client: AsyncClient,
        wanted: Subscription,
        listeners: Listeners,
        desk: Desk,
        line: Line,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when what to receive from is another set."""
        self._client = client
        self._line = line
        self._wanted = wanted
        self._listeners = listeners
        self._desk = desk
        self._changed = changed
        self._instance_id = wanted.instance_id or f"{wanted.client_id}-{uuid.uuid4().hex[:12]}"
        self._holdings = Holdings()
        self._owned = TaskSet(None)
        self._joining: asyncio.Task[MemberAnswer] | None = None
        self._told: MemberAnswer | None = None
        self._opening: set[TopicPartition] = set()
        """Got, but `on_assign` has not returned."""
        self._leaving: set[TopicPartition] = set()
        """`on_revoke` is told of them, and has not returned."""
        self._handing: set[TopicPartition] = set()
        """There is a task that lets go of them."""
        self._listening = asyncio.Lock()
        self._urgent = asyncio.Event()
        self._is_ending = False
        self._last: list[TopicPartition] = []
        """What was to be let go of when it ended."""
        self._failures = 0
        self._session_s = 30.0
        self.member = ""
        self.mode = "exclusive"

    # -- what is so

    @property
    def generation(self) -> int:
        return self._holdings.generation

    @property
    def assigned(self) -> list[TopicPartition]:
        """All that is this member's, also what it is about to let go of."""
        return self._holdings.assigned

    @property
    def claim(self) -> int:
        """The generation to receive in. Members that share partitions own none."""
        return 0 if self.mode == "shared" else self._holdings.generation

    def active(self) -> list[TopicPartition]:
        """What to receive from."""
        closed = self._opening | self._leaving
        return [place for place in self._holdings.active if place not in closed]

    # -- what is done

    async def join(self) -> None:
        """Raises what joining raises. The instance id makes it safe to repeat."""
        self._joining = self._owned.begin(self._ask_to_join())
        told = await asyncio.shield(self._joining)
        self.member, self.mode = told.member_id, told.mode
        self._session_s = told.session_timeout_ms / 1000
        self._holdings = Holdings()
        self._told = told

    async def _ask_to_join(self) -> MemberAnswer:
        wanted = self._wanted
        return await self._client.join_group(
            wanted.group,
            wanted.topics,
            patterns=wanted.patterns,
            client_id=wanted.client_id,
            instance_id=self._instance_id,
            session_timeout=wanted.session_timeout,
            rebalance_timeout=wanted.rebalance_timeout,
            mode=wanted.mode,
            assignor=wanted.assignor,
        )

    async def run(self) -> None:
        """Raises what no repeat can mend."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                told, self._told = self._told, None
                if told is not None:
                    self._take_in(told, tasks)
                try:
                    await self._beat(tasks)
                    self._failures = 0
                except (UnknownMember, UnknownGroup) as error:
                    await self._rejoin(error)
                except GoQueueError as error:
                    if is_final(error):
                        raise
                    await self._pause(error)

    async def leave(self) -> None:
        """Tell the group that this member goes, also one whose join was given up on its way; if it
        can't be told, its session runs out."""
        member = self.member
        if self._joining is not None:
            with suppress(GoQueueError, TimeoutError):
                member = (await asyncio.wait_for(self._joining, LEAVE_S)).member_id
        if member:
            with suppress(GoQueueError):
                await self._client.leave_group(self._wanted.group, member, timeout_s=LEAVE_S)

    def suspend(self, places: Sequence[TopicPartition], generation: int) -> list[TopicPartition]:
        """Leaders refused these: don't receive from them, and ask whose they are; which of them
        were received from."""
        self._urgent.set()
        return self._holdings.suspend(places, generation)

    async def say_goodbye(self) -> None:
        """`on_revoke` for all that is left, as the consumer closes; it gets nothing any more."""
        self._is_ending = True
        self._last = self._holdings.leaving
        if places := [place for place in self._holdings.lose() if place not in self._leaving]:
            await self._tell(self._listeners.on_revoke, places)

    async def rest(self) -> None:
        """Stay a member until the session runs out, but let go of what others wait for."""
        if self._last:
            with suppress(GoQueueError):
                await self._client.heartbeat(
                    self._wanted.group, self.member, let_go=self._last, timeout_s=LEAVE_S
                )

    # -- heartbeats

    async def _beat(self, tasks: asyncio.TaskGroup) -> None:
        """One heartbeat; without an answer where something more urgent came up."""
        loop, holdings = asyncio.get_running_loop(), self._holdings
        let_go = holdings.released
        is_urgent = bool(let_go) or self._urgent.is_set() or self._failures > 0
        self._urgent.clear()
        wait_s = 0.0 if is_urgent else min(self._session_s / 3, WAIT_S_MAX)
        asked_s, asked_revision = loop.time(), None if is_urgent else holdings.revision
        told = await self._ask(asked_revision, wait_s, let_go)
        if told is None:
            return
        self._take_in(told, tasks)
        is_early = loop.time() - asked_s < min(wait_s / 2, OLD_PAUSE_S)
        is_old = told.generation < holdings.generation or told.revision == asked_revision
        if is_old and is_early:
            self._client.transport.turn_away()
        if holdings.released or (is_old and (is_early or is_urgent)):
            await asyncio.sleep(OLD_PAUSE_S)

    async def _ask(
        self, revision: str | None, wait_s: float, let_go: Sequence[TopicPartition]
    ) -> MemberAnswer | None:
        answer_s = min(max(self._session_s / 6, ANSWER_S[0]), ANSWER_S[1])
        asking = asyncio.ensure_future(
            self._line.heartbeat(
                self.member,
                revision=revision,
                wait_s=wait_s,
                let_go=let_go,
                answer_s=answer_s,
            )
        )
        urgent = asyncio.ensure_future(self._urgent.wait())
        try:
            ends = {asking, urgent} if wait_s else {asking}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            urgent.cancel()
            asking.cancel()

    async def _pause(self, error: GoQueueError) -> None:
        self._failures += 1
        log.log(logging.DEBUG if error.retriable else logging.WARNING, "%s", error.message)
        pause_s = self._client.transport.pause_s(self._failures)
        await asyncio.sleep(min(pause_s, self._session_s / 10))

    async def _rejoin(self, cause: GoQueueError) -> None:
        """The group knows this member no more. Raises the cause where another consumer was started
        with its instance id: there is only one of each."""
        lost = self._holdings.lose()
        self._desk.lost(lost)
        if lost:
            await self._tell(self._listeners.on_lost, lost)
        if self._wanted.instance_id is not None and cause.data.get("replaced"):
            raise cause
        log.warning("%s", cause.message)
        while True:
            try:
                await self.join()
                return
            except GoQueueError as error:
                if is_final(error):
                    raise
                await self._pause(error)

    # -- partitions

    def _take_in(self, told: MemberAnswer, tasks: asyncio.TaskGroup) -> None:
        if self._is_ending:
            return
        changes = self._holdings.fold(told)
        if changes.lost:
            self._desk.lost(changes.lost)
            tasks.create_task(self._tell(self._listeners.on_lost, changes.lost))
        if changes.revoked:
            put_down = self._desk.put_down(changes.revoked)
            tasks.create_task(self._hand_over(changes.revoked, put_down, tasks))
        if changes.assigned:
            self._open(changes.assigned, tasks.create_task)
        self._changed()

    def _open(
        self,
        places: list[TopicPartition],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        if self._listeners.on_assign is not None:
            self._opening.update(places)
            spawn(self._assign(places))

    async def _assign(self, places: list[TopicPartition]) -> None:
        try:
            await self._tell(self._listeners.on_assign, places)
        finally:
            self._opening.difference_update(places)
            self._changed()

    async def _hand_over(
        self,
        places: Sequence[TopicPartition],
        put_down: Awaitable[None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Those that nothing is worked on go at once, the others as each is done."""
        mine = [place for place in places if place not in self._handing]
        self._handing.update(mine)
        await put_down
        busy = [place for place in mine if not self._desk.is_idle(place)]
        for place in busy:
            tasks.create_task(self._let_go([place]))
        await self._let_go([place for place in mine if place not in busy])

    async def _let_go(self, places: list[TopicPartition]) -> None:
        """Those that stay after all may be asked for again meanwhile: they are let go of anew."""
        try:
            while going := await self._idle(places):
                await self._let_go_of(going)
        finally:
            self._handing.difference_update(places)

    async def _idle(self, places: list[TopicPartition]) -> list[TopicPartition]:
        """Those to be let go of, once nothing of any is worked on."""
        for place in places:
            await self._desk.idle(place)
        return [place for place in places if self._holdings.state(place) is State.REVOKING]

    async def _let_go_of(self, places: list[TopicPartition]) -> None:
        holdings = self._holdings
        self._leaving.update(places)
        try:
            await self._tell(self._listeners.on_revoke, places)
        finally:
            self._leaving.difference_update(places)
            self._changed()
        if [place for place in places if holdings.release(place)]:
            self._urgent.set()
        if stayed := [place for place in places if holdings.state(place) is State.ACTIVE]:
            self._opening.update(stayed)
            await self._assign(stayed)

    async def _tell(self, listener: Listener | None, places: list[TopicPartition]) -> None:
        if listener is None:
            return
        async with self._listening:
            try:
                answer = listener(sorted(places))
                if isawaitable(answer):
                    await answer
            except Exception:  # the listener's; partitions must move all the same
                log.exception("a rebalance callback failed")
