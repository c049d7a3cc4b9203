"""How far groups have come: lag, and committed offsets."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from goqueue.models.groups import GroupLag
from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join


class Positions:
    """The part of the client that knows where groups stand."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far the group is behind, in messages and in seconds, in all its topics or one.
        Raises `UnknownGroup`."""
        params = None if topic is None else {"topic": topic}
        return await self._calls.get(join("groups", group, "lag"), GroupLag, params)

    async def offsets(self, group: str, topic: str | None = None) -> dict[str, dict[int, int]]:
        """The group's committed offset in each partition, by topic. Raises `UnknownGroup`."""
        params = None if topic is None else {"topic": topic}
        return (await self._calls.get(join("groups", group, "offsets"), _Committed, params)).offsets

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
        return (await self._calls.send("POST", path, body, _Committed, repeatable=True)).offsets


class _Committed(msgspec.Struct):
    offsets: dict[str, dict[int, int]] = {}
