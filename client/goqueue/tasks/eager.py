"""Tasks run where they are sent, at once: for tests of what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from goqueue.models.messages import Published
from goqueue.models.outcomes import failed
from goqueue.models.times import Duration
from goqueue.tasks.results import NoResult, TaskFailed, listed
from goqueue.tasks.running import Current, run_awaited, run_blocking
from goqueue.tasks.steps import Rest, Step

if TYPE_CHECKING:
    from goqueue.tasks.app import Tasks

T = TypeVar("T")
TOPIC = "eager"
ATTEMPTS_MAX = 100


class Eager:
    """What was run within `app.eager()`. `dead` holds (task, reason) of what was given up; what
    follows those did not run."""

    def __init__(self, app: Tasks) -> None:
        self._app = app
        self._numbers = count()
        self._results: dict[str, bytes | TaskFailed] = {}
        self._ids: dict[str, Published] = {}
        self.dead: list[tuple[str, str]] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result, also where an event loop runs already, which waits meanwhile."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, work).result()

    async def send(
        self, steps: Sequence[Step], rest: Rest, seed: str, *, delay: Duration | None = None
    ) -> Published | None:
        """As `Sending.send`: all of it has been run, or given up, when this returns."""
        del seed, delay
        first = steps[0]
        published = Published(TOPIC, 0, next(self._numbers))
        name = None if first.dedup_id is None else f"{first.task}:{first.dedup_id}"
        if name is not None and name in self._ids:
            return msgspec.structs.replace(self._ids[name], duplicate=True)
        if name is not None:
            self._ids[name] = published
        result_id = published.id if rest.keep is None else rest.keep.id
        try:
            self._results[result_id] = bytes(await self._chain(steps, None, published.id))
        except TaskFailed as error:
            self._results[result_id] = error
        return None if first.parts else published

    async def get(self, id: str, wait: Duration) -> bytes:
        """As `Results.get`."""
        del wait
        found = self._results.get(id)
        if found is None:
            raise NoResult(f"no result of {id}")
        if isinstance(found, TaskFailed):
            raise found
        return found

    # private

    async def _chain(
        self, steps: Sequence[Step], result: msgspec.Raw | None, id: str
    ) -> msgspec.Raw:
        for step in steps:
            if step.parts:
                ends = [await self._chain(part, result, self._next_id()) for part in step.parts]
                result = listed([bytes(end) for end in ends])
            else:
                given = step if result is None else step.given(result)
                result = msgspec.Raw(await self._call(given, id))
            id = self._next_id()
        assert result is not None
        return result

    async def _call(self, step: Step, id: str) -> bytes:
        """Raises TaskFailed where it is given up."""
        task = self._app.find(step.task, step.version)
        value = msgspec.json.encode(step.args)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            about = Current(id, attempt, task.name)
            try:
                if task.run_in == "loop":
                    return await run_awaited(task, value, about)
                return await asyncio.to_thread(run_blocking, task, value, about)
            except Exception as error:  # noqa: BLE001 - judged as a worker does
                ended = failed(error, attempt, task.settings.retry)
            if ended.action == "reject" or attempt == ATTEMPTS_MAX:
                self.dead.append((task.name, ended.reason))
                raise TaskFailed(ended.reason)
        raise AssertionError("the last attempt ends it")

    def _next_id(self) -> str:
        return Published(TOPIC, 0, next(self._numbers)).id
