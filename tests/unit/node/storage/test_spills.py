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


def taken(spills: Spills) -> SimpleNamespace | None:
    """What is taken next, at last."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(spills.take()), daemon=True)
    thread.start()
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
