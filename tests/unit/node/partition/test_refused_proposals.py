"""What a refused proposal may and may not leave behind in a partition's queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delivery.leader.appender import Appender
from delivery.state.partition import PartitionState
from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import GoQueueError, NotLeader
from goqueue.wire.types import Index, Offset
from log.entry import Entry, make_entry
from log.errors import EntryDamaged
from node.metrics import Metrics
from node.partition.append_queue import AppendLimits, AppendQueue, ByteBudget
from raft.errors import Outcome
from raft.group import RaftGroup


class Group:
    """A leader that commits when told to, and refuses proposals when told to."""

    id = "group"
    leader = "me"
    log_time = SimpleNamespace(now_ms=lambda: 1000)

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.refuses: Exception | None = None
        self.proposed: list[tuple[Entry, Callable[..., None]]] = []
        self._last = 1

    def propose(
        self, kind: int, body: Any, *, callback: Callable[..., None], **facts: Any
    ) -> Index:
        if self.refuses is not None:
            raise self.refuses
        self._last += 1
        entry = make_entry(index=self._last, term=1, kind=kind, body=body, **facts)
        self.proposed.append((entry, callback))
        return Index(self._last)

    def commit(self) -> None:
        proposed, self.proposed = self.proposed, []
        for entry, callback in proposed:
            self.state.apply(entry)
            callback(Outcome.APPLIED, None, entry.index)


class Partition:
    """A queue in front of a group and its state."""

    def __init__(self, entry_bytes: int = 1 << 20) -> None:
        self.state = PartitionState()
        self.group = Group(self.state)
        self.budget = ByteBudget(1 << 20)
        self.original_time_ms: Callable[[Offset], int] = lambda _offset: 1000
        self.queue = AppendQueue(
            topic="t",
            raft_group=cast(RaftGroup, self.group),
            appender=lambda: Appender(self.state),
            original_time_ms=lambda offset: self.original_time_ms(offset),
            is_relaxed=lambda: False,
            limits=AppendLimits(1 << 20, entry_bytes, self.budget),
            metrics=Metrics(),
            workers=cast(ThreadPoolExecutor, None),
        )
        self.queue.open()

    def publish(self, value: bytes, request_id: int = 0, **identity: Any) -> asyncio.Future[Any]:
        batch = encode_batch([Record(value=value)], **identity)
        return self.queue.append(batch, request_id=request_id, validated=True)

    async def turn(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        await self.turn()
        self.group.commit()


async def test_a_handover_that_fails_does_not_close_the_partition() -> None:
    partition = Partition()
    flying = partition.publish(b"a", request_id=1)
    await partition.turn()

    partition.group.refuses = NotLeader(None)  # as a leader does while it hands over
    waiting = partition.publish(b"b", request_id=2)
    await partition.settle()
    assert (await flying).base_offset == 0
    with pytest.raises(NotLeader) as refusal:
        await waiting
    assert refusal.value.outcome == "none"

    partition.group.refuses = None  # the other node did not take over
    again = partition.publish(b"b", request_id=2)
    await partition.settle()
    assert (await again).base_offset == 1
    assert not (await again).duplicate
    assert partition.budget.used == 0


@pytest.mark.parametrize(
    "identity", [{}, {"producer_id": 7, "producer_epoch": 0, "base_sequence": 1}]
)
async def test_a_refused_proposal_leaves_no_gap_in_the_offsets(identity: dict[str, int]) -> None:
    partition = Partition()
    first = {**identity, "base_sequence": 0} if identity else {}
    before = partition.publish(b"a", request_id=1, **first)
    await partition.turn()

    partition.group.refuses = ValueError("an entry that is too long")
    refused = partition.publish(b"b", request_id=2, **identity)
    await partition.turn()
    with pytest.raises(GoQueueError):
        await refused

    partition.group.refuses = None
    again = partition.publish(b"b", request_id=2, **identity)
    await partition.settle()
    assert (await before).base_offset == 0
    assert (await again).base_offset == 1
    assert not (await again).duplicate


async def test_what_waits_behind_a_refused_entry_is_refused_alike() -> None:
    partition = Partition(entry_bytes=1)
    partition.group.refuses = NotLeader(None)

    waiting = [
        partition.publish(b"m", producer_id=7, producer_epoch=0, base_sequence=number)
        for number in range(3)
    ]
    await partition.turn()

    errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [NotLeader] * 3  # none is out of order
    assert partition.budget.used == 0


async def test_a_duplicate_whose_original_cannot_be_read_is_still_answered() -> None:
    partition = Partition()
    original = partition.publish(b"a", request_id=1)
    await partition.settle()
    assert (await original).base_offset == 0

    def damaged(_offset: Offset) -> int:
        raise EntryDamaged("g", 2, 2, "flipped")

    partition.original_time_ms = damaged
    follower = partition.publish(b"b", request_id=2)
    twin = partition.publish(b"a", request_id=1)
    await partition.settle()

    assert (await twin).duplicate
    assert (await twin).base_offset == 0
    assert (await follower).base_offset == 1
