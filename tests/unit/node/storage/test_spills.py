"""Blocks on their way into segments: merged, in order, and no more of them than there is room."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from node.storage.spills import Spills

DEADLINE_S = 20.0


class _Block:
    """As a FlushJob is put: a byte for each name."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.spill_bytes = len(names)

    def spill_after(self, earlier: _Block) -> None:
        self.names = earlier.names + self.names
        self.spill_bytes += earlier.spill_bytes


def block(*names: str) -> Any:
    return _Block(*names)


def put_by_a_thread(spills: Spills, *blocks: Any) -> threading.Thread:
    def run() -> None:
        for one in blocks:
            spills.put(one)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def taken_by_a_thread(spills: Spills) -> tuple[threading.Thread, list[Any]]:
    """What it takes is in the list once it has."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(spills.take()), daemon=True)
    thread.start()
    return thread, found


def taken(spills: Spills) -> SimpleNamespace | None:
    """What is taken next, at last."""
    thread, found = taken_by_a_thread(spills)
    thread.join(DEADLINE_S)
    assert found, "nothing was taken"
    if found[0] is None:
        return None
    job, count = found[0]
    return SimpleNamespace(names=job.names, count=count)


def test_what_waits_is_taken_as_one_and_in_order() -> None:
    spills = Spills()
    for name in "abc":
        spills.put(block(name))

    assert taken(spills) == SimpleNamespace(names=["a", "b", "c"], count=3)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.storage.spills.SPILL_S", 3600.0)


@pytest.mark.usefixtures("patient")
def test_what_comes_soon_after_is_taken_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.storage.spills.SPILL_BYTES", 3)
    spills = Spills()
    spiller, found = taken_by_a_thread(spills)
    spills.put(block("a"))
    spiller.join(0.05)
    assert spiller.is_alive(), "more may come"

    spills.put(block("b"))
    spills.put(block("c"))

    spiller.join(DEADLINE_S)
    assert [(job.names, count) for job, count in found] == [(["a", "b", "c"], 3)]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("when", ["before", "while it waits"])
@pytest.mark.parametrize("why", ["hurry", "end"])
def test_who_waits_for_it_has_it_taken_at_once(when: str, why: str) -> None:
    spills = Spills()
    spills.put(block("a"))
    if when == "before":
        getattr(spills, why)()
    spiller, found = taken_by_a_thread(spills)
    if when != "before":
        spiller.join(0.05)
        assert spiller.is_alive()
        getattr(spills, why)()

    spiller.join(DEADLINE_S)
    assert [(job.names, count) for job, count in found] == [(["a"], 1)]


@pytest.mark.usefixtures("patient")
def test_a_hurry_is_over_when_something_was_taken() -> None:
    spills = Spills()
    spills.hurry()
    spills.put(block("a"))
    assert taken(spills) is not None
    spills.put(block("b"))

    spiller, _ = taken_by_a_thread(spills)
    spiller.join(0.05)
    assert spiller.is_alive()
    spills.end()
    spiller.join(DEADLINE_S)
    assert not spiller.is_alive()


def test_the_writer_waits_while_too_much_is_behind() -> None:
    spills = Spills(behind_bytes_max=2)
    spills.put(block("a"))
    assert taken(spills) is not None, "and it is being appended from now on"
    spills.put(block("b"))
    writer = put_by_a_thread(spills, block("c"))
    writer.join(0.05)
    assert writer.is_alive()

    rest = taken(spills)
    writer.join(DEADLINE_S)
    assert not writer.is_alive()
    assert rest is not None and rest.names[0] == "b"


@pytest.mark.parametrize("ended_first", [True, False])
def test_after_the_end_what_is_left_is_taken_and_nobody_waits(ended_first: bool) -> None:
    spills = Spills(behind_bytes_max=0)
    if ended_first:
        spills.end()
    writer = put_by_a_thread(spills, block("a"))
    if not ended_first:
        writer.join(0.05)
        assert writer.is_alive()
        spills.end()
    writer.join(DEADLINE_S)
    assert not writer.is_alive()

    assert taken(spills) == SimpleNamespace(names=["a"], count=1)
    assert taken(spills) is None
