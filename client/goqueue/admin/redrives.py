"""Dead letters that are made alive again, or forgotten."""

from __future__ import annotations

from datetime import datetime

import msgspec

from goqueue.queue.dead_letters import DeadFilter
from goqueue.transport.calls import Calls, decode, given
from goqueue.transport.http import join


class Redrive(msgspec.Struct, frozen=True):
    """A job that makes dead letters alive again.

    `state` is running, done or stopped. Of `matched` messages `moved` are alive, and `refused` were
    left dead because they died again after many redrives. `id` is 0 for a dry run.
    """

    id: int = msgspec.field(default=0, name="job")
    state: str = ""
    matched: int = 0
    moved: int = 0
    refused: int = 0
    group: str = ""
    topic: str = ""
    rate: float = 0.0
    created_at: datetime | None = None
    error: str | None = None
    dry_run: bool = False


class Redrives:
    """The part of the admin that redrives and purges."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def redrive(
        self,
        group: str,
        topic: str,
        which: DeadFilter | None = None,
        *,
        rate: float | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Redrive:
        """Start a job that makes dead letters ready for their group again, each with its id, its
        place and no attempts, at most `rate` a second.

        `dry_run` only counts what would match; `force` takes those that died again and again, too.
        """
        body = given(
            {
                "topic": topic,
                "filter": which.to_body() if which is not None else None,
                "rate": rate,
                "dry_run": dry_run,
                "force": force,
            }
        )
        path = join("groups", group, "dlq", "redrive")
        return await self._calls.send("POST", path, body, Redrive)

    async def redrives(self, group: str) -> list[Redrive]:
        """The group's redrive jobs."""
        return (await self._calls.get(join("groups", group, "dlq", "redrives"), _Redrives)).redrives

    async def redrive_job(self, group: str, job: int) -> Redrive:
        """How far a job is."""
        return await self._calls.get(join("groups", group, "dlq", "redrives", job), Redrive)

    async def stop_redrive(self, group: str, job: int) -> Redrive:
        """Stop a job: what is alive stays alive, the rest stays dead; nothing is lost."""
        path = join("groups", group, "dlq", "redrives", job)
        answer = await self._calls.transport.request("DELETE", path, repeatable=True)
        return decode(answer.body, Redrive)

    async def purge(
        self, group: str, topic: str, which: DeadFilter | None = None, *, dry_run: bool = False
    ) -> int:
        """Forget dead letters, all or some, for good; how many there were."""
        body = {
            "topic": topic,
            "filter": {} if which is None else which.to_body(),
            "dry_run": dry_run,
        }
        path = join("groups", group, "dlq", "purge")
        return (await self._calls.send("POST", path, body, _Purged)).purged


class _Redrives(msgspec.Struct):
    redrives: list[Redrive]


class _Purged(msgspec.Struct):
    purged: int
