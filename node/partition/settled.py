"""What all groups have settled goes when somebody asks for it, without waiting for retention.

Only whole segments give their space back. So where the newest one holds something settled, another
one begins: with an entry that says so, so that it begins there on every replica. Then the log's
start is moved as retention does it, by a trim that each replica judges by its own applied state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from delivery.entries.records import encode_trim
from delivery.group.state import GroupState
from delivery.state.settled import first_unsettled, pending_below
from goqueue.wire.errors import Busy, ServerError, Unavailable
from goqueue.wire.types import Index, Offset
from log.entry import EntryKind
from node.partition.host import PartitionHost
from node.partition.offset_lookup import offset_at_hand

TURN_S = 10.0
"""How long to wait for a round of retention that runs."""
FOLLOWERS_S = 2.0
"""How long to wait for replicas that lack the newest entries: what they lack stays."""
LOOK_S = 0.01
DECIDES = 3
"""How often the trim is decided anew, where a group got something to do meanwhile."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What was found: so many messages went, and the next one is this group's to do, if any."""

    messages: int = 0
    kept_for: str = ""


class SettledTrim:
    """Of one partition, by its leader, once. Loop thread only."""

    def __init__(
        self,
        host: PartitionHost,
        groups: Callable[[], Iterable[GroupState]],
        snapshot: Callable[[], Awaitable[None]],
    ) -> None:
        """`groups` that take part, also those that have not begun here; `snapshot` stores the
        replica's state: the log goes up to the older one of two."""
        self._host = host
        self._groups = groups
        self._snapshot = snapshot

    async def run(self) -> Settled:
        """Move the log's start past what is settled. All that was to stay is there whenever it is
        cut short, and after a crash. Raises NotLeader, Busy, Unavailable, ServerError where what
        must be kept can't be, LogError, OSError."""
        retention = self._host.retention
        if not await _within(TURN_S, lambda: not retention.in_flight):
            raise Busy("retention is at work in the partition", retry_after_s=1)
        retention.in_flight = True
        try:
            return await self._trim()
        finally:
            retention.in_flight = False

    async def _trim(self) -> Settled:
        host, state = self._host, self._host.state
        before = state.log_start_offset
        offset, kept_for = self._unsettled()
        begins = self._is_worth_a_segment(offset)
        if begins or offset > before:
            end: Index | None = None
            if begins:
                end = await host.retention.propose(EntryKind.NOOP, b"", begins_segment=True)
                if end is None:
                    raise Unavailable("the partition's leader has changed")
                replication = host.raft_group.replication
                await _within(FOLLOWERS_S, lambda: replication.trim_limit >= end)
            await self._snapshot()
            for _ in range(DECIDES):
                offset, kept_for = self._unsettled()
                if await self._trim_to(offset, end):
                    break
        return Settled(state.log_start_offset - before, kept_for)

    def _unsettled(self) -> tuple[int, str]:
        """The first offset that a group has to do yet, and the group; the log's start where there
        are no groups: then nobody can tell what is needed."""
        state = self._host.state
        if not state.queue.groups:
            return state.log_start_offset, ""
        found = min((first_unsettled(group), group.name) for group in self._groups())
        return found if found[0] < state.next_offset else (state.next_offset, "")

    def _is_worth_a_segment(self, offset: int) -> bool:
        """Whether something that is settled stands in the segment that is written to."""
        segments = self._host.log.segments()
        if not segments or offset < self._host.state.log_start_offset:
            return False
        return offset > self._host.retention.offset_from(segments[-1].first_index)

    async def _trim_to(self, offset: int, end: Index | None) -> bool:
        """Whether the log begins at the entry that holds this offset, or before `end` where that is
        earlier; or at none later than now."""
        host, state, retention = self._host, self._host.state, self._host.retention
        await offset_at_hand(host.log, Offset(offset))
        index = end or Index(state.applied_index + 1)
        if offset < state.next_offset:
            holding = host.log.locate_offset(Offset(offset))
            index = min(index, holding or state.log_start_index)
        limit = host.raft_group.replication.trim_limit + 1
        index = Index(min(index, limit, retention.archiving.end_index()))
        start = Offset(max(retention.offset_from(index), state.log_start_offset))
        if index <= state.log_start_index or not retention.archiving.may_drop(start):
            return True
        await self._carry(index, start)
        body = encode_trim(index, start, settled=True)
        await retention.propose(EntryKind.TRIM, body)
        return state.log_start_index >= index

    async def _carry(self, index: Index, start: Offset) -> None:
        """Dead letters, delayed messages, and what groups have to do again outlive the log."""
        left: int | None = None
        retention, groups = self._host.retention, self._host.state.queue.groups
        while not await retention.carry(index, start, pending_below(groups.values(), start)):
            before = left
            left = len(retention.left(index, start, pending_below(groups.values(), start)))
            if before is not None and left >= before:
                raise ServerError("what must be kept can't be read or appended", outcome="none")


async def _within(wait_s: float, holds: Callable[[], bool]) -> bool:
    """Whether it holds, by then."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + wait_s
    while not holds() and loop.time() < until_s:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(LOOK_S)
    return holds()
