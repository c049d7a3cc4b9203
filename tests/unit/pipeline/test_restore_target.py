"""Each row of a run is stored once, at its number, by the rules of the real leader."""

from __future__ import annotations

import asyncio
import copy
import random
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from goqueue import AsyncClient
from goqueue.errors import NoQuorum
from goqueue.models.messages import Message
from goqueue.transport.channel import Answer
from goqueue.wire.batch import RecordBatch
from pipeline.restore import target
from pipeline.restore.marks import encoded
from pipeline.restore.state import Plan, Range, State
from pipeline.restore.target import RunBehind, RunForgotten, TargetPartition
from tests.unit.goqueue.archive.partition import message
from tests.unit.pipeline.sink_log import SinkLog

COUNT = 60
ROWS = [message(offset) for offset in range(COUNT)]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "PAUSE_S", 0.0)
    monkeypatch.setattr(target, "LOST_S", 0.0)


def state() -> State:
    ranges = (Range(0, 0, COUNT, COUNT),)
    plan = Plan("r", "old", "ab-1", "orders", "ab-2", 1, ranges, {}, False)
    return State(plan, producer_id=7, epoch=0)


def client(log: SinkLog) -> AsyncClient:
    class Transport:
        async def request(self, method: str, path: str, **named: Any) -> Answer:
            await asyncio.sleep(0)
            return log.request(method, path, leader=None, **named)

    return cast(AsyncClient, SimpleNamespace(transport=Transport()))


async def at_once(_count: int) -> None:
    return None


def stored(log: SinkLog) -> list[bytes]:
    return [value for _base, batch in log.stored for value in batch.values()]


async def count(log: SinkLog) -> int:
    if log.chance.random() < 0.5:
        log.fall()
    return len(stored(log))


async def feed(one: TargetPartition, rows: list[Message], chance: random.Random) -> None:
    at = 0
    while at < len(rows):
        size = chance.randint(1, 9)
        await one.append(rows[at : at + size], at_once)
        at += size


async def test_rows_are_stored_in_order_and_known_to_be_done() -> None:
    log, known = SinkLog(), state()
    await feed(TargetPartition(client(log), known, 0, 0), ROWS, random.Random(1))
    assert stored(log) == [row.value for row in ROWS]
    assert known.done == {0: COUNT}


async def test_killed_and_started_anew_with_an_old_state_each_row_is_there_once() -> None:
    for seed in range(150):
        chance, log = random.Random(seed), SinkLog(seed, trouble=0.3)
        known = state()
        for _attempt in range(100):
            remembered = copy.deepcopy(known)
            fed = chance.randint(0, known.done.get(0, 0))  # where its file lets it begin
            one = TargetPartition(client(log), known, 0, fed)
            upto = chance.randint(fed, COUNT + 20)
            try:
                await feed(one, ROWS[fed:upto], chance)
                if upto >= COUNT:
                    await one.confirm(partial(count, log))
                    break
            except RunBehind:
                continue
            except RunForgotten:  # all of it went down with the leader
                assert not stored(log)
                known = state()
                continue
            known = chance.choice([known, remembered])
        assert stored(log) == [row.value for row in ROWS], f"seed {seed}"


@pytest.mark.parametrize("is_lost", [True, False])
async def test_what_was_only_on_its_way_is_not_believed_to_be_stored(is_lost: bool) -> None:
    log, known = SinkLog(), state()
    await feed(TargetPartition(client(log), known, 0, 0), ROWS[:55], random.Random(1))
    for first, end in ((55, 57), (57, 60)):  # and is killed
        log.judge(RecordBatch.parse(encoded(ROWS[first:end], "r", (7, 0), first, now_ms=0)))

    again = TargetPartition(client(log), known, 0, 50)
    await again.append(ROWS[50:], at_once)
    assert known.done == {0: COUNT}
    assert len(stored(log)) == 55
    log.fall(loses=is_lost)

    if is_lost:
        with pytest.raises(RunBehind):
            await again.confirm(partial(count, log))
        assert known.done == {0: 55}
        again = TargetPartition(client(log), known, 0, 55)
        await again.append(ROWS[55:], at_once)
    await again.confirm(partial(count, log))
    assert stored(log) == [row.value for row in ROWS]


async def test_two_runs_at_once_store_each_row_once() -> None:
    for seed in range(30):
        log = SinkLog(seed, trouble=0.1)
        await asyncio.gather(
            *(
                feed(TargetPartition(client(log), state(), 0, 0), ROWS, random.Random(number))
                for number in range(2)
            )
        )
        assert stored(log) == [row.value for row in ROWS], f"seed {seed}"


async def test_a_log_that_has_forgotten_the_run_is_not_given_rows_twice() -> None:
    log, known = SinkLog(), state()
    known.done[0] = 20
    with pytest.raises(RunForgotten):
        await TargetPartition(client(log), known, 0, 20).append(ROWS[20:30], at_once)

    known.bases[0] = 20  # they were counted, and another producer goes on
    await TargetPartition(client(log), known, 0, 20).append(ROWS[20:30], at_once)
    assert stored(log) == [row.value for row in ROWS[20:30]]


async def test_what_never_succeeds_is_raised_and_nothing_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(target, "PATIENCE_S", 0.0)
    log, known = SinkLog(0, trouble=3.0), state()
    with pytest.raises(NoQuorum):
        for _ in range(100):
            await TargetPartition(client(log), known, 0, 0).append(ROWS[:5], at_once)
            known = state()
