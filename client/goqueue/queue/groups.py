"""Consumer groups: their settings, and where they stand."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from goqueue.models.groups import Group
from goqueue.models.times import Duration, duration_text
from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join


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

    async def put_group(
        self,
        name: str,
        *,
        visibility_timeout: Duration | None = None,
        max_attempts: int | None = None,
        ordering: str | None = None,
        start: str | None = None,
        backoff: Duration | None = None,
        backoff_max: Duration | None = None,
        on_poison: str | None = None,
        lane_max_wait: Duration | None = None,
        lane_share: int | None = None,
        halt_percent: int | None = None,
        halt_window: int | None = None,
        redrives_max: int | None = None,
        in_flight_max: int | None = None,
        dead_max: int | None = None,
        mode: str | None = None,
        assignor: str | None = None,
        session_timeout: Duration | None = None,
        rebalance_timeout: Duration | None = None,
    ) -> Group:
        """Create a group, or change what is given of it.

        `ordering="key"` delivers a key's next message when its previous one is settled;
        `on_poison="park"` then withholds a key whose message failed `max_attempts` times, instead
        of giving the message up. `start` is `earliest` or `latest`.

        `mode` is `exclusive` (each partition is one member's) or `shared` (any member receives from
        any partition), and can't change while there are members; `assignor` is sticky, range or
        roundrobin. A member that is not heard of for `session_timeout` is gone, and one that does
        not let go of a partition within `rebalance_timeout` is fenced there.
        """
        settings = given(
            {
                "visibility_timeout": _text(visibility_timeout, "visibility_timeout"),
                "max_attempts": max_attempts,
                "ordering": ordering,
                "start": start,
                "backoff": _text(backoff, "backoff"),
                "backoff_max": _text(backoff_max, "backoff_max"),
                "on_poison": on_poison,
                "lane_max_wait": _text(lane_max_wait, "lane_max_wait"),
                "lane_share": lane_share,
                "halt_percent": halt_percent,
                "halt_window": halt_window,
                "redrives_max": redrives_max,
                "in_flight_max": in_flight_max,
                "dead_max": dead_max,
                "mode": mode,
                "assignor": assignor,
                "session_timeout": _text(session_timeout, "session_timeout"),
                "rebalance_timeout": _text(rebalance_timeout, "rebalance_timeout"),
            }
        )
        return await self._calls.send("PUT", join("groups", name), settings, Group, repeatable=True)

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


def _text(duration: Duration | None, what: str) -> str | None:
    return None if duration is None else duration_text(duration, what)
