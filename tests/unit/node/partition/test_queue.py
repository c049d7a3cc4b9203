"""The leader's side of a partition's queue: shared entries, time, leaving, losing leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from delivery.config import GroupConfig, QueueConfig
from delivery.entries import ops
from delivery.entries.ops import (
    ACK,
    Committed,
    Delivered,
    Granted,
    Halted,
    Settled,
    SettledResult,
    Tick,
    decode_ops,
)
from delivery.entries.records import AppendBatch, encode_records
from delivery.leader.dispatcher import OPS_MAX, Want
from delivery.state.partition import PartitionState
from goqueue.wire.batch import Record, RecordBatch, encode_batch
from goqueue.wire.errors import NotLeader, OutcomeUnknown
from goqueue.wire.types import Index
from log.entry import Entry, EntryKind, make_entry
from log.levels import NotFinished
from node.partition.queue import QueueHost
from node.rpc.queue import GroupRef
from raft.errors import Outcome
from raft.group import RaftGroup

G = GroupRef(7, "g", 7, GroupConfig())


class Group:
    """A leader whose entries end when the test says so, or by themselves a turn later."""

    id = "group"
    leader: str | None = "me"

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.host: QueueHost | None = None
        self.is_ready_leader = True
        self.election = SimpleNamespace(has_quorum=True)
        self.log_time = SimpleNamespace(now_ms=lambda: self.now_ms)
        self.holds = False
        self.now_ms = 1_000_000
        self.entries: list[Entry] = []
        self.flying: list[tuple[Entry, Callable[..., None]]] = []

    def propose(
        self,
        kind: int,
        body: Any,
        *,
        callback: Callable[..., None],
        relaxed: bool = False,
        **facts: Any,
    ) -> Index:
        if not self.is_ready_leader:
            raise NotLeader("other")
        index = len(self.entries) + 1
        facts.setdefault("time_ms", self.now_ms)
        entry = make_entry(index=index, term=1, kind=kind, body=body, **facts)
        self.entries.append(entry)
        self.flying.append((entry, callback))
        if not self.holds:
            asyncio.get_running_loop().call_soon(self.finish)
        return Index(index)

    def finish(self, outcome: Outcome = Outcome.APPLIED) -> None:
        flying, self.flying = self.flying, []
        for entry, callback in flying:
            result = self.state.apply(entry) if outcome is Outcome.APPLIED else None
            if self.host is not None:
                self.host.applied(is_records=entry.kind == EntryKind.RECORDS)
            callback(outcome, result, entry.index)

    def publish(self, *records: Record) -> None:
        batch = RecordBatch.parse(encode_batch(records))
        self.propose(
            EntryKind.RECORDS,
            encode_records([AppendBatch.of(batch, 0)]),
            base_offset=self.state.next_offset,
            record_count=len(records),
            callback=lambda *_: None,
        )
        self.finish()

    def ops(self) -> list[Any]:
        return [op for e in self.entries if e.kind == EntryKind.QUEUE for op in decode_ops(e.body)]


class Scene:
    """One led partition with its queue."""

    def __init__(self) -> None:
        self.state = PartitionState()
        self.group = Group(self.state)
        self.host = QueueHost(
            raft_group=cast(RaftGroup, self.group), state=self.state, config=QueueConfig
        )
        self.group.host = self.host
        self.host.open()

    def receive(
        self, limit: int = 1, visibility_ms: int = 30_000, request: int = 0
    ) -> asyncio.Task[Granted]:
        want = Want(G.id, "m", limit, visibility_ms, request)
        return asyncio.ensure_future(self.host.receive(want, G))

    async def granted(self, limit: int = 1) -> list[int]:
        return [grant.offset for grant in (await self.receive(limit)).grants]


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await scene.host.opened(G)
    return scene


async def test_receives_of_one_turn_share_an_entry(scene: Scene) -> None:
    scene.group.publish(*[Record(b"x")] * 10)
    before = len(scene.group.entries)

    tasks = [scene.receive(3) for _ in range(4)]
    answers = [await task for task in tasks]

    assert [[g.offset for g in a.grants] for a in answers] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert len(scene.group.entries) == before + 1


async def test_a_receive_that_comes_while_nothing_is_ready_gets_nothing_without_an_entry(
    scene: Scene,
) -> None:
    before = len(scene.group.entries)

    assert await scene.granted() == []
    assert len(scene.group.entries) == before


async def test_a_receiver_that_leaves_before_its_entry_costs_no_lease(scene: Scene) -> None:
    scene.group.publish(Record(b"x"))
    task = scene.receive()
    task.cancel()
    await turns()

    assert not any(isinstance(op, Delivered) for op in scene.group.ops())
    assert (await scene.receive()).grants[0].attempt == 1


@pytest.mark.parametrize("turns_before", range(6))
async def test_a_receiver_that_leaves_while_its_entry_is_under_way_gives_back_the_attempt(
    scene: Scene, turns_before: int
) -> None:
    scene.group.publish(Record(b"x"))
    task = scene.receive()
    await turns(turns_before)
    task.cancel()
    await turns()

    answer = await scene.receive()
    if task.cancelled():
        assert [(grant.offset, grant.attempt) for grant in answer.grants] == [(0, 1)]
    else:  # it had its answer
        assert ([g.offset for g in task.result().grants], answer.grants) == ([0], [])


async def test_settles_need_not_wait_for_a_delivery_under_way(scene: Scene) -> None:
    scene.group.publish(Record(b"x"), Record(b"y"))
    first = await scene.receive()
    scene.group.holds = True
    receiving = scene.receive()
    await turns()

    settled = Settled(G.id, ACK, [(first.delivery, [0])])
    settling = asyncio.ensure_future(scene.host.submit([settled]))
    await turns()
    assert len(scene.group.flying) == 2
    scene.group.finish()

    (result,) = await settling
    assert isinstance(result, SettledResult)
    assert result.committed_offset == 1
    assert [grant.offset for grant in (await receiving).grants] == [1]


async def test_what_waits_when_leadership_is_lost_has_not_happened(scene: Scene) -> None:
    scene.group.publish(Record(b"x"))
    scene.group.holds = True
    flying = scene.receive()
    await turns()
    waiting = scene.receive()
    await turns()

    scene.group.is_ready_leader = False
    scene.host.close("other")
    await turns()
    with pytest.raises(NotLeader) as refusal:
        await waiting
    assert (refusal.value.outcome, refusal.value.data["leader"]) == ("none", "other")
    assert not flying.done()

    scene.group.finish(Outcome.UNKNOWN)
    with pytest.raises(OutcomeUnknown):
        await flying
    with pytest.raises(NotLeader):
        await scene.receive()


async def test_a_receive_whose_entry_gave_nothing_after_leadership_was_lost_is_refused(
    scene: Scene,
) -> None:
    scene.group.publish(Record(b"x"))
    scene.group.holds = True
    scene.host.put(Committed(G.id, 1))  # in the same entry: nothing is left to be delivered
    taken = scene.receive()
    await turns()
    scene.host.close("other")

    scene.group.finish()

    async with asyncio.timeout(30):
        with pytest.raises(NotLeader):
            await taken


async def test_without_a_majority_in_reach_nothing_is_taken_on(scene: Scene) -> None:
    scene.group.election.has_quorum = False

    with pytest.raises(NotLeader):
        await scene.receive()


async def test_no_timer_stands_where_nothing_is_due(scene: Scene) -> None:
    scene.group.publish(Record(b"x"))
    await scene.receive()
    assert scene.host._timer is not None  # the lease's end

    await scene.host.submit([Settled(G.id, ACK, [(scene.group.entries[-1].index, [0])])])
    await turns()

    assert scene.host._timer is None


async def test_a_lease_that_is_over_ends_by_an_entry_and_the_message_comes_again(
    scene: Scene,
) -> None:
    scene.group.publish(Record(b"x"))
    await scene.receive(visibility_ms=20)
    scene.group.now_ms += 20
    waiter = asyncio.get_running_loop().create_future()
    scene.host.watch(G.id, waiter)
    async with asyncio.timeout(30):
        await waiter
    scene.host.unwatch(G.id, waiter)

    (grant,) = (await scene.receive()).grants
    assert (grant.attempt, grant.reason) == (2, "visibility timeout")


async def test_whoever_waits_is_told_when_a_delayed_message_is_due(scene: Scene) -> None:
    scene.group.publish(Record(b"x", deliver_at_ms=30))
    waiter = asyncio.get_running_loop().create_future()
    scene.host.watch(G.id, waiter)
    await turns()
    assert not waiter.done()

    scene.group.now_ms += 30
    async with asyncio.timeout(30):
        await waiter

    assert scene.host.is_ready(G.id)


async def test_as_many_are_told_as_there_are_messages_and_then_the_next_ones(
    scene: Scene,
) -> None:
    waiters = [asyncio.get_running_loop().create_future() for _ in range(3)]
    for waiter in waiters:
        scene.host.watch(G.id, waiter)

    scene.group.publish(Record(b"x"))
    await turns()
    assert [waiter.done() for waiter in waiters] == [True, False, False]

    scene.host.unwatch(G.id, waiters[0])  # it was told, and never comes
    async with asyncio.timeout(30):
        await waiters[1]
    assert not waiters[2].done()


async def test_who_waits_for_higher_lanes_only_is_not_told_of_lower_ones_and_stands_before_nobody(
    scene: Scene,
) -> None:
    high, any_lane = (asyncio.get_running_loop().create_future() for _ in range(2))
    scene.host.watch(G.id, high, 0)
    scene.host.watch(G.id, any_lane)

    scene.group.publish(Record(b"x", lane=2))
    await turns()
    assert (high.done(), any_lane.done()) == (False, True)

    scene.group.publish(Record(b"y", lane=0))
    await turns()
    assert high.done()


async def test_waiters_are_told_when_leadership_is_lost(scene: Scene) -> None:
    waiter = asyncio.get_running_loop().create_future()
    scene.host.watch(G.id, waiter)

    scene.host.close(None)

    assert waiter.done()


async def test_settings_of_the_topic_go_into_the_log_once(scene: Scene) -> None:
    scene.host._config = lambda: QueueConfig(lanes=3)
    before = len(scene.group.entries)
    scene.host.configure()
    scene.host.configure()
    await turns()

    assert scene.state.queue.config.lanes == 3
    assert len(scene.group.entries) == before + 1


async def test_opening_a_group_is_tried_again_where_the_entry_was_refused() -> None:
    scene = Scene()
    await turns()
    scene.group.is_ready_leader = False  # hands over
    opening = asyncio.ensure_future(scene.host.opened(G))
    with pytest.raises(NotLeader):
        await opening

    scene.group.is_ready_leader = True
    propose = scene.group.propose
    scene.group.propose = cast(Any, _refuse)
    opening = asyncio.ensure_future(scene.host.opened(G))
    await turns()
    scene.group.propose = propose  # type: ignore[method-assign]

    async with asyncio.timeout(30):
        await opening


async def test_what_an_entry_that_was_refused_left_over_goes_out_later() -> None:
    scene = Scene()
    await turns()
    scene.host._config = lambda: QueueConfig(ttl_ms=5)
    propose = scene.group.propose
    scene.group.propose = cast(Any, _refuse)
    scene.host.configure()
    many = asyncio.ensure_future(scene.host.submit([Tick()] * (OPS_MAX + 1)))
    await turns()
    scene.group.propose = propose  # type: ignore[method-assign]

    async with asyncio.timeout(30):
        with pytest.raises(NotLeader):
            await many
        while scene.state.queue.config.ttl_ms != 5:
            await turns()
    assert scene.group.ops().count(Tick()) >= 1


def _refuse(*_: object, **__: object) -> Index:
    raise NotLeader(None)


async def test_records_cost_no_turn_while_nobody_waits_and_nothing_falls_due_sooner(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await turns()
    made: list[int] = []
    turn = scene.host._turn
    monkeypatch.setattr(scene.host, "_turn", lambda: (made.append(1), turn()))

    scene.group.publish(Record(b"x"))
    await turns()
    assert made == []

    scene.group.publish(Record(b"y", deliver_at_ms=500))
    await turns()
    assert made == [1]
    assert scene.host._timer is not None
    scene.group.publish(Record(b"z", deliver_at_ms=900))
    await turns()
    assert made == [1]
    scene.group.publish(Record(b"z", deliver_at_ms=100))
    await turns()
    assert made == [1, 1]


async def test_operations_of_a_level_that_is_not_finished_are_never_proposed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ops, "FEATURES", {Halted: 2})
    before = len(scene.group.entries)

    with pytest.raises(NotFinished, match="needs level 2"):
        await scene.host.submit([Halted(G.id, "of a later version")], G)
    assert len(scene.group.entries) == before

    scene.host._levels.applied(2)
    await scene.host.submit([Halted(G.id, "of a later version")], G)
    assert len(scene.group.entries) > before
