"""Dead letters of a group: to look at, to make alive again, to forget."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime

import msgspec

from goqueue.models.queued import DeadLetter, MessageBody, dead_letter
from goqueue.models.times import Time, time_text
from goqueue.transport.calls import Calls, decode, given
from goqueue.transport.http import join

PAGE_LIMIT = 100


class DeadFilter(msgspec.Struct, frozen=True):
    """Which dead letters are meant: all that is given must hold.

    `reason` is a part of the reason's text; times are of death, `to_time` exclusive; `headers` must
    be there with these values; `ids` are `topic:partition:offset`.
    """

    reason: str | None = None
    key: str | None = None
    from_time: Time | None = None
    to_time: Time | None = None
    headers: Mapping[str, str] | None = None
    ids: Sequence[str] | None = None
    partition: int | None = None

    def to_body(self) -> dict[str, object]:
        """As it travels, without what is not given."""
        return given(
            {
                "reason": self.reason,
                "key": self.key,
                "from_time": None if self.from_time is None else time_text(self.from_time),
                "to_time": None if self.to_time is None else time_text(self.to_time),
                "headers": None if self.headers is None else dict(self.headers),
                "ids": None if self.ids is None else list(self.ids),
                "partition": self.partition,
            }
        )

    def to_query(self) -> dict[str, str]:
        """As far as a query can say it: the rest is for `matches`."""
        return {
            name: str(value)
            for name, value in self.to_body().items()
            if name not in ("headers", "ids")
        }

    def matches(self, message: DeadLetter) -> bool:
        """Whether headers and ids are as wanted."""
        if self.ids is not None and message.id not in self.ids:
            return False
        held = dict(message.headers)
        return all(held.get(name) == text.encode() for name, text in (self.headers or {}).items())


class DeadCounts(msgspec.Struct, frozen=True):
    """How many dead letters a group has in a topic, and of what they died."""

    total: int
    by_reason: dict[str, int] = {}


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


class DeadLetters(Calls):
    """The part of the client that knows dead letters."""

    async def dead_letters(
        self,
        group: str,
        topic: str,
        which: DeadFilter | None = None,
        *,
        page_limit: int = PAGE_LIMIT,
    ) -> AsyncGenerator[DeadLetter, None]:
        """Iterate over a group's dead letters, by partition and offset, fetching page after page.

        Looking changes nothing.
        """
        wanted = which or DeadFilter()
        params = {"topic": topic, "limit": str(page_limit), **wanted.to_query()}
        while True:
            page = await self._get(join("groups", group, "dlq"), _Page, params)
            for body in page.messages:
                message = dead_letter(body, group)
                if wanted.matches(message):
                    yield message
            if page.next is None:
                return
            params["after"] = page.next

    async def dead_letter_counts(self, group: str, topic: str) -> DeadCounts:
        """How many dead letters there are, by reason."""
        path = join("groups", group, "dlq", "counts")
        return await self._get(path, DeadCounts, {"topic": topic})

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
        return await self._send("POST", path, body, Redrive)

    async def redrives(self, group: str) -> list[Redrive]:
        """The group's redrive jobs."""
        return (await self._get(join("groups", group, "dlq", "redrives"), _Redrives)).redrives

    async def redrive_job(self, group: str, job: int) -> Redrive:
        """How far a job is."""
        return await self._get(join("groups", group, "dlq", "redrives", job), Redrive)

    async def stop_redrive(self, group: str, job: int) -> Redrive:
        """Stop a job: what is alive stays alive, the rest stays dead; nothing is lost."""
        path = join("groups", group, "dlq", "redrives", job)
        answer = await self._transport.request("DELETE", path, repeatable=True)
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
        return (await self._send("POST", path, body, _Purged)).purged


class _Page(msgspec.Struct):
    messages: list[MessageBody]
    next: str | None = None


class _Redrives(msgspec.Struct):
    redrives: list[Redrive]


class _Purged(msgspec.Struct):
    purged: int
