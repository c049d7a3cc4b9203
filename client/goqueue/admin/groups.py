"""What is done to groups that run: whose they are, who is in them, and where they go on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from goqueue.models.groups import GroupMembers, OffsetReset, ParkedKey, Rebalances
from goqueue.models.queued import blob
from goqueue.models.times import Duration, Time, duration_text, time_text
from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join
from goqueue.wire.errors import BadRequest

REBALANCES_MAX = 100


class GroupAdmin:
    """The part of the admin that knows groups."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def assign_group(self, name: str, owner: str) -> None:
        """Give a group to the keys that reach this prefix; `*`: to those of all groups only. For
        admins of every topic. Raises `UnknownGroup`."""
        body = {"owner": owner}
        await self._calls.post("PUT", join("groups", name, "owner"), body, repeatable=True)

    async def resume_group(self, name: str, topic: str | None = None) -> None:
        """Let a halted group go on, in one topic or all."""
        body = given({"topic": topic})
        await self._calls.post("POST", join("groups", name, "resume"), body, repeatable=True)

    async def park_key(self, name: str, topic: str, key: str) -> None:
        """Withhold a key's messages from an `ordering="key"` group until it is released."""
        body = {"topic": topic, "key": key}
        await self._calls.post("POST", join("groups", name, "keys", "park"), body, repeatable=True)

    async def release_key(self, name: str, topic: str, key: str) -> None:
        """Let a parked key's messages flow again, from its first one."""
        body = {"topic": topic, "key": key}
        await self._calls.post(
            "POST", join("groups", name, "keys", "release"), body, repeatable=True
        )

    async def parked_keys(self, name: str, topic: str) -> list[ParkedKey]:
        """The keys that are withheld from the group."""
        path = join("groups", name, "keys", "parked")
        found = (await self._calls.get(path, _Parked, {"topic": topic})).parked
        return [
            ParkedKey(one.topic, one.partition, blob(one.key, one.key_encoding), one.waiting)
            for one in found
        ]

    async def members(self, group: str) -> GroupMembers:
        """Who is in the group. Raises `UnknownGroup`."""
        return await self._calls.get(join("groups", group, "members"), GroupMembers)

    async def rebalances(self, group: str, *, limit: int = REBALANCES_MAX) -> Rebalances:
        """What the last rebalances moved, newest first, and totals. Raises `UnknownGroup`."""
        path = join("groups", group, "rebalances")
        return await self._calls.get(path, Rebalances, {"limit": str(limit)})

    async def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        to: str | None = None,
        offset: int | None = None,
        time: Time | None = None,
        duration: Duration | None = None,
        shift: int | None = None,
        partitions: Sequence[int] | None = None,
        dry_run: bool = False,
        force: bool = False,
        member: str | None = None,
        generation: int | None = None,
    ) -> list[OffsetReset]:
        """Set the group's position in each partition of the topic, or in some: `to` earliest or
        latest, to an `offset`, to what was stored at a `time`, to a `duration` ago, or by a `shift`
        from where it is. `dry_run` changes nothing and tells what would be.

        Leases end and attempts are forgotten. Raises `GroupActive` while the group has members,
        unless with `force`, or a `member` has all these partitions in its `generation`.
        """
        wanted = given(
            {
                "to": to,
                "offset": offset,
                "time": None if time is None else time_text(time),
                "duration": None if duration is None else duration_text(duration, "duration"),
                "shift": shift,
            }
        )
        if len(wanted) != 1:
            raise BadRequest("give one of to, offset, time, duration and shift")
        body = given(
            {
                "topic": topic,
                **wanted,
                "partitions": None if partitions is None else list(partitions),
                "dry_run": dry_run or None,
                "force": force or None,
                "member_id": member,
                "generation": generation,
            }
        )
        path = join("groups", group, "offsets", "reset")
        return (await self._calls.send("POST", path, body, _Reset, repeatable=dry_run)).offsets


class _ParkedBody(msgspec.Struct):
    topic: str
    partition: int
    key: str
    waiting: int = 0
    key_encoding: str | None = None


class _Parked(msgspec.Struct):
    parked: list[_ParkedBody]


class _Reset(msgspec.Struct):
    offsets: list[OffsetReset] = []
