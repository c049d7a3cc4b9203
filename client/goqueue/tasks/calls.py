"""Calls that are not made yet, chains and groups of them, and what was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import msgspec

from goqueue.models.messages import Published
from goqueue.models.options import check_options
from goqueue.models.times import Duration
from goqueue.publish.outgoing import to_lane
from goqueue.tasks.options import SendOptions
from goqueue.tasks.sending import new_seed
from goqueue.tasks.steps import PARTS_MAX, Keep, Rest, Step
from goqueue.wire.errors import BadRequest

if TYPE_CHECKING:
    from goqueue.tasks.app import Tasks
    from goqueue.tasks.eager import Eager

R = TypeVar("R")
S = TypeVar("S")
RESULT_WAIT_S = 30.0

Reader = Callable[[bytes], Any]
"""Makes a result of its JSON."""


@dataclass(frozen=True, slots=True)
class Sent(Generic[R]):
    """What was sent, durably. `id` names the message (`topic:partition:offset`), as timelines do,
    of what runs first; it is empty where that is several messages. `duplicate`: it had been sent
    before, by its `dedup_id`."""

    id: str
    duplicate: bool
    result_id: str | None
    app: Tasks
    reader: Reader
    eager: Eager | None = None
    """Where it was run at once, and its result is."""

    def result(self, timeout: Duration = RESULT_WAIT_S) -> R:
        """What the task returned, waiting for it. Raises NoResult where there is none within the
        time, TaskFailed where it was given up, BadRequest where its task keeps none."""
        if self.eager is not None:
            return self.eager.run(self._result(timeout))
        return self.app.run_blocking(lambda: self._result(timeout))

    async def result_async(self, timeout: Duration = RESULT_WAIT_S) -> R:
        """As `result`."""
        if self.eager is not None:
            return await self._result(timeout)
        return await self.app.run_awaited(lambda: self._result(timeout))

    async def _result(self, timeout: Duration) -> R:
        if self.result_id is None:
            raise BadRequest("no result is kept: give the task keep_result, as in keep_result='1h'")
        results = self.eager or self.app.results()
        found: R = self.reader(await results.get(self.result_id, timeout))
        return found


@dataclass(frozen=True, slots=True)
class Call(Generic[R]):
    """A call that is not made yet, or several: `send` makes it, by a worker."""

    app: Tasks
    steps: tuple[Step, ...]
    reader: Reader
    keep_ms: int | None = None
    """For how long the result of the last step is kept."""

    def then(self, next: Call[S]) -> Call[S]:
        """This call, and the next one once it is done. An argument of the next one that is `RESULT`
        is what this one returns."""
        steps = (*self.steps, *next.steps)
        return Call(self.app, steps, next.reader, next.keep_ms)

    def send(self, **options: Unpack[SendOptions]) -> Sent[R]:
        """Send it; durable when this returns. Raises BadArguments, and what publishing raises."""
        return self.app.run_blocking(lambda: self._send(options))

    async def send_async(self, **options: Unpack[SendOptions]) -> Sent[R]:
        """As `send`."""
        return await self.app.run_awaited(lambda: self._send(options))

    async def _send(self, options: SendOptions) -> Sent[R]:
        steps = self.planned(options)
        first, delay = steps[0], options.get("delay")
        seed = new_seed()
        if first.parts and first.dedup_id is not None:
            seed = f"all_of:{first.dedup_id}"
        is_single = len(steps) == 1 and not first.parts
        keep = None
        if self.keep_ms is not None and not is_single:
            name = seed if first.dedup_id is None or first.parts else _named(first)
            keep = Keep(f"{name}.result", self.keep_ms)
        published = await self.app.sending().send(steps, Rest(keep=keep), seed, delay=delay)
        return self.sent(published, keep)

    def planned(self, options: SendOptions) -> list[Step]:
        """The steps, with what was said of the first one. Raises BadRequest."""
        check_options("send()", options, SendOptions)
        first, *others = self.steps
        if "priority" in options:
            to_lane(options["priority"])
            first = msgspec.structs.replace(first, priority=options["priority"])
            if first.parts:
                parts = [[_urgent(p[0], options["priority"]), *p[1:]] for p in first.parts]
                first = msgspec.structs.replace(first, parts=parts)
        if (dedup_id := options.get("dedup_id")) is not None:
            first = msgspec.structs.replace(first, dedup_id=dedup_id)
        if first.results:
            raise BadRequest(f"{first.task}: RESULT is for what follows another call by then()")
        return [first, *others]

    def sent(self, published: Published | None, keep: Keep | None) -> Sent[R]:
        """What is told of it once it is published."""
        if keep is not None:
            result_id: str | None = keep.id
        else:
            result_id = published.id if published and self.keep_ms is not None else None
        id, duplicate = ("", False) if published is None else (published.id, published.duplicate)
        return Sent(id, duplicate, result_id, self.app, self.reader, self.app.runs_at_once)


def all_of(*calls: Call[Any]) -> Call[list[Any]]:
    """Calls, or chains of them, side by side: up to 200. What follows it by `then` is done once all
    have ended well, and gets the list of their results, in this order, for `RESULT`. A part that is
    given up leaves the others waiting, for a week at most: redriven, it still counts."""
    if not 0 < len(calls) <= PARTS_MAX:
        raise BadRequest(f"all_of: {len(calls)} calls; want 1 to {PARTS_MAX}")
    step = Step(parts=[list(call.steps) for call in calls])
    kept = [call.keep_ms for call in calls if call.keep_ms is not None]
    keep_ms = min(kept) if len(kept) == len(calls) else None
    return Call(calls[0].app, (step,), _reader_of([call.reader for call in calls]), keep_ms)


def _reader_of(readers: Sequence[Reader]) -> Reader:
    def read(value: bytes) -> list[Any]:
        values = msgspec.json.decode(value, type=list[msgspec.Raw])
        return [reader(bytes(one)) for reader, one in zip(readers, values, strict=True)]

    return read


def _named(step: Step) -> str:
    return f"{step.task}:{step.dedup_id}"


def _urgent(step: Step, priority: Any) -> Step:
    return msgspec.structs.replace(step, priority=priority)
