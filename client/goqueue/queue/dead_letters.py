"""Dead letters of a group: which there are, and of what they died."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

import msgspec

from goqueue.models.queued import DeadLetter, MessageBody, dead_letter
from goqueue.models.times import Time, time_text
from goqueue.transport.calls import Calls, given
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


class DeadLetters:
    """The part of the client that knows dead letters."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

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
            page = await self._calls.get(join("groups", group, "dlq"), _Page, params)
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
        return await self._calls.get(path, DeadCounts, {"topic": topic})


class _Page(msgspec.Struct):
    messages: list[MessageBody]
    next: str | None = None
