"""Consumer groups: their settings, and where they stand."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Unpack

import msgspec

from goqueue.models.groups import Group
from goqueue.models.options import GroupSettings, check_options
from goqueue.models.times import duration_text
from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join

_SPANS = (
    "visibility_timeout",
    "backoff",
    "backoff_max",
    "lane_max_wait",
    "session_timeout",
    "rebalance_timeout",
)


class Groups:
    """The part of the client that knows groups."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def list_groups(self, *, unowned: bool = False) -> list[Group]:
        """All groups by name, without their members and partitions; with `unowned` those that
        belong to nobody."""
        params = {"unowned": "true"} if unowned else None
        return [
            Group(
                one.name,
                one.settings,
                one.topics,
                one.created_at,
                state=one.state,
                generation=one.generation,
                member_count=one.members,
                owner=one.owner,
            )
            for one in (await self._calls.get(join("groups"), _Groups, params)).details
        ]

    async def group(self, name: str, topic: str | None = None) -> Group:
        """A group with where it stands in each partition, of one topic or all. Raises
        `UnknownGroup`."""
        params = None if topic is None else {"topic": topic}
        found = await self._calls.get(join("groups", name), Group, params)
        return msgspec.structs.replace(found, member_count=len(found.members))

    async def put_group(self, name: str, **settings: Unpack[GroupSettings]) -> Group:
        """Create a group, or change what is given of it. Raises TypeError for a setting that there
        is none of.

        `ordering="key"` delivers a key's next message when its previous one is settled;
        `on_poison="park"` then withholds a key whose message failed `max_attempts` times, instead
        of giving the message up. `start` is `earliest` or `latest`.

        `mode` is `exclusive` (each partition is one member's) or `shared` (any member receives from
        any partition), and can't change while there are members; `assignor` is sticky, range or
        roundrobin. A member that is not heard of for `session_timeout` is gone, and one that does
        not let go of a partition within `rebalance_timeout` is fenced there.
        """
        check_options("put_group()", settings, GroupSettings)
        found: dict[str, Any] = given(settings)
        spans = {span: duration_text(found[span], span) for span in _SPANS if span in found}
        body = {**found, **spans}
        return await self._calls.send("PUT", join("groups", name), body, Group, repeatable=True)

    async def delete_group(self, name: str, *, force: bool = False) -> None:
        """Delete a group with its progress and dead letters. Raises `UnknownGroup`, and
        `GroupActive` while it has members, unless with `force`."""
        params = {"force": "true"} if force else None
        await self._calls.transport.request(
            "DELETE", join("groups", name), params=params, repeatable=False
        )


class _Detail(msgspec.Struct):
    name: str
    settings: dict[str, Any] = {}
    topics: list[str] = []
    created_at: datetime | None = None
    state: str = "empty"
    generation: int = 0
    members: int = 0
    owner: str | None = None


class _Groups(msgspec.Struct):
    details: list[_Detail] = []
