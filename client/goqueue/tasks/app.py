"""The tasks of an application: where they are sent, and what workers know them by."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, Unpack, overload

from goqueue.api.client import AsyncClient
from goqueue.api.options import ClientOptions
from goqueue.blocking.client import Client
from goqueue.everyday.opening import open
from goqueue.everyday.targets import Target
from goqueue.models.failures import PublishFailed
from goqueue.models.messages import OutgoingMessage, Published
from goqueue.models.options import check_options, did_you_mean
from goqueue.models.outcomes import Reject
from goqueue.models.times import Duration
from goqueue.tasks.calls import Call, Sent
from goqueue.tasks.eager import Eager
from goqueue.tasks.options import QUEUE, EveryOptions, TaskOptions, TaskSettings
from goqueue.tasks.results import Results
from goqueue.tasks.schedules import Every, put_schedules
from goqueue.tasks.sending import QueueSettings, Sending, message_of, new_seed
from goqueue.tasks.steps import Rest
from goqueue.tasks.task import AnyTask, Task
from goqueue.wire.errors import BadRequest, GoQueueError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
GROUP = "tasks"
TOGETHER = 1000
"""So many calls are sent in one request."""


class Tasks:
    """The tasks of one application.

        app = Tasks("./jobs")

        @app.task(queue="mail", retry=Retry(max_attempts=5, backoff="2s"))
        def welcome(address: str) -> None: ...

        welcome.send("ada@example.org")

    Workers of a `group` share its tasks: `goqueue-cli worker MODULE:app`. Calls may come from any
    thread.
    """

    def __init__(
        self,
        target: Target = None,
        *,
        group: str = GROUP,
        partitions: int | None = None,
        keep: Duration | None = None,
        dedup_window: Duration = "1h",
        **options: Unpack[ClientOptions],
    ) -> None:
        """Opens nothing: what is sent first does. `target` as of `goqueue.open`: a directory, a
        server, a cluster; with the options of a client.

        Queues that are missing are made, with so many `partitions` (the cluster's default), and
        keep all messages, or with `keep` those of that time, done or not. An id that was sent
        before is known again for `dedup_window`.
        """
        check_options("Tasks()", options, ClientOptions)
        self._target = target
        self.options = options
        self.queues = QueueSettings(group, partitions, keep, dedup_window)
        self.schedules: dict[str, Every] = {}
        self._tasks: dict[tuple[str, int], AnyTask] = {}
        self._client: Client | None = None
        self._sending: Sending | None = None
        self._process = os.getpid()
        self._lock = threading.RLock()
        self.runs_at_once: Eager | None = None
        """Set within `eager`."""

    @property
    def target(self) -> Target:
        """Where tasks are sent, and workers take them from. Another one may be set, as by tests:
        what was opened of the former one is let go of."""
        return self._target

    @target.setter
    def target(self, target: Target) -> None:
        self.close()
        self._target = target

    # tasks

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
    @overload
    def task(self, function: None = None, /, **options: Unpack[TaskOptions]) -> Decorator: ...
    def task(self, function: Any = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Make a task of a function, which stays callable: `@app.task`, or with options. Raises
        BadRequest where the app has the same version of this name already."""
        check_options("task()", options, TaskOptions)
        decorator = Decorator(self, TaskSettings(**options))
        return decorator if function is None else decorator(function)

    def add(self, task: AnyTask) -> None:
        """The task is one of this app. Raises BadRequest where it has that already."""
        key = (task.name, task.version)
        if key in self._tasks:
            raise BadRequest(f"task {task.name}, version {task.version}: the app has it already")
        self._tasks[key] = task

    def find(self, name: str, version: int) -> AnyTask:
        """The task of a message. Raises Reject, which says what there is, where that is none."""
        found = self._tasks.get((name, version))
        if found is not None:
            return found
        known = sorted(number for other, number in self._tasks if other == name)
        if known:
            there = ", ".join(map(str, known))
            raise Reject(f"version {version} of task {name} is unknown here; known: {there}")
        names = sorted({other for other, _ in self._tasks})
        raise Reject(f"task {name} is unknown here{did_you_mean(name, names)}")

    def tasks(self) -> list[AnyTask]:
        """All tasks, in the order in which they were made."""
        return list(self._tasks.values())

    def queue_names(self) -> list[str]:
        """The topics that its tasks go to, in order."""
        return sorted({task.settings.queue for task in self._tasks.values()} or {QUEUE})

    # sending

    def send_many(self, calls: Iterable[Call[T]]) -> list[Sent[T]]:
        """Send calls of any tasks together, 1000 of a queue a request; no chains. All are checked
        before any is sent. Raises PublishFailed, with the result of each, where some failed."""
        many = list(calls)
        return self.run_blocking(lambda: self._send_many(many))

    async def send_many_async(self, calls: Iterable[Call[T]]) -> list[Sent[T]]:
        """As `send_many`."""
        many = list(calls)
        return await self.run_awaited(lambda: self._send_many(many))

    def schedule(self, name: str, when: Duration, call: Call[Any], options: EveryOptions) -> None:
        """See `Task.every`."""
        if name in self.schedules:
            raise BadRequest(f"schedule {name}: the app has it already")
        (step,) = call.planned({})
        self.schedules[name] = Every.of(name, self.queues.group, when, step, options)

    def create_schedules(self) -> None:
        """Have the cluster keep the schedules of all tasks, as a worker does when it starts. One
        that is there and the same goes on; one that the app has no more stays until it is deleted.
        """
        self.run_blocking(self._create_schedules)

    def close(self) -> None:
        """Let go of what sending opened. Idempotent; what is sent then opens it again."""
        with self._lock:
            client, self._client, self._sending = self._client, None, None
        if client is not None:
            client.close()

    # in tests

    @contextmanager
    def eager(self) -> Iterator[Eager]:
        """Within, what is sent is run at once, here: arguments are checked as they are elsewhere,
        failures are retried without waiting, delays are not waited for. Yields an `Eager`, which
        tells what was given up."""
        before, eager = self.runs_at_once, Eager(self)
        self.runs_at_once = eager
        try:
            yield eager
        finally:
            self.runs_at_once = before

    # beneath

    def sending(self) -> Sending | Eager:
        """What sends, on the thread that `run_blocking` runs on."""
        if self.runs_at_once is not None:
            return self.runs_at_once
        assert self._sending is not None
        return self._sending

    def results(self) -> Results | Eager:
        """Where results are kept."""
        found = self.sending()
        return found if isinstance(found, Eager) else found.results

    def run_blocking(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The work's result; it is done on the client's thread."""
        if self.runs_at_once is not None:
            return self.runs_at_once.run(work())
        return self._opened()._thread.run(work())

    async def run_awaited(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As `run_blocking`, for a program with an event loop, which goes on meanwhile."""
        if self.runs_at_once is not None:
            return await work()
        client = self._client
        if client is None or self._process != os.getpid():
            client = await asyncio.to_thread(self._opened)
        return await client._thread.run_awaited(work())

    def _opened(self) -> Client:
        with self._lock:
            if self._process != os.getpid():  # a forked child has no use for its parent's
                self._client, self._process = None, os.getpid()
            if self._client is None:
                self._client = open(self.target, **self.options)
                self._sending = Sending(self._client._twin, self.queues)
            return self._client

    async def _create_schedules(self) -> None:
        client = self._client
        assert client is not None
        await self.put_schedules(client._twin)

    async def put_schedules(self, client: AsyncClient) -> None:
        """See `create_schedules`."""
        sending = Sending(client, self.queues)
        for queue in sorted({one.step.queue for one in self.schedules.values()}):
            await sending.ensure(queue)
        await put_schedules(client, self.schedules.values())

    async def _send_many(self, calls: Sequence[Call[T]]) -> list[Sent[T]]:
        steps = [call.planned({}) for call in calls]
        if any(len(one) > 1 or one[0].parts for one in steps):
            raise BadRequest("send_many: chains are sent one by one")
        sending = self.sending()
        if isinstance(sending, Eager):
            return [await call.send_async() for call in calls]
        queues: dict[str, list[int]] = {}
        for row, (step,) in enumerate(steps):
            queues.setdefault(step.queue, []).append(row)
        results: list[Published | GoQueueError] = [Published("", -1, -1)] * len(calls)
        for queue, rows in queues.items():
            messages = [message_of(steps[row][0], Rest(), new_seed(), None) for row in rows]
            for at in range(0, len(rows), TOGETHER):
                some = await _tried(sending, queue, messages[at : at + TOGETHER])
                for row, result in zip(rows[at : at + TOGETHER], some, strict=True):
                    results[row] = result
        published = [result for result in results if isinstance(result, Published)]
        if len(published) < len(results):
            raise PublishFailed(results)
        return [call.sent(one, None) for call, one in zip(calls, published, strict=True)]


class Decorator:
    """Makes a task of a function."""

    def __init__(self, app: Tasks, settings: TaskSettings) -> None:
        self._app = app
        self._settings = settings

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]]
    ) -> Task[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Any:
        task: AnyTask = Task(self._app, function, self._settings)
        self._app.add(task)
        return task


async def _tried(
    sending: Sending, queue: str, messages: Sequence[OutgoingMessage]
) -> Sequence[Published | GoQueueError]:
    try:
        return await sending.send_many(queue, messages)
    except PublishFailed as error:
        return error.results
