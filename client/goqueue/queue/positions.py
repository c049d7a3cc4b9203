"""How far groups have come: lag, committed offsets, and setting them anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from goqueue.models.groups import GroupLag, OffsetReset
from goqueue.models.times import Duration, Time, duration_text, time_text
from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join
from goqueue.wire.errors import BadRequest


class Positions(Calls):
    """The part of the client that knows where groups stand."""

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far the group is behind, in messages and in seconds, in all its topics or one.
        Raises `UnknownGroup`."""
        params = None if topic is None else {"topic": topic}
        return await self._get(join("groups", group, "lag"), GroupLag, params)

    async def offsets(self, group: str, topic: str | None = None) -> dict[str, dict[int, int]]:
        """The group's committed offset in each partition, by topic. Raises `UnknownGroup`."""
        params = None if topic is None else {"topic": topic}
        return (await self._get(join("groups", group, "offsets"), _Committed, params)).offsets

    async def commit_offsets(
        self,
        group: str,
        offsets: Mapping[str, Mapping[int, int]],
        *,
        member: str | None = None,
        generation: int | None = None,
        force: bool = False,
    ) -> dict[str, dict[int, int]]:
        """Settle all below each partition's offset, by topic; the committed offsets after it.

        A group with members takes it from the member that has the partition, in its generation, or
        with `force`. Raises `StaleGeneration`.
        """
        body = given(
            {
                "member_id": member,
                "generation": generation,
                "offsets": {
                    topic: {str(partition): offset for partition, offset in places.items()}
                    for topic, places in offsets.items()
                },
                "force": force or None,
            }
        )
        path = join("groups", group, "offsets")
        return (await self._send("POST", path, body, _Committed, repeatable=True)).offsets

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
        return (await self._send("POST", path, body, _Reset, repeatable=dry_run)).offsets


class _Committed(msgspec.Struct):
    offsets: dict[str, dict[int, int]] = {}


class _Reset(msgspec.Struct):
    offsets: list[OffsetReset] = []
