"""The options of tasks and of what is sent: their names and types, and what holds where one is not
given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict

from goqueue.models.options import Priority
from goqueue.models.outcomes import Retry
from goqueue.models.times import Duration

QUEUE = "tasks"
RETRY = Retry(max_attempts=3, backoff="1s")

RunIn = Literal["loop", "thread", "process"]


class TaskOptions(TypedDict, total=False):
    """What `@app.task` takes.

    `name` is the function's if not given, and `version` that of its arguments, from 1: the same
    name may have several, each a function of its own. Messages go to the topic `queue`, by
    `priority`. `retry` says when one that failed comes again, and how often. `dedup_id` makes an id
    of the arguments: what has one that was sent before is not sent again. With `keep_result` the
    result can be asked for, for so long (at most 7 days). `run_in` is where it runs: functions that
    are `async` on the event loop, others in a thread, or in a process where that is said.
    """

    name: str | None
    version: int
    queue: str
    priority: Priority
    retry: Retry
    dedup_id: Callable[..., str] | None
    keep_result: Duration | None
    run_in: RunIn | None


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """The options as one task has them."""

    name: str | None = None
    version: int = 1
    queue: str = QUEUE
    priority: Priority = "normal"
    retry: Retry = RETRY
    dedup_id: Callable[..., str] | None = None
    keep_result: Duration | None = None
    run_in: RunIn | None = None


class SendOptions(TypedDict, total=False):
    """What `send` of a call takes: it is run after `delay`, by this `priority` and not by its
    task's; with a `dedup_id` that was sent before it is not sent again."""

    delay: Duration | None
    priority: Priority
    dedup_id: str | None


class EveryOptions(TypedDict, total=False):
    """What `every` takes: the `name` of the schedule, if not the task's; the `timezone` that cron
    is meant in; what becomes of times that the cluster was down for."""

    name: str
    timezone: str
    missed: Literal["skip", "once", "all"]
