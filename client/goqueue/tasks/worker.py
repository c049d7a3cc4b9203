"""A worker: a member of the app's group that runs the tasks of its queues."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from goqueue.consume.consumer import AsyncConsumer
from goqueue.everyday.opening import open_async
from goqueue.models.outcomes import Failed, Reject, Retry, failed
from goqueue.models.queued import Received
from goqueue.models.times import Duration
from goqueue.tasks.running import Current, Places
from goqueue.tasks.sending import Sending
from goqueue.tasks.steps import Envelope, Rest, envelope_of
from goqueue.tasks.task import AnyTask
from goqueue.wire.errors import BadRequest

if TYPE_CHECKING:
    from goqueue.tasks.app import Tasks

CONCURRENCY = 16
AHEAD_S = 0.2
AHEAD = (2, 32)
"""A worker holds what it would run within so many seconds, and at least and at most so many tasks
for each that runs: short ones come in large batches, and long ones are left for other workers."""
LOOK_TASKS = 16
RECEIVED_MAX = 500

Outcome = Literal["done", "retried", "dead"]

log = logging.getLogger(__name__)


class Ended(msgspec.Struct, frozen=True):
    """One task that a worker is done with."""

    id: str
    task: str
    attempt: int
    outcome: Outcome
    seconds: float
    reason: str = ""

    def line(self) -> str:
        """It in one line."""
        often = "" if self.attempt == 1 else f", attempt {self.attempt}"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.task} {self.outcome} in {self.seconds * 1000:.0f} ms{often} {self.id}{why}"


class Worker:
    """Runs an app's tasks, up to `concurrency` at once, until it is told to stop.

    Each comes at least once: it is acked when it has ended, its result is kept and what follows it
    is sent. One whose worker died comes again once its lease is over, `visibility` after the last
    time that was told of it (the group's, 30 s).
    """

    def __init__(
        self,
        app: Tasks,
        *,
        path: str | None = None,
        concurrency: int = CONCURRENCY,
        visibility: Duration | None = None,
        ended: Callable[[Ended], object] | None = None,
    ) -> None:
        """Opens nothing. `path` (`MODULE:app`) is for tasks that run in processes. `ended` is told
        of each task on the loop; the log is, in its place, where it is not given."""
        if concurrency < 1:
            raise BadRequest(f"concurrency: {concurrency}; want 1 or more")
        self._app = app
        self._path = path
        self._concurrency = concurrency
        self._visibility = visibility
        self._ended = ended or _logged
        self._consumer: AsyncConsumer | None = None
        self.running = 0
        """How many tasks run now."""

    def run(self) -> None:
        """Work until SIGTERM, which lets what runs end, and leaves the group; a second one ends the
        process at once. Raises what opening the app's target raises, and what makes the group
        refuse its members."""
        asyncio.run(self.run_async())

    @contextmanager
    def beside(self) -> Iterator[Worker]:
        """Work in a thread of its own, within; what runs ends before the block does. For tests, and
        for programs that are their own worker. Raises what `run` raises."""
        begun: Future[asyncio.AbstractEventLoop] = Future()

        async def work() -> None:
            loop = asyncio.get_running_loop()
            await self.run_async(lambda: begun.set_result(loop))

        with ThreadPoolExecutor(1, thread_name_prefix="goqueue-worker") as thread:
            working = thread.submit(asyncio.run, work())
            either: list[Future[Any]] = [begun, working]
            wait(either, return_when=FIRST_COMPLETED)
            try:
                if begun.done():
                    yield self
            finally:
                if not working.done():
                    begun.result().call_soon_threadsafe(self.stop)
                working.result()

    async def run_async(self, started: Callable[[], object] | None = None) -> None:
        """As `run`, on a loop that runs already; `started` is called when it is a member."""
        for task in self._app.tasks():
            task.arguments  # noqa: B018 - annotations that can't be resolved stop it here
        places = Places(self._concurrency, self._path)
        try:
            async with open_async(self._app.target, **self._app.options) as client:
                sending = Sending(client, self._app.queues)
                queues = self._app.queue_names()
                for queue in queues:
                    await sending.ensure(queue)
                group = self._app.queues.group
                await client.put_group(group, mode="shared", max_attempts=0)
                await self._app.put_schedules(client)
                self._consumer = AsyncConsumer(
                    client,
                    group,
                    queues,
                    client_id="worker",
                    prefetch=AHEAD[0] * self._concurrency,
                    max_messages=RECEIVED_MAX,
                    visibility=self._visibility,
                )
                async with self._consumer as consumer:
                    if started is not None:
                        started()
                    turn = _Turn(self, places, sending)
                    await consumer.run(turn.handle, concurrency=self._concurrency)
        finally:
            await asyncio.to_thread(places.close)

    def hold(self, tasks: int) -> None:
        """Let so many wait here for each that may run."""
        if self._consumer is not None:
            self._consumer.hold_up_to(tasks * self._concurrency)

    def stop(self) -> None:
        """Begin no more: `run_async` returns once what runs has ended. On its loop only."""
        if self._consumer is not None:
            self._consumer.stop()


def ahead(average_s: float) -> int:
    """How many tasks of this length wait for each that runs."""
    least, most = AHEAD
    return max(least, min(most, round(AHEAD_S / max(average_s, 1e-6))))


class _Turn:
    """What is done with each message."""

    def __init__(self, worker: Worker, places: Places, sending: Sending) -> None:
        self._worker = worker
        self._places = places
        self._sending = sending
        self._count = 0
        self._average_s = AHEAD_S
        """Of how long tasks run, the last ones above all."""

    async def handle(self, message: Received) -> None:
        """Raises Retry and Reject, as the consumer takes them."""
        worker, began_s = self._worker, time.monotonic()
        worker.running += 1
        name = "?"
        try:
            envelope = _read(message)
            name = envelope.task
            ended = await self._run(message, envelope)
        except Reject as error:
            ended = Failed("reject", error.reason)
        finally:
            worker.running -= 1
        seconds = time.monotonic() - began_s
        self._hold(seconds)
        if ended is None:
            worker._ended(Ended(message.id, name, message.attempt, "done", seconds))
            return
        outcome: Outcome = "dead" if ended.action == "reject" else "retried"
        worker._ended(Ended(message.id, name, message.attempt, outcome, seconds, ended.reason))
        if ended.action == "reject":
            raise Reject(ended.reason)
        raise Retry(ended.reason, delay=ended.delay_s)

    def _hold(self, seconds: float) -> None:
        self._average_s += (seconds - self._average_s) / LOOK_TASKS
        self._count += 1
        if self._count % LOOK_TASKS == 0:
            self._worker.hold(ahead(self._average_s))

    async def _run(self, message: Received, envelope: Envelope) -> Failed | None:
        """What becomes of the message; None where its task is done. Raises Reject where that is
        unknown here."""
        task = self._worker._app.find(envelope.task, envelope.version)
        retry = task.settings.retry
        try:
            if retry.max_attempts is not None and message.attempt > retry.max_attempts:
                last = message.last_reason or "its workers ended before it did"
                raise Reject(f"given up after {retry.max_attempts} attempts: {last}")
            about = Current(message.id, message.attempt, task.name)
            value = await self._places.run(task, message.value, about)
            await self._done(task, message, envelope.rest, value)
        except Exception as error:  # noqa: BLE001 - told to the group, as why it failed
            ended = failed(error, message.attempt, retry)
        else:
            return None
        if ended.action == "reject":
            await self._dead(task, message, envelope.rest, ended.reason)
        return ended

    async def _done(self, task: AnyTask, message: Received, rest: Rest, value: bytes) -> None:
        if task.settings.keep_result is not None:
            await self._sending.results.put(message.id, value, ttl=task.settings.keep_result)
        if rest != Rest():
            seed = f"{message.id}@{message.timestamp_ms}"
            await self._sending.follow(rest, msgspec.Raw(value), seed)

    async def _dead(self, task: AnyTask, message: Received, rest: Rest, reason: str) -> None:
        results = self._sending.results
        if task.settings.keep_result is not None:
            await results.put_failure(message.id, reason, task.settings.keep_result)
        if rest.keep is not None:
            await results.put_failure(rest.keep.id, reason, rest.keep.ttl_ms / 1000)


def _read(message: Received) -> Envelope:
    try:
        return envelope_of(message)
    except BadRequest as error:
        raise Reject(error.message) from None


def _logged(ended: Ended) -> None:
    log.log(logging.INFO if ended.outcome == "done" else logging.WARNING, "%s", ended.line())
