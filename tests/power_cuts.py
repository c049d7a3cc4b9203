"""A queue in a directory at work, and what must be left of it after a power cut at any moment.

`work` runs on a disk that can tell how far it was; `check` opens what a cut has left. Segments and
write-ahead files are small, so that both are rolled on the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from goqueue import Client, Queue
from goqueue.errors import UnknownGroup, UnknownTopic
from goqueue.local.directory import DirectoryChannel
from log.disk.files import Disk
from node.config.node import NodeConfig
from node.embedded import engine as embedded
from node.embedded.engine import Engine

SEGMENT_BYTES = 8 << 10
WAL_FILE_BYTES = 12 << 10
BATCHES = {"first": 5, "large": 16, "last": 3}
Event = tuple[int, str, str]
"""How far the disk was as a call returned, what it was, and the item."""


def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines roll their files after a few items, and need no reserve."""
    usual = embedded.embedded_config

    def configured(directory: str, settings: Mapping[str, object] | None = None) -> NodeConfig:
        config = usual(directory, settings)
        storage = dataclasses.replace(
            config.storage,
            segment_bytes=SEGMENT_BYTES,
            wal_file_bytes=WAL_FILE_BYTES,
            checkpoint_interval_ms=50,
            space_reserve_bytes=0,
        )
        return dataclasses.replace(config, storage=storage)

    monkeypatch.setattr(embedded, "embedded_config", configured)


@contextmanager
def opened(directory: str, disk: Disk) -> Iterator[Client]:
    def open_engine(path: str) -> Engine:
        engine = Engine(path, disk)
        engine.open()
        return engine

    with Client(DirectoryChannel(directory, open_engine)) as client:
        yield client


def work(directory: str, disk: Disk, how_far: Callable[[], int]) -> list[Event]:
    """Puts items one by one and in batches, takes some out, acks some; what was acknowledged, in
    order. Then the directory is closed."""
    told: list[Event] = []

    def note(what: str, *items: str) -> None:
        told.extend((how_far(), what, item) for item in items)

    with opened(directory, disk) as client:
        queue = Queue(client, visibility="1h")
        for number in range(3):
            queue.put(f"one-{number}")
            note("put", f"one-{number}")
        for name, count in BATCHES.items():
            items = [f"{name}-{number}" + "x" * 500 for number in range(count)]
            queue.put_many(items)
            note("put", *items)
            taken = queue.get()
            note("taken", taken.value)
            done = queue.get_many(2)
            queue.ack(*done)
            note("done", *(item.value for item in done))
    return told


def check(directory: str, disk: Disk, told: list[Event], cut_at: int) -> None:
    """What was acknowledged before the cut holds: what was put is there, batches whole or not at
    all; what was done or is another's is not given out, all else is, once. A lease is synced with
    what comes after it: it holds from the next put or ack on."""
    known = [
        (what, item)
        for number, (how_far, what, item) in enumerate(told)
        if (_next_sync(told, number) if what == "taken" else how_far) <= cut_at
    ]
    put = {item for what, item in known if what == "put"}
    gone = {item for what, item in known if what in ("taken", "done")}
    with opened(directory, disk) as client:
        try:
            kept = [message.text for message in client.read("queue", 0, limit=1000).messages]
        except UnknownTopic:
            kept = []
        given: list[str] = []
        try:
            while found := client.receive("queue", "queue", limit=100):
                given += [message.text for message in found]
        except (UnknownGroup, UnknownTopic):
            assert not put
    assert put <= set(kept), f"lost: {sorted(put - set(kept))}"
    assert len(kept) == len(set(kept))
    for name, count in BATCHES.items():
        assert sum(item.startswith(f"{name}-") for item in kept) in (0, count), f"half of {name}"
    assert not gone & set(given), f"came again: {sorted(gone & set(given))}"
    assert len(given) == len(set(given))
    assert put - gone - set(given) <= {item for _, what, item in told if what != "put"}


def compacting(directory: str, disk: Disk, how_far: Callable[[], int]) -> list[Event]:
    """Puts items, has one of them die, acks the others and compacts, again and again; the last ones
    are left. What was acknowledged, in order."""
    told: list[Event] = []

    def note(what: str, *items: str) -> None:
        told.extend((how_far(), what, item) for item in items)

    with opened(directory, disk) as client:
        queue = Queue(client, visibility="1h")
        for number in range(3):
            items = [f"{number}-{row}" + "x" * 900 for row in range(12)]
            queue.put_many(items)
            note("put", *items)
            dead, *done = queue.get_many(12)
            dead.message.reject("poison")
            note("dead", dead.value)
            queue.ack(*done)
            note("done", *(item.value for item in done))
            went = queue.compact()
            assert (went.messages, went.bytes > 10_000) == (12, True)
        queue.put_many(["left", "over"])
        note("put", "left", "over")
    return told


def check_compacted(directory: str, disk: Disk, told: list[Event], cut_at: int) -> None:
    """Nothing that was acknowledged as put is gone unless it is done, and what is done stays so;
    dead letters are there. The directory compacts as before."""
    known = {item: what for how_far, what, item in told if how_far <= cut_at}
    kept: list[str] = []
    given: list[str] = []
    letters: list[list[str]] = []
    with opened(directory, disk) as client:
        try:
            kept = [message.text for message in client.read("queue", 0, limit=1000).messages]
            while found := client.receive("queue", "queue", limit=100):
                given += [message.text for message in found]
            for _ in range(2):
                dead = client.dead_letters("queue", "queue")
                letters.append([letter.text for letter in dead])
                client.trim_topic("queue")
        except (UnknownGroup, UnknownTopic):
            assert not known

    def of(what: str) -> set[str]:
        return {item for item, known_as in known.items() if known_as == what}

    before, after = letters or ([], [])
    assert of("dead") <= set(before), "a dead letter is lost"
    assert before == after
    assert of("put") <= {*kept, *before}, "what is not done is lost"
    assert not of("done") & {*given, *before}, "what is done came again"
    assert len(given) == len(set(given))


def _next_sync(told: list[Event], number: int) -> float:
    """How far the disk was when something after this lease was acknowledged."""
    after = (how_far for how_far, what, _item in told[number + 1 :] if what != "taken")
    return next(after, float("inf"))
