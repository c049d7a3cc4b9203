"""Works off redrive jobs, on whichever node leads the cluster group.

A job goes through its topic's dead letters once, in the order of (partition, offset), and tells
the cluster group how far it has come after each page. Whoever leads next goes on from there; the
page that was under way is gone through again, where what has moved is no longer dead. So nothing
is lost or moved twice; `moved` may miss such a page. What dies again while the job runs is behind
its cursor, and stays dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, Result
from coordinator.commands.queue import DeadLetterFilter, RedriveStep
from coordinator.errors import Overtaken, UnknownRedrive
from coordinator.jobs.redrives import Redrive
from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError
from node.api.dead_letters import DeadFilter
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic

POLL_S = 0.25
"""How soon a new leader, or a new job, is noticed."""
PAGE = 1000
"""Dead letters that are moved at once."""
STEP_S = 0.2
"""A rate-limited job moves what it may about this often."""
RETRY_S = 1.0
COMMAND_DEADLINE_S = 5.0
CLOCKS_APART_MS = 1000
"""The log times of two groups agree within this; beyond it, what died after the job was made is
none of its."""

_log = get_logger("redrives")

Cursor = tuple[int, int]
"""(partition, offset) that a page begins at."""


@dataclass(frozen=True, slots=True)
class DeadOffsets:
    """A page of dead letters, by partition; `following` is where the next one begins."""

    offsets: Mapping[int, Sequence[int]]
    following: Cursor | None


class DeadLetterSource(Protocol):
    """Dead letters at the leaders of their partitions."""

    async def matching(
        self, topic: str, group: str, which: DeadFilter, *, start: Cursor | None, limit: int
    ) -> DeadOffsets:
        """At most `limit` of them, from `start` on."""
        ...

    async def redrive(
        self,
        topic: str,
        partition: int,
        group_id: int,
        offsets: Sequence[int],
        *,
        job: int,
        force: bool,
    ) -> tuple[int, int]:
        """Make them ready again: how many are, and how many were redriven too often already.
        Offsets that are not dead count as neither."""
        ...


class RedriveCluster(Protocol):
    """What is asked of the cluster group; `node.cluster.host.ClusterHost` is one."""

    @property
    def state(self) -> ClusterState: ...

    def led_time_ms(self) -> int | None: ...

    async def command(self, command: Command, deadline_s: float) -> Result: ...


class RedriveRunner:
    """A service. Loop thread only."""

    def __init__(
        self,
        cluster: RedriveCluster,
        source: DeadLetterSource,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._sleep = sleep
        self._under_way: set[int] = set()
        """Jobs."""
        self._tasks = TaskSet("redrives", "redrive_failed")
        self._looks = Periodic(
            "redrives", self._round, POLL_S, _log, "redrives_failed", first_s=0.0
        )

    async def start(self) -> None:
        await self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()
        await self._tasks.stop()

    def look(self) -> None:
        """Take up the jobs that run, without waiting for them."""
        if self._cluster.led_time_ms() is None:
            return
        for redrive in self._cluster.state.redrives.values():
            if redrive.is_running and redrive.id not in self._under_way:
                self._take_up(redrive.id)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await self._tasks.settled()

    # private

    async def _round(self) -> None:
        self.look()

    def _take_up(self, job: int) -> None:
        self._under_way.add(job)
        task = self._tasks.begin(self._go_on(job))
        task.add_done_callback(lambda _task: self._under_way.discard(job))

    async def _go_on(self, job: int) -> None:
        """Page after page, as long as the job runs and this node leads."""
        try:
            while (redrive := self._running(job)) is not None:
                moved = await self._page(redrive)
                if redrive.rate > 0:
                    await self._sleep(moved / redrive.rate)
        except (Overtaken, UnknownRedrive):
            return  # somebody else has gone on with it
        except GoQueueError as error:
            _log.info("redrive_delayed", job=job, problem=error.message)
            await self._sleep(RETRY_S)
        except Exception:  # noqa: BLE001 - the task's outermost guard
            _log.exception("redrive_failed", job=job)
            await self._sleep(RETRY_S)

    def _running(self, job: int) -> Redrive | None:
        redrive = self._cluster.state.redrives.get(job)
        if redrive is None or not redrive.is_running or self._cluster.led_time_ms() is None:
            return None
        return redrive

    async def _page(self, redrive: Redrive) -> int:
        """How many dead letters were moved. Raises GoQueueError where it must be tried again."""
        moved = refused = 0
        try:
            page = await self._source.matching(
                redrive.topic,
                redrive.group,
                _what_was_dead(redrive),
                start=redrive.cursor,
                limit=_page_limit(redrive.rate),
            )
            for partition, offsets in page.offsets.items():
                done = await self._source.redrive(
                    redrive.topic,
                    partition,
                    redrive.group_id,
                    offsets,
                    job=redrive.id,
                    force=redrive.force,
                )
                moved, refused = moved + done[0], refused + done[1]
        except GoQueueError as error:
            if error.retriable or error.outcome != "none" or error.http_status != 400:
                raise
            step = RedriveStep(redrive.id, redrive.cursor, None, moved, refused, error.message)
        else:
            step = RedriveStep(redrive.id, redrive.cursor, page.following, moved, refused)
        await self._cluster.command(step, COMMAND_DEADLINE_S)
        return moved


def dead_letter_filter(which: DeadFilter) -> DeadLetterFilter:
    """The filter of a request, as a command holds it."""
    return DeadLetterFilter(
        which.reason,
        which.from_ms,
        which.to_ms,
        which.key,
        dict(which.headers),
        list(which.ids),
        which.partition,
    )


def _what_was_dead(redrive: Redrive) -> DeadFilter:
    which = redrive.which
    made_ms = redrive.created_ms + CLOCKS_APART_MS
    to_ms = made_ms if which.to_ms is None else min(which.to_ms, made_ms)
    return DeadFilter(
        which.reason, which.from_ms, to_ms, which.key, which.headers, which.ids, which.partition
    )


def _page_limit(rate: float) -> int:
    return PAGE if rate <= 0 else max(1, min(PAGE, int(rate * STEP_S)))
