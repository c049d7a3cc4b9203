"""Receiving for a consumer over streams, one after the other; by long polls where there is none.

The first attempt is made before anything is polled. A server that knows no streams, or a proxy that
lets none through, is asked again later, and polled meanwhile. A stream that breaks is followed by
one to another server at once. What it had delivered is lost to this consumer then: it comes again,
to whomever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from goqueue.background import TaskSet
from goqueue.consume.credit import FULL_S, Credit, Room
from goqueue.consume.fetcher import MISSING_PAUSE_S, Claimant, Intake
from goqueue.consume.line import Line
from goqueue.consume.prefetch import LOWEST
from goqueue.models.failures import is_final
from goqueue.models.groups import TopicPartition
from goqueue.models.queued import MessageBody, Received, Settles, received_message
from goqueue.stream import frames
from goqueue.stream.connection import Ended, Stream
from goqueue.stream.frames import BYTES_MAX, MESSAGES_MAX, Grant, Subscribe
from goqueue.transport.http import join
from goqueue.transport.spans import SPANS
from goqueue.wire.errors import (
    ConnectionFailed,
    GoQueueError,
    GroupHalted,
    NotFound,
    StaleGeneration,
    Timeout,
)

if TYPE_CHECKING:
    from goqueue.api.client import AsyncClient

OPEN_S = 3.0
"""So long a stream may take to begin; polls wait for the first one."""
QUIET_S = 10.0
"""A server that is silent for so long is gone."""
LOOK_AGAIN_S = 30.0
"""When a server that refused a stream is asked again."""
BRIEF_S = 10.0
BRIEF_MAX = 3
"""So many streams in a row that broke sooner than that are as good as a refusal: each costs an
attempt of all that it had delivered."""

log = logging.getLogger(__name__)


class Source(Protocol):
    """The consumer, as its streams see it."""

    @property
    def settler(self) -> Settles: ...

    def claimant(self) -> Claimant: ...

    def room(self) -> Room: ...

    def came(self, messages: Sequence[Received], asked_s: float, stream: object | None) -> None: ...

    def gone(self, stream: object) -> None:
        """What this stream delivered and is not settled has been given to others, or will be."""
        ...

    def refused(self, places: Sequence[TopicPartition], generation: int) -> None: ...


class Streams:
    """`run` receives until it is cancelled; `wake` tells it that something has changed. Its stream
    outlives `run`, as what was received is settled by it: until `close`."""

    def __init__(
        self,
        client: AsyncClient,
        group: str,
        source: Source,
        polls: Intake,
        line: Line,
        visibility_ms: int | None,
    ) -> None:
        """With a visibility leases are as those of polls; without, they last as long as their
        stream."""
        self._client = client
        self._group = group
        self._source = source
        self._polls = polls
        self._line = line
        self._visibility_ms = visibility_ms
        self._credit = Credit()
        self._told: tuple[TopicPartition, ...] = ()
        """The partitions that the server was told to deliver from."""
        self._has_moved = False
        """They may be others now, or this be another member."""
        self._failures = 0
        self._brief = 0
        self._is_ending = False
        self._tasks = TaskSet(None)
        self._failure: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Raises what no repeat can mend."""
        self._failure = asyncio.get_running_loop().create_future()
        self._polls.rest(True)
        self._tasks.begin(self._keep())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._polls.run())
            await self._failure

    def wake(self) -> None:
        self._has_moved = True
        self._polls.wake()
        if self._line.stream is not None:
            self._line.stream.wake()

    async def end(self) -> None:
        """Open no other stream, and poll no more. Idempotent."""
        self._is_ending = True
        await self._polls.end()

    async def close(self) -> None:
        """End the stream in order, which gives back what is not settled: returns when that is done,
        or soon. Idempotent."""
        self._is_ending = True
        if self._line.stream is not None:
            await self._line.stream.close()
        await self._tasks.stop()

    # -- as its stream sees it

    def came(self, stream: Stream, bodies: Sequence[MessageBody]) -> None:
        with SPANS.receiving(self._group) as came:
            settler = self._source.settler
            messages = [received_message(body, self._group, settler) for body in bodies]
            came(messages)
        self._source.came(messages, asyncio.get_running_loop().time(), stream)

    def troubled(self, stream: Stream, error: GoQueueError) -> None:
        log.debug("nothing comes over the stream: %s", error.message)
        if isinstance(error, GroupHalted):
            self._fail(error)

    def grant(self, stream: Stream) -> Grant | None:
        credit, loop = self._credit, asyncio.get_running_loop()
        room, before, full_s = self._source.room(), credit.lowest, credit.full_s
        is_due = credit.due(room, loop.time())
        if credit.full_s is not None and credit.full_s != full_s:
            loop.call_later(1.1 * FULL_S, stream.wake)  # timers may be a bit early
        self._polls.rest(room.unsettled < MESSAGES_MAX)
        places = self._moved(stream) if self._has_moved else None
        if not is_due and places is None:
            return None
        return Grant(
            min(credit.messages, MESSAGES_MAX),
            BYTES_MAX,
            lowest_priority=credit.lowest if credit.lowest != before else None,
            assignment=places,
        )

    # -- private

    def _moved(self, stream: Stream) -> Sequence[TopicPartition] | None:
        """From where to deliver from now on, where that has changed."""
        self._has_moved = False
        who = self._source.claimant()
        if who.member != stream.member:
            stream.leave()
        places = tuple(who.places)
        if places == self._told:
            return None
        self._told = places
        return places

    def _fail(self, error: Exception) -> None:
        """Receiving is over; what was received may be settled."""
        self._is_ending = True
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _keep(self) -> None:
        try:
            while not self._is_ending:
                pause_s = await self._one()
                if pause_s:
                    self._polls.rest(False)
                    await asyncio.sleep(pause_s)
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self._fail(error)

    async def _one(self) -> float:
        """One stream, from its beginning to its end; how long to rest afterwards. Raises what no
        repeat can mend."""
        begun_s = asyncio.get_running_loop().time()
        try:
            await self._stream()
        except Ended as error:
            return self._after(error, asyncio.get_running_loop().time() - begun_s)
        except GoQueueError as error:
            log.debug("no stream: %s", error.message)
            if is_final(error):
                raise
            return self._refused(error)
        return 0.0

    async def _stream(self) -> None:
        who = self._source.claimant()
        path = join("groups", self._group, "stream")
        async with self._client.transport.socket(path, answer_s=OPEN_S, quiet_s=QUIET_S) as socket:
            stream = Stream(socket, who.member, self)
            await self._begin(stream, who)
            self._line.stream = stream
            self._polls.rest(True)
            stream.wake()
            try:
                await stream.run()
            finally:
                self._line.stream = None
                self._source.gone(stream)

    async def _begin(self, stream: Stream, who: Claimant) -> None:
        self._credit = Credit()
        self._credit.due(self._source.room(), asyncio.get_running_loop().time())
        self._told = tuple(who.places)
        subscribe = Subscribe(
            who.member,
            self._told,
            frames.Credit(min(self._credit.messages, MESSAGES_MAX), BYTES_MAX),
            who.generation or None,
            None if self._credit.lowest == LOWEST else self._credit.lowest,
            self._visibility_ms,
        )
        try:
            async with asyncio.timeout(OPEN_S):
                await stream.begin(subscribe)
        except TimeoutError:
            raise Timeout(f"no stream began within {OPEN_S:g} s") from None

    def _after(self, ended: Ended, lived_s: float) -> float:
        log.debug("a stream has ended, in order: %s: %s", ended.in_order, ended.message)
        transport = self._client.transport
        self._failures = 0
        if ended.moved:  # the transport has left it for another server
            return 0.0 if len(transport.servers) > 1 else transport.pause_s(1)
        self._brief = 0 if ended.in_order or lived_s >= BRIEF_S else self._brief + 1
        return LOOK_AGAIN_S if self._brief >= BRIEF_MAX else 0.0

    def _refused(self, error: GoQueueError) -> float:
        self._failures += 1
        transport = self._client.transport
        if isinstance(error, ConnectionFailed) and self._failures < len(transport.servers):
            return 0.0  # another server has not been asked yet
        if isinstance(error, NotFound | StaleGeneration):  # a node that is behind, or this member
            self._source.refused([], 0)
            return MISSING_PAUSE_S
        if error.http_status >= 500 or isinstance(error, Timeout):
            return transport.pause_s(self._failures)
        return LOOK_AGAIN_S
