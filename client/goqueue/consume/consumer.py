"""The consumer: a member of a group that receives from its partitions, ahead of its handlers.

It joins, sends heartbeats, receives, keeps leases up and hands partitions over by itself, whatever
the handlers do meanwhile, and goes on over elections and restarts of any node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType
from typing import Any, Unpack

from goqueue.api.client import AsyncClient
from goqueue.background import TaskSet, is_cancelled
from goqueue.consume.deliveries import Workbench
from goqueue.consume.fetcher import Intake
from goqueue.consume.line import Line
from goqueue.consume.membership import Listener, Listeners, MemberSession, Subscription
from goqueue.consume.sigterm import ending_by_sigterm
from goqueue.consume.source import MemberSource
from goqueue.consume.streams import Streams
from goqueue.models.failures import Closed
from goqueue.models.groups import TopicPartition
from goqueue.models.options import (
    Action,
    ConsumerOptions,
    ConsumerSettings,
    Position,
    check_options,
)
from goqueue.models.outcomes import Reject, Retry, failed
from goqueue.models.queued import Leased, Received
from goqueue.models.settles import Settled
from goqueue.models.times import Duration, duration_ms, visibility_s

FLUSH_S = 5.0
"""How long closing waits for settles on their way."""
DRAIN_S = 60.0

log = logging.getLogger(__name__)

Handler = Callable[[Received], Awaitable[object] | object]


class AsyncConsumer:
    """A member of a group. Use as `async with`, and iterate over it or `run` a handler:

        async with AsyncConsumer(urls, "billing", "orders") as consumer:
            async for message in consumer:
                await message.ack()

    A message is leased to this consumer until it is settled; its lease is kept up while it waits
    here, and while it is worked on: until its handler ends, or whoever iterates asks for the next
    one. Each message comes at least once.
    """

    _intake: Intake | Streams | None = None
    _main: asyncio.Task[None] | None = None
    """All that goes on in the background, from the start to the end of closing."""
    _tasks: asyncio.TaskGroup | None = None
    _heartbeats: asyncio.Task[None] | None = None
    _receiving: asyncio.Task[None] | None = None
    _stopping = False
    _closing: asyncio.Task[None] | None = None
    _failure: BaseException | None = None

    def __init__(
        self,
        client: AsyncClient | str | Sequence[str],
        group: str,
        topics: str | Sequence[str] = (),
        *,
        rebalance_on_assign: Listener | None = None,
        rebalance_on_revoke: Listener | None = None,
        rebalance_on_lost: Listener | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Opens nothing: `start` does, or entering `async with`.

        `client` is one, or the servers' URLs. The group is created if there is none, in `mode`
        exclusive (each partition is one member's) or shared, with an `assignor`; `patterns` such as
        `orders.*` are for topics that may come. A static member has an `instance_id`: it does not
        leave when it closes, and if it is back within `session_timeout` (the group's if not given,
        30 s by default), nothing has moved.

        Up to `prefetch` messages wait here. They come over a stream where servers have it (from
        feature level 2 on), and are leased as long as that lives; else, or without `stream`, by
        long polls of up to `max_messages`, leased for `visibility` (the group's) again and again.
        Once a message is worked on its lease is kept up for `work_max` at most. With `auto_ack` a
        message that was iterated over is acked when the next one is asked for.

        The callbacks are told of partitions: got, before anything of them is received; to be let go
        of, once nothing of them is worked on and before another member gets them, all within
        `rebalance_timeout` (the group's, 60 s); and lost, when others have them already.
        """
        check_options("AsyncConsumer()", options, ConsumerOptions)
        self._settings = settings = ConsumerSettings(**options)
        self._owns_client = not isinstance(client, AsyncClient)
        self._client = client if isinstance(client, AsyncClient) else AsyncClient(client)
        self._line = Line(self._client, group)
        self._bench = Workbench(
            self._line,
            prefetch=settings.prefetch,
            work_s=duration_ms(settings.work_max, "work_max") / 1000,
            spawn=self._spawn,
            changed=self._wake,
        )
        patterns = settings.patterns
        self._wanted = wanted = Subscription(
            group,
            [topics] if isinstance(topics, str) else list(topics),
            [patterns] if isinstance(patterns, str) else list(patterns),
            settings.client_id,
            settings.instance_id,
            settings.session_timeout,
            settings.rebalance_timeout,
            settings.mode,
            settings.assignor,
        )
        listeners = Listeners(rebalance_on_assign, rebalance_on_revoke, rebalance_on_lost)
        self._session = MemberSession(
            self._client, wanted, listeners, self._bench, self._line, self._wake
        )
        self._source = MemberSource(self._session, self._bench)
        drain = settings.rebalance_timeout or DRAIN_S
        self._drain_s = duration_ms(drain, "rebalance_timeout") / 1000
        self._starting = asyncio.Lock()
        self._over = asyncio.Event()
        self._owned = TaskSet(None)

    async def __aenter__(self) -> AsyncConsumer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close("ack" if self._settings.auto_ack and error is None else "release")

    async def start(self) -> None:
        """Join the group; partitions come soon after. Raises where that is refused or no server can
        be reached. Does nothing where it has been started."""
        async with self._starting:
            if self._main is None:
                await self._start()

    async def _start(self) -> None:
        if self._is_closing:
            raise Closed("the consumer is closed")
        try:
            await self._session.join()
            self._bench.visibility_s = await self._visibility_s()
        except BaseException:
            await self._close("release")
            raise
        if self._is_closing:
            await self._close("release")
            raise Closed("the consumer was closed as it started")
        self._bench.is_shared = self._session.mode == "shared"
        self._intake = self._receiver()
        self._main = self._owned.begin(self._work(self._intake), f"goqueue {self._wanted.group}")
        self._main.add_done_callback(self._ended)

    async def close(self) -> None:
        """Receive nothing more, let handlers end (within the rebalance timeout), settle what they
        ended, give back the rest, and leave; a static member stays for its session timeout.
        Idempotent. Not for handlers, which it would wait for: they `stop` it."""
        await self._close("ack" if self._settings.auto_ack else "release")

    def stop(self) -> None:
        """Hand out nothing more: iteration and `run` end. `close` does the rest."""
        self._stopping = True
        if self._main is not None:
            self._bench.stop()

    # -- messages

    async def next(self, wait: Duration | None = None) -> Received | None:
        """The next message, within `wait`; None where none came, or the consumer was stopped.
        Raises what made it fail, such as `GroupHalted`.

        The lease of the one before, of the same task, is kept up no longer, and it is acked with
        `auto_ack`: rather `wait` than call this in a task of its own.
        """
        return await self.next_for(asyncio.current_task(), wait)

    async def next_for(self, who: object, wait: Duration | None = None) -> Received | None:
        """As `next`, in the name of `who`, whose former message's lease is kept up no longer."""
        await self.start()
        self._bench.put_aside(who, ack=self._settings.auto_ack)
        found = await self._take(who, wait, is_handled=False)
        if found is None and self._failure is not None:
            raise self._failure
        return found

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> Received:
        found = await self.next()
        if found is None:
            raise StopAsyncIteration
        return found

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Call the handler with each message, up to `concurrency` at once, until the consumer is
        stopped or closed; cancelling it gives back what was being handled. A handler that is not
        `async` must not block: a `Consumer` runs those in threads.

        A message whose handler returns is acked, one whose handler raises is nacked (`Retry` says
        when it comes again, `Reject` that it does not), unless the handler has settled it. Raises
        what made the consumer fail.

        In the main thread of a program that does not handle SIGTERM by itself, one SIGTERM lets the
        handlers that run end, leaves the group and returns; a second one ends the process at once.
        """
        wake = asyncio.get_running_loop().call_soon_threadsafe
        with ending_by_sigterm(lambda: wake(self.stop)) as ending:
            await self.start()
            async with asyncio.TaskGroup() as workers:
                for _ in range(concurrency):
                    workers.create_task(self._handle_all(handler))
        if ending.is_told:
            await self.close()
        if self._failure is not None:
            raise self._failure

    async def take_to_handle(self) -> Received | None:
        """The next message for a handler of the caller's, which has to `finish` it; None where the
        consumer was stopped or has failed."""
        return await self._take(object(), None, is_handled=True)

    def finish(self, message: Received, error: BaseException | None = None) -> None:
        """A handler has ended: its message is acked; nacked if it raised an error, or as `Retry`
        and `Reject` say; given back if it was cancelled. It stays as it is where the handler has
        settled it."""
        if error is None:
            self._bench.finish(message, "ack")
        elif isinstance(error, Exception):
            is_meant = isinstance(error, Retry | Reject)
            level = logging.DEBUG if is_meant else logging.WARNING
            log.log(level, "the handler failed on %s: %r", message.id, error)
            ended = failed(error, message.attempt)
            self._bench.finish(message, ended.action, ended.reason, ended.delay_s)
        else:
            self._bench.finish(message, "release")

    def hold_up_to(self, messages: int) -> None:
        """Let up to so many messages wait here, from now on, in place of `prefetch`."""
        self._bench.hold_up_to(max(1, messages))

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
        return await self._bench.settle_one(
            message, action, reason=reason, delay=delay, position=position, visibility=visibility
        )

    @property
    def failure(self) -> BaseException | None:
        """What made it end by itself: `GroupHalted`, say, or that it is not allowed."""
        return self._failure

    # -- partitions

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are this consumer's now, in order."""
        return self._session.assigned

    @property
    def member_id(self) -> str:
        """Its name in the group, "" before it has joined."""
        return self._session.member

    @property
    def generation(self) -> int:
        """Of the group, as far as it was told."""
        return self._session.generation

    @property
    def paused(self) -> list[TopicPartition]:
        """What is not received from, in order."""
        return sorted(self._source.paused)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Receive nothing from these partitions, or all it has, until they are resumed; they stay
        this consumer's. What waits of them is given back."""
        places = set(self.assignment if partitions is None else partitions)
        self._source.paused |= places
        self._bench.put_down(places)
        self._wake()

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on with these partitions, or all."""
        paused = self._source.paused
        paused -= set(paused) if partitions is None else set(partitions)
        self._wake()

    # -- private

    @property
    def _is_closing(self) -> bool:
        return self._closing is not None

    @property
    def _keeps_leases(self) -> bool:
        """Whether what was received and got lost stays leased when this consumer closes: nobody
        else takes its partitions then."""
        return self._bench.is_shared or bool(self._wanted.instance_id)

    def _receiver(self) -> Intake | Streams:
        settings, source, group = self._settings, self._source, self._wanted.group
        polls = Intake(
            self._client,
            group,
            source,
            self._bench,
            visibility_s=self._bench.visibility_s,
            max_messages=settings.max_messages,
        )
        if not settings.stream:
            return polls
        is_given = settings.visibility is not None
        self._bench.lasting = not is_given
        visibility_ms = round(self._bench.visibility_s * 1000) if is_given else None
        return Streams(self._client, group, source, polls, self._line, visibility_ms)

    async def _visibility_s(self) -> float:
        told: object = self._settings.visibility
        if told is None:
            topic = self._wanted.topics[0] if self._wanted.topics else None
            group = await self._client.group(self._wanted.group, topic)
            told = group.settings.get("visibility_timeout")
        return visibility_s(told)

    async def _take(
        self, who: object, wait: Duration | None, *, is_handled: bool
    ) -> Received | None:
        until_s: float | None = None
        if wait is not None:
            until_s = asyncio.get_running_loop().time() + duration_ms(wait, "wait") / 1000
        with suppress(TimeoutError):
            while not self._stopping:
                found = self._bench.take(who, is_handled=is_handled)
                if found is not None:
                    return found
                async with asyncio.timeout_at(until_s):
                    await self._bench.news()
        return None

    async def _handle_all(self, handler: Handler) -> None:
        while (message := await self.take_to_handle()) is not None:
            try:
                with self._bench.processing(message):
                    answer = handler(message)
                    if isawaitable(answer):
                        await answer
            except asyncio.CancelledError as error:
                if is_cancelled():
                    self.finish(message, error)
                    raise
                self.finish(message, RuntimeError("what its handler waited for was cancelled"))
            except BaseException as error:
                self.finish(message, error)
                if not isinstance(error, Exception):
                    raise
            else:
                self.finish(message)

    async def _work(self, intake: Intake | Streams) -> None:
        """All that goes on in the background. Settles go on until the consumer is closed, also
        when it has failed."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                try:
                    await self._owned.begin(self._receive(intake))
                except* Exception as errors:  # noqa: BLE001 - told to whoever takes messages
                    self._fail(_first(errors))
                if is_cancelled():
                    raise asyncio.CancelledError
                if isinstance(intake, Streams):
                    await self._leave_stream(intake)
                await self._over.wait()
        finally:
            if isinstance(intake, Streams):
                await intake.close()

    async def _receive(self, intake: Intake | Streams) -> None:
        """A task of its own: where a part of it fails, TaskGroup of Python 3.11 leaves the task
        that it is in marked as cancelled. Where closing began before this did, nothing may begin
        that it does not know of: a heartbeat after the member has left would join it again."""
        if self._is_closing:
            return
        async with asyncio.TaskGroup() as work:
            self._heartbeats = work.create_task(self._session.run())
            work.create_task(self._bench.keep_leases())
            self._receiving = work.create_task(intake.run())

    async def _leave_stream(self, streams: Streams) -> None:
        """After a failure what is worked on may be settled for as long as a lease lasts."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._bench.visibility_s):
                await self._bench.ended()
        await streams.close()

    def _ended(self, main: asyncio.Task[None]) -> None:
        error = None if main.cancelled() else main.exception()
        if isinstance(error, BaseExceptionGroup):
            self._fail(_first(error))

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self.stop()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if self._tasks is None or self._over.is_set():
            work.close()
            raise Closed("the consumer is closed")
        return self._tasks.create_task(work)

    def _wake(self) -> None:
        if self._intake is not None:
            self._intake.wake()

    async def _close(self, unsettled: Action) -> None:
        if self._closing is None:
            self._closing = self._owned.begin(self._shut(unsettled))
        await asyncio.shield(self._closing)

    async def _shut(self, unsettled: Action) -> None:
        try:
            self.stop()
            if self._intake is not None and (self._keeps_leases or self._line.stream is not None):
                await self._intake.end()
            if self._receiving is not None:
                self._receiving.cancel()
            if self._main is not None and not self._main.done():
                await self._wind_up(unsettled)
            if isinstance(self._intake, Streams):
                await self._intake.close()
            if self._heartbeats is not None:
                self._heartbeats.cancel()
            await (self._session.rest() if self._wanted.instance_id else self._session.leave())
        finally:
            self._bench.close()
            self._over.set()
            if self._main is not None:
                self._main.cancel()
                await asyncio.wait({self._main})
            if self._owns_client:
                await self._client.close()

    async def _wind_up(self, unsettled: Action) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                await self._bench.handled()
                await self._session.say_goodbye()
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await self._bench.finish_all(unsettled)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
