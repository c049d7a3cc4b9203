"""What an engine does for its program without a request, and what a power cut leaves of it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from goqueue.wire.encoding import encode_columns
from goqueue.wire.errors import NotInFlight, PayloadTooLarge, Timeout, Unavailable, UnknownTopic
from log.disk.memory import MemoryDisk
from node.embedded import engine as engine_module
from node.embedded.engine import Engine, EngineTime
from node.server import open_store

TIMES = ("relaxed_sync_ms", "seal_after_ms")
UNSYNCED_BYTES = 10_000
PUT_CALLS, GET_ACK_CALLS = 4, 17
"""Of the loop, by `call_soon`."""
DIRECTORY, TOPIC, GROUP, WAIT_S = "/jobs", "jobs", "workers", 30.0


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is synced because time goes by."""

    def slow_store(*given: Any, **options: Any) -> Any:
        store = open_store(*given, **options)
        config = dataclasses.replace(store.config, **dict.fromkeys(TIMES, 1 << 30))
        store.config = dataclasses.replace(config, relaxed_sync_bytes=UNSYNCED_BYTES)
        return store

    monkeypatch.setattr(engine_module, "open_store", slow_store)


@contextmanager
def opened(disk: MemoryDisk) -> Iterator[Engine]:
    engine = Engine(DIRECTORY, disk)
    engine.open()
    try:
        yield engine
    finally:
        engine.close()


def make(engine: Engine, **settings: object) -> None:
    body = json.dumps({"name": TOPIC, "partitions": 1, **settings}).encode()
    answer = engine.ask("POST", "/v1/topics", {"Content-Type": "application/json"}, body).result()
    assert answer.status == 201, answer.body


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def engine(disk: MemoryDisk) -> Iterator[Engine]:
    with opened(disk) as engine:
        make(engine)
        yield engine


def put(engine: Engine, *values: bytes) -> int:
    stored = engine.append(TOPIC, encode_columns(list(values)), WAIT_S)
    assert stored is not None
    return stored[1].base_offset


def take(engine: Engine, limit: int = 1000, wait_s: float = 0.0) -> Sequence[Any]:
    return engine.take(GROUP, TOPIC, limit, wait_s, None, WAIT_S)


def ack(engine: Engine, messages: Sequence[Any]) -> Sequence[Any]:
    return engine.settle(GROUP, [one.receipt for one in messages], "ack", WAIT_S)


def test_what_is_put_is_taken_in_order_and_acked_once(engine: Engine) -> None:
    assert (put(engine, b"a"), put(engine, b"b", b"c")) == (0, 1)

    taken = take(engine)
    assert [(one.value, one.attempt) for one in taken] == [(b"a", 1), (b"b", 1), (b"c", 1)]
    assert [end.outcome for end in ack(engine, taken[:2])] == ["acked"] * 2
    assert isinstance(ack(engine, taken[:1])[0], NotInFlight)
    assert take(engine) == []


def test_the_desk_judges_as_the_front_does(engine: Engine) -> None:
    with pytest.raises(UnknownTopic):
        engine.append("nothing", encode_columns([b"a"]), WAIT_S)
    with pytest.raises(PayloadTooLarge):
        put(engine, bytes((1 << 20) + 1))

    assert take(engine) == []


def test_what_an_operation_costs(disk: MemoryDisk) -> None:
    """In entries, syncs and calls of the loop, where no timer of the node comes in between; and
    nothing of a put is remembered."""
    count, engine = 50, Engine(DIRECTORY, disk, time=EngineTime(CountingLoop))
    engine.open()
    try:
        make(engine)
        put(engine, b"first")
        ack(engine, take(engine, 1))
        loop, host = engine._loop, led(engine)
        assert isinstance(loop, CountingLoop)
        remembered = len(host.state.requests)

        def costs(act: Callable[[], object]) -> tuple[int, int, int]:
            found: list[tuple[int, int, int]] = []
            for _ in range(count):
                before = host.raft_group.commit_index, disk.syncs, loop.calls
                act()
                after = host.raft_group.commit_index, disk.syncs, loop.calls
                entries, syncs, calls = map(int.__sub__, after, before)
                found.append((entries, syncs, calls))
            return min(found, key=lambda one: one[2])

        entries, syncs, calls = costs(lambda: put(engine, b"a"))
        assert (entries, syncs, len(host.state.requests)) == (1, 1, remembered)
        assert calls <= PUT_CALLS
        entries, syncs, calls = costs(lambda: ack(engine, take(engine, 1)))
        assert (entries, syncs) == (2, 1)
        assert calls <= GET_ACK_CALLS
    finally:
        engine.close()


def led(engine: Engine) -> Any:
    """The topic's partition."""
    replicas = engine.node.broker.topics._replicas.all()
    return next(host for host in replicas if getattr(host, "topic", None) == TOPIC)


