"""A function that can be called by a worker, elsewhere and later."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

import msgspec

from goqueue.models.options import check_options
from goqueue.models.times import Duration
from goqueue.publish.outgoing import to_lane
from goqueue.tasks.arguments import RESULT, Arguments
from goqueue.tasks.calls import Call, Sent
from goqueue.tasks.options import EveryOptions, RunIn, TaskSettings
from goqueue.tasks.results import kept_ms
from goqueue.tasks.steps import Step
from goqueue.wire.errors import BadRequest

if TYPE_CHECKING:
    from goqueue.tasks.app import Tasks

P = ParamSpec("P")
C = TypeVar("C")
R = TypeVar("R")


class Task(Generic[P, C, R]):
    """A function of an app: call it as it is, or `send` what a worker is to call it with."""

    def __init__(self, app: Tasks, function: Callable[P, C], settings: TaskSettings) -> None:
        """Raises BadRequest on a version, priority or `keep_result` that is none, and where an
        `async` function is to run elsewhere than on the loop."""
        self._app = app
        self.function = function
        self.settings = settings
        self.name = settings.name or function.__name__
        self.version = settings.version
        is_async = inspect.iscoroutinefunction(function)
        self.run_in: RunIn = settings.run_in or ("loop" if is_async else "thread")
        if is_async != (self.run_in == "loop"):
            kind = "async" if is_async else "not async"
            raise BadRequest(f"{self.name}: run_in={self.run_in!r}, and the function is {kind}")
        if self.version < 1:
            raise BadRequest(f"{self.name}: version {self.version}; want 1 or more")
        to_lane(settings.priority)
        self.keep_ms = None if settings.keep_result is None else kept_ms(settings.keep_result)
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name}, version {self.version}>"

    @functools.cached_property
    def arguments(self) -> Arguments:
        """What it takes. Raises TypeError where its annotations can't be resolved."""
        return Arguments(self.function)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call to be sent, or joined with others. Raises BadArguments."""
        return self._call(args, kwargs)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Sent[R]:
        """Have a worker call it; durable when this returns. Raises BadArguments, and what
        publishing raises."""
        return self._call(args, kwargs).send()

    async def send_async(self, *args: P.args, **kwargs: P.kwargs) -> Sent[R]:
        """As `send`."""
        return await self._call(args, kwargs).send_async()

    def send_after(self, delay: Duration, *args: P.args, **kwargs: P.kwargs) -> Sent[R]:
        """Have a worker call it after `delay`, such as "1h"."""
        return self._call(args, kwargs).send(delay=delay)

    async def send_after_async(self, delay: Duration, *args: P.args, **kwargs: P.kwargs) -> Sent[R]:
        """As `send_after`."""
        return await self._call(args, kwargs).send_async(delay=delay)

    def send_many(self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]]) -> list[Sent[R]]:
        """Many calls together: a tuple of arguments each, or a mapping of them by name. Much
        cheaper than one by one. All are checked before any is sent. Raises PublishFailed, with the
        result of each, where some failed."""
        return self._app.send_many(self._calls(calls))

    async def send_many_async(
        self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]]
    ) -> list[Sent[R]]:
        """As `send_many`."""
        return await self._app.send_many_async(self._calls(calls))

    def every(self, when: Duration, /, *args: Any, **options: Unpack[EveryOptions]) -> None:
        """Have it called again and again with these arguments: as cron says (`"0 3 * * *"`: minute
        hour day month weekday), or every so often (`"10m"`). The cluster keeps the schedule, from
        when a worker of the app starts, or `app.create_schedules` is called. Raises BadRequest
        where the app has one of this name."""
        check_options("every()", options, EveryOptions)
        self._app.schedule(options.get("name") or self.name, when, self._call(args, {}), options)

    # private

    def _calls(self, calls: Iterable[tuple[Any, ...] | Mapping[str, Any]]) -> list[Call[R]]:
        found: list[Call[R]] = []
        for one in calls:
            if isinstance(one, tuple):
                found.append(self._call(one, {}))
            elif isinstance(one, Mapping):
                found.append(self._call((), one))
            else:
                raise BadRequest(f"send_many: {one!r}; want tuples of arguments, or mappings")
        return found

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call[R]:
        packed, results = self.arguments.pack(args, kwargs)
        dedup_id = None
        if self.settings.dedup_id is not None:
            if results:
                raise BadRequest(f"{self.name}: an id can't be made of {RESULT!r}")
            dedup_id = self.settings.dedup_id(*args, **kwargs)
            if not isinstance(dedup_id, str) or not dedup_id:
                raise BadRequest(f"{self.name}: dedup_id made {dedup_id!r} of the arguments")
        step = Step(
            self.name,
            self.version,
            self.settings.queue,
            self.settings.priority,
            packed,
            results,
            dedup_id,
        )
        return Call(self._app, (step,), self.arguments.read_result, self.keep_ms)


def json_of(step: Step) -> bytes:
    """A step's arguments, as the value of its message."""
    return msgspec.json.encode(step.args)


AnyTask = Task[Any, Any, Any]
