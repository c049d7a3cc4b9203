"""Why a message is not delivered, or not settled, now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join


class Reason(msgspec.Struct, frozen=True):
    """One reason: `code` and `attributes` for programs, `text` for people; `until` is when it ends
    by itself, where that is known."""

    code: str
    text: str
    until: datetime | None = None
    attributes: dict[str, Any] = {}


class GroupWhy(msgspec.Struct, frozen=True):
    """What holds for one group; the first reason is the decisive one.

    `state` is delayed, ready, in_flight, retrying, acked, dead, cancelled or expired, unpublished
    or gone. `deliverable`: a receive of who may would get the message now. `eta` estimates when it
    is delivered (again), by `eta_by`: delay, backoff, lease or rate; None where nobody can say.
    """

    group: str
    state: str
    deliverable: bool
    attempts: int
    reasons: list[Reason]
    eta: datetime | None = None
    eta_by: str | None = None
    eta_text: str = ""


class Why(msgspec.Struct, frozen=True):
    """A message as of a log time: for each group that has its topic, or the one asked about;
    iterate over it, or over `groups`. `more` groups are left out.

    `state` and `reasons` hold whatever the group. `leader` is None where nobody leads the
    partition: then all is as a replica last knew. `alike` are older messages of the same id, where
    it was asked for by its producer's.
    """

    id: str
    topic: str
    partition: int
    offset: int
    state: str
    reasons: list[Reason]
    groups: list[GroupWhy]
    as_of: datetime | None = None
    leader: str | None = None
    message_id: str | None = None
    more: int = 0
    alike: list[str] = []

    def __iter__(self) -> Iterator[GroupWhy]:
        return iter(self.groups)


class Explaining:
    """The part of the client that asks why."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def why(self, id: str, *, group: str | None = None, topic: str | None = None) -> Why:
        """Why the message with this `topic:partition:offset` is not delivered, or not settled, now;
        with a topic, the newest one there that has this `message_id`. For one group, or for each
        that has the topic. Raises `UnknownTopic`, `UnknownPartition`, `UnknownGroup`, NotFound."""
        params = {
            name: str(value) for name, value in given({"group": group, "topic": topic}).items()
        }
        return await self._calls.get(join("messages", id, "why"), Why, params)