class CountingLoop(asyncio.SelectorEventLoop):
    calls = 0

    def call_soon(self, *given: Any, **options: Any) -> asyncio.Handle:
        self.calls += 1
        return super().call_soon(*given, **options)


def test_what_takes_more_is_left_to_a_request(disk: MemoryDisk) -> None:
    with opened(disk) as engine:
        make(engine, cleanup="compact")

        assert engine.append(TOPIC, encode_columns([b"a"]), WAIT_S) is None


def test_a_taker_waits_for_what_is_put(engine: Engine) -> None:
    taken: list[Any] = []
    taker = threading.Thread(target=lambda: taken.extend(take(engine, wait_s=20)))
    taker.start()
    put(engine, b"a")
    taker.join()

    assert [one.value for one in taken] == [b"a"]


def test_what_waits_ends_with_the_engine(disk: MemoryDisk) -> None:
    with opened(disk) as engine:
        make(engine)
        told: list[Exception] = []
        begun = threading.Event()

        def taking() -> None:
            begun.set()
            try:
                take(engine, wait_s=20)
            except Unavailable as error:
                told.append(error)

        taker = threading.Thread(target=taking)
        taker.start()
        begun.wait()
    taker.join()

    assert [error.outcome for error in told] == ["none"]  # type: ignore[attr-defined]
    with pytest.raises(Unavailable):
        take(engine)


def test_who_leaves_has_taken_nothing(engine: Engine) -> None:
    put(engine, b"a")
    goes_on = threading.Event()
    assert engine._loop is not None
    engine._loop.call_soon_threadsafe(goes_on.wait)  # else it may have answered by then
    with pytest.raises(Timeout):
        engine.take(GROUP, TOPIC, 1, 0.0, None, 0.0)
    goes_on.set()

    (again,) = take(engine, wait_s=20)
    assert (again.value, again.attempt) == (b"a", 1)


def test_a_power_cut_takes_leases_that_nothing_was_synced_after_and_nothing_else(
    disk: MemoryDisk, unhurried: None
) -> None:
    with opened(disk) as engine:
        make(engine)
        put(engine, *(b"%d" % number for number in range(20)))
        assert ack(engine, take(engine, 5))
        leased = take(engine, 5)
        cut = [disk.crash(random.Random(1), keep=0.0)]
        assert ack(engine, leased[:1])
        cut.append(disk.crash(random.Random(1), keep=0.0))

    for after, first in zip(cut, (5, 10), strict=True):
        with opened(after) as engine:
            taken = take(engine)
            assert (int(taken[0].value), taken[0].attempt) == (first, 1)
            assert int(taken[-1].value) == 19
            assert put(engine, b"next") == 20


def test_a_killed_process_keeps_its_leases(disk: MemoryDisk) -> None:
    with opened(disk) as engine:
        make(engine)
        put(engine, b"a", b"b")
        take(engine, 1)
        killed = disk.clone()
    killed.process_died()

    with opened(killed) as engine:
        assert [one.value for one in take(engine)] == [b"b"]


def test_of_a_turbo_topic_a_power_cut_takes_the_last_and_no_more_than_it_says(
    disk: MemoryDisk, unhurried: None
) -> None:
    def value(number: int) -> bytes:
        return b"%04d" % number * 20

    with opened(disk) as engine:
        make(engine, durability="relaxed")
        put(engine, value(0))
        flushed = engine.ask("POST", f"/v1/topics/{TOPIC}/flush", {}).result()
        assert flushed.status == 200, flushed.body
        at_once = disk.crash(random.Random(1), keep=0.0)
        for number in range(1, 150):
            put(engine, value(number))
        cut = [disk.crash(random.Random(2), keep=keep) for keep in (0.0, 0.5)]
        killed = disk.clone()

    for after, fewest in ((at_once, 1), (cut[0], 25), (cut[1], 25), (killed, 150)):
        with opened(after) as engine:
            kept = [one.value for one in take(engine)]
            assert kept == [value(number) for number in range(len(kept))]
            assert len(kept) >= fewest
            assert put(engine, b"next") == len(kept)
    assert 150 * len(value(0)) > UNSYNCED_BYTES, "else nothing had to be synced"


def test_a_snapshot_of_the_state_is_stored_after_what_it_holds(
    disk: MemoryDisk, unhurried: None
) -> None:
    with opened(disk) as engine:
        make(engine, durability="relaxed")
        put(engine, b"a", b"b")
        node, loop = engine._node, engine._loop
        assert node is not None
        assert loop is not None
        for host in node.maintenance._replicas.all():
            asyncio.run_coroutine_threadsafe(node.maintenance.snapshot(host.id), loop).result()
        cut = disk.crash(random.Random(1), keep=0.0)

    with opened(cut) as engine:
        assert [one.value for one in take(engine)] == [b"a", b"b"]
