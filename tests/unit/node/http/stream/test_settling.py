"""Settles: together where they come together, and confirmed in their order, never before."""

from __future__ import annotations

import asyncio

import pytest

from goqueue.wire.errors import BadRequest, NoQuorum
from node.api.queue import SettleRequest
from node.http.budget.memory import Budgets, Kind, Owner
from node.http.stream import settling
from node.http.stream.settling import Asked, Settling


class Commits:
    """A broker whose entries commit when it is told so."""

    def __init__(self):
        self.asked: list[list[str]] = []
        self.answers: list[asyncio.Future] = []
        self.confirmed: list[tuple[int, list]] = []
        self.settling = Settling(self.settle, self.confirm)

    async def settle(self, requests):
        self.asked.append([one.receipt for one in requests])
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    async def confirm(self, asked):
        self.confirmed.append((asked.id, asked.outcomes))

    def add(self, id, *receipts, held=None):
        entries = [SettleRequest(one, "ack") for one in receipts]
        self.settling.add(Asked(id, entries, list(receipts), ["ack"] * len(receipts), held))

    async def turn(self):
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def ids(self):
        return [id for id, _ in self.confirmed]


@pytest.fixture
async def commits():
    made = Commits()
    yield made
    await made.settling.stop()


async def test_nothing_is_confirmed_before_its_entry_was_applied(commits):
    commits.add(1, "a")
    await commits.turn()
    assert commits.asked == [["a"]] and commits.ids == []

    commits.answers[0].set_result(["A"])
    await commits.turn()

    assert commits.confirmed == [(1, ["A"])]
    assert len(commits.settling) == 0


async def test_frames_of_one_turn_are_one_settle_and_each_is_told_its_own(commits):
    commits.add(1, "a", "b")
    commits.add(2, "c")
    await commits.turn()

    commits.answers[0].set_result(["A", "B", "C"])
    await commits.turn()

    assert commits.asked == [["a", "b", "c"]]
    assert commits.confirmed == [(1, ["A", "B"]), (2, ["C"])]


async def test_what_commits_early_waits_for_what_came_before_it(commits):
    commits.add(1, "a")
    await commits.turn()
    commits.add(2, "b")
    await commits.turn()
    commits.add(3, "c")
    await commits.turn()

    commits.answers[2].set_result(["C"])
    commits.answers[1].set_result(["B"])
    await commits.turn()
    assert commits.ids == []
    commits.answers[0].set_result(["A"])
    await commits.turn()

    assert commits.ids == [1, 2, 3]


async def test_a_settle_that_fails_as_a_whole_tells_each_receipt_of_it(commits):
    bad = BadRequest("no action")
    commits.settling.add(Asked(1, [bad, SettleRequest("a", "ack")], ["", "a"], ["", "ack"]))
    await commits.turn()
    error = NoQuorum()

    commits.answers[0].set_exception(error)
    await commits.turn()

    assert commits.confirmed == [(1, [bad, error])]


async def test_what_can_t_be_asked_is_confirmed_in_its_turn_all_the_same(commits):
    commits.add(1, "a")
    await commits.turn()
    bad = BadRequest("no action")
    commits.settling.add(Asked(2, [bad], [""], [""]))
    await commits.turn()
    assert commits.ids == []

    commits.answers[0].set_result(["A"])
    await commits.turn()

    assert commits.confirmed == [(1, ["A"]), (2, [bad])]
    assert commits.asked == [["a"]]


async def test_with_too_much_unconfirmed_nothing_more_is_read(commits, monkeypatch):
    monkeypatch.setattr(settling, "FRAMES_MAX", 2)
    commits.add(1, "a")
    await asyncio.wait_for(commits.settling.room(), 20)
    commits.add(2, "b")
    waiting = asyncio.ensure_future(commits.settling.room())
    await commits.turn()
    assert not waiting.done()

    commits.answers[0].set_result(["A", "B"])

    await asyncio.wait_for(waiting, 20)


async def test_with_too_many_receipts_unconfirmed_nothing_more_is_read(commits, monkeypatch):
    monkeypatch.setattr(settling, "RECEIPTS_MAX", 3)
    commits.add(1, "a", "b", "c")
    waiting = asyncio.ensure_future(commits.settling.room())
    await commits.turn()
    assert not waiting.done()

    commits.answers[0].set_result(["A", "B", "C"])

    await asyncio.wait_for(waiting, 20)


async def test_drained_says_whether_all_are_confirmed(commits):
    commits.add(1, "a")
    await commits.turn()
    assert not await commits.settling.drained(0.0)
    draining = asyncio.ensure_future(commits.settling.drained(20))
    await commits.turn()

    commits.answers[0].set_result(["A"])

    assert await draining


async def test_what_frames_were_charged_is_given_back(commits):
    budgets = Budgets()
    held = [budgets.hold(Kind.BODIES, Owner("x", 1), 100) for _ in range(3)]
    commits.add(1, "a", held=held[0])
    await commits.turn()
    commits.add(2, "b", held=held[1])
    await commits.turn()
    commits.add(3, "c", held=held[2])

    commits.answers[0].set_result(["A"])
    await commits.turn()
    assert budgets[Kind.BODIES].used == 200
    await commits.settling.stop()

    assert budgets[Kind.BODIES].used == 0
