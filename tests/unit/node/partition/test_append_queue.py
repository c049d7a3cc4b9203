"""Publishes on their way into entries: shared entries, order, duplicates, bounds, step-down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from delivery.entries.records import decode_records
from delivery.leader.appender import Appender
from delivery.state.partition import PartitionState
from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import BatchError, Busy, DelayTooLong, NotLeader, OutcomeUnknown
from goqueue.wire.types import Index, Offset
from log.entry import Entry, make_entry
from node.api.records import AppendResult
from node.metrics import Metrics
from node.partition.append_queue import OFF_LOOP_BYTES, AppendLimits, AppendQueue, ByteBudget
from raft.errors import Outcome

Callback = Callable[[Outcome, object, Index], None]


class Group:
    """A leader that keeps what is proposed until the test says how it ends."""

    leader = "node-2"

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.entries: list[Entry] = []
        self.callbacks: list[Callback] = []
        self.leads = True
        self.log_time = SimpleNamespace(now_ms=lambda: 1000 + len(self.entries))

    def propose(
        self,
        kind: int,
        body: Sequence[bytes | memoryview],
        *,
        base_offset: int,
        record_count: int,
        time_ms: int,
        callback: Callback,
    ) -> Index:
        if not self.leads:
            raise NotLeader("node-2")
        index = len(self.entries) + 1
        self.entries.append(
            make_entry(
                index=index,
                term=1,
                time_ms=time_ms,
                kind=kind,
                body=body,
                base_offset=base_offset,
                record_count=record_count,
            )
        )
        self.callbacks.append(callback)
        return Index(index)

    def finish(self, number: int, outcome: Outcome = Outcome.APPLIED) -> None:
        if outcome is Outcome.APPLIED:
            self.state.apply(self.entries[number])
        self.callbacks[number](outcome, None, self.entries[number].index)


class Scene:
    """One partition with its queue."""

    def __init__(self, workers: ThreadPoolExecutor, pending: int, entry: int) -> None:
        self.state = PartitionState()
        self.group = Group(self.state)
        self.budget = ByteBudget(1 << 30)
        self.relaxed = False
        self.queue = AppendQueue(
            topic="t",
            raft_group=self.group,  # type: ignore[arg-type]
            appender=lambda: Appender(self.state, max_message_bytes=1 << 20),
            original_time_ms=lambda _offset: 7,
            is_relaxed=lambda: self.relaxed,
            limits=AppendLimits(pending, entry, self.budget),
            metrics=Metrics(),
            workers=workers,
        )
        self.queue.open()

    def append(self, batch: bytes, request_id: int = 0) -> asyncio.Future[object]:
        return self.queue.append(batch, request_id=request_id, validated=False)  # type: ignore[return-value]

    def alter(self, *, relaxed: bool) -> None:
        self.relaxed = relaxed
        self.queue.durability_altered()

    def values(self, entry: int) -> list[bytes]:
        from goqueue.wire.batch import RecordBatch

        stored = decode_records(self.group.entries[entry].body)
        return [value for part in stored for value in RecordBatch.parse(part.batch).values()]


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Scene]]:
    workers = ThreadPoolExecutor(1)
    yield lambda pending=1 << 20, entry=1 << 20: Scene(workers, pending, entry)
    workers.shutdown()


def batch(*values: str, producer: int = 0, sequence: int = 0, ids: bool = False) -> bytes:
    """With `ids`, each value is its own message id."""
    records = [Record(value.encode(), message_id=value if ids else None) for value in values]
    return encode_batch(records, producer_id=producer, producer_epoch=0, base_sequence=sequence)


async def turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_requests_of_one_turn_share_an_entry_and_get_their_own_offsets(
    make: Callable[..., Scene],
) -> None:
    scene = make()

    futures = [scene.append(batch("a", "b")), scene.append(batch("c")), scene.append(batch("d"))]
    await turn()
    scene.group.finish(0)

    assert len(scene.group.entries) == 1
    assert scene.values(0) == [b"a", b"b", b"c", b"d"]
    results = [await future for future in futures]
    assert [(r.base_offset, r.count, r.time_ms) for r in results] == [  # type: ignore[attr-defined]
        (0, 2, 1000),
        (2, 1, 1000),
        (3, 1, 1000),
    ]


async def test_nothing_is_answered_before_its_entry_applied(make: Callable[..., Scene]) -> None:
    scene = make()

    future = scene.append(batch("a"))
    await turn()

    assert not future.done()
    scene.group.finish(0)
    assert future.done()


async def test_an_entry_is_bounded_and_the_rest_goes_into_the_next(
    make: Callable[..., Scene],
) -> None:
    scene = make(entry=500)

    for number in range(6):
        scene.append(batch(str(number) * 150))
    await turn()

    assert len(scene.group.entries) > 1
    assert [v[:1] for e in range(len(scene.group.entries)) for v in scene.values(e)] == [
        str(number).encode() for number in range(6)
    ]


async def test_a_repeat_in_flight_is_answered_with_the_original_once_that_applied(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    first = scene.append(batch("a"), request_id=9)
    await turn()

    again = scene.append(batch("a"), request_id=9)
    same_turn = [scene.append(batch("b"), request_id=10), scene.append(batch("b"), request_id=10)]
    await turn()

    assert not again.done()
    scene.group.finish(0)
    assert (await again).duplicate and (await again).base_offset == 0  # type: ignore[attr-defined]
    assert not (await first).duplicate  # type: ignore[attr-defined]
    scene.group.finish(1)
    assert [(await f).base_offset for f in same_turn] == [1, 1]  # type: ignore[attr-defined]
    assert sum(len(scene.values(e)) for e in range(len(scene.group.entries))) == 2


async def test_a_repeat_of_what_is_applied_is_answered_at_once_with_its_time(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    scene.append(batch("a", producer=5))
    await turn()
    scene.group.finish(0)

    again = scene.append(batch("a", producer=5))
    await turn()

    assert again.done()
    result = again.result()
    assert (result.duplicate, result.base_offset, result.time_ms) == (True, 0, 7)  # type: ignore[attr-defined]


async def test_bytes_in_flight_are_bounded_and_given_back(make: Callable[..., Scene]) -> None:
    scene = make(pending=400)
    scene.append(batch("x" * 250))
    await turn()

    with pytest.raises(Busy):
        scene.append(batch("y" * 250))
    scene.group.finish(0)
    scene.append(batch("y" * 250))

    await turn()
    scene.group.finish(1)
    assert scene.budget.used == 0


async def test_losing_leadership_tells_waiting_and_proposed_requests_apart(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    proposed = scene.append(batch("a"))
    await turn()
    waiting = scene.append(batch("b"))

    scene.queue.close("node-2")
    scene.group.finish(0, Outcome.UNKNOWN)

    with pytest.raises(NotLeader):
        await waiting
    with pytest.raises(OutcomeUnknown):
        await proposed
    with pytest.raises(NotLeader):
        scene.append(batch("c"))
    assert scene.budget.used == 0


async def test_a_refused_proposal_fails_its_requests_without_doubt(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    scene.group.leads = False

    future = scene.append(batch("a"))
    await turn()

    with pytest.raises(NotLeader) as caught:
        await future
    assert caught.value.outcome == "none"


async def test_a_damaged_batch_is_refused_and_the_rest_is_not(make: Callable[..., Scene]) -> None:
    scene = make()
    torn = bytearray(batch("a"))
    torn[-1] ^= 1

    with pytest.raises(BatchError):
        scene.append(bytes(torn))
    good = scene.append(batch("b"))
    await turn()
    scene.group.finish(0)

    assert (await good).base_offset == Offset(0)  # type: ignore[attr-defined]


async def test_a_large_batch_is_checked_off_the_loop_and_keeps_its_place(
    make: Callable[..., Scene],
) -> None:
    scene = make(pending=1 << 22)
    large = encode_batch([Record(b"L" * OFF_LOOP_BYTES, None)])

    scene.append(large)
    scene.append(batch("after"))
    async with asyncio.timeout(30):
        while not scene.group.entries:  # noqa: ASYNC110 - a worker thread is on its way
            await asyncio.sleep(0.001)

    assert [value[:5] for value in scene.values(0)] == [b"LLLLL", b"after"]


# message ids


async def test_rows_of_a_known_id_are_not_stored_and_told_with_their_originals(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    first = scene.append(batch("a", "b", ids=True))
    await turn()
    scene.group.finish(0)

    again = scene.append(batch("c", "b", "a", "d", ids=True))
    await turn()
    scene.group.finish(1)

    assert (await first).rows is None  # type: ignore[attr-defined]
    result = await again
    assert scene.values(1) == [b"c", b"d"]
    assert result.rows == ((2, False), (1, True), (0, True), (3, False))  # type: ignore[attr-defined]
    assert (result.base_offset, result.count, result.duplicate) == (2, 4, False)  # type: ignore[attr-defined]
    assert scene.budget.used == 0


async def test_an_entry_without_new_rows_is_not_proposed(make: Callable[..., Scene]) -> None:
    scene = make()
    scene.append(batch("a", ids=True))
    await turn()
    scene.group.finish(0)

    again = scene.append(batch("a", ids=True))
    await turn()

    assert len(scene.group.entries) == 1
    result = again.result()
    assert (result.duplicate, result.rows, result.time_ms) == (True, ((0, True),), 7)  # type: ignore[attr-defined]


async def test_a_message_in_flight_twice_is_answered_when_the_first_has_applied(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    one_turn = [scene.append(batch("a", ids=True)), scene.append(batch("a", ids=True))]
    await turn()
    scene.append(batch("b", ids=True))
    await turn()
    later = scene.append(batch("b", "a", ids=True))
    await turn()

    scene.group.finish(0)
    assert [future.result().duplicate for future in one_turn] == [False, True]  # type: ignore[attr-defined]
    assert not later.done()

    scene.group.finish(1)
    assert later.result().rows == ((1, True), (0, True))  # type: ignore[attr-defined]
    assert scene.budget.used == 0


async def test_a_duplicate_whose_original_is_in_doubt_is_in_doubt(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    scene.append(batch("a", ids=True))
    await turn()
    again = scene.append(batch("a", ids=True))
    await turn()

    scene.group.finish(0, Outcome.UNKNOWN)

    with pytest.raises(OutcomeUnknown):
        await again
    after = scene.append(batch("a", ids=True))
    await turn()
    with pytest.raises(OutcomeUnknown):
        await after
    assert scene.budget.used == 0


async def test_a_delay_is_judged_by_log_time(make: Callable[..., Scene]) -> None:
    scene = make()
    horizon_ms = scene.state.queue.config.delay_ms_max
    far = encode_batch([Record(b"v", deliver_at_ms=horizon_ms + 1)])

    future = scene.append(far)
    await turn()

    with pytest.raises(DelayTooLong):
        await future
    assert not scene.group.entries


async def test_a_producers_known_messages_are_left_out_and_its_sequence_goes_on(
    make: Callable[..., Scene],
) -> None:
    scene = make()
    scene.append(batch("a", "b", ids=True))
    await turn()
    scene.group.finish(0)

    known = scene.append(batch("b", "a", producer=5, ids=True))
    mixed = scene.append(batch("c", "a", producer=5, sequence=2, ids=True))
    await turn()
    assert not known.done()
    scene.group.finish(1)

    assert scene.values(1) == [b"c"]
    assert (known.result().duplicate, known.result().rows) == (True, ((1, True), (0, True)))  # type: ignore[attr-defined]
    assert mixed.result().rows == ((2, False), (0, True))  # type: ignore[attr-defined]
    again = scene.append(batch("c", "a", producer=5, sequence=2, ids=True))
    await turn()
    assert again.result().rows == ((2, True), (0, True))  # type: ignore[attr-defined]
    assert (scene.budget.used, scene.queue.duplicates) == (0, 5)


async def durability(answer: asyncio.Future[object]) -> str:
    result = await answer
    assert isinstance(result, AppendResult)
    return result.durability


async def test_an_answer_tells_whether_the_append_was_relaxed(make: Callable[..., Scene]) -> None:
    for relaxed in (False, True):
        scene = make()
        scene.relaxed = relaxed

        answer = scene.append(batch("a"), request_id=1)
        await turn()
        scene.group.finish(0)
        again = scene.append(batch("a"), request_id=1)
        await turn()

        expected = "relaxed" if relaxed else "majority"
        assert [await durability(answer), await durability(again)] == [expected, expected]


@pytest.mark.parametrize("before", [False, True])
async def test_an_append_on_its_way_while_the_durability_is_altered_was_relaxed(
    make: Callable[..., Scene], before: bool
) -> None:
    scene = make()
    scene.relaxed = before
    answer = scene.append(batch("a"), request_id=1)
    await turn()

    scene.alter(relaxed=not before)
    twin = scene.append(batch("a"), request_id=1)
    await turn()
    scene.alter(relaxed=False)
    scene.group.finish(0)
    later = scene.append(batch("b"), request_id=2)
    await turn()
    scene.group.finish(1)
    repeat = scene.append(batch("a"), request_id=1)
    await turn()

    told = [await durability(one) for one in (answer, twin, later, repeat)]
    assert told == ["relaxed", "relaxed", "majority", "relaxed"]
