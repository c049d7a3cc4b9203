"""Lines of receives that wait for the same, with a leader that answers when the test says so."""

from __future__ import annotations

import asyncio

import pytest

from goqueue.wire.types import NodeId, PartitionId, TopicId
from node.queue import waiting_lines
from node.queue.waiting_lines import ASK_S_MIN, WOKEN_MAX, Place, Told, WaitingLines, Wanted

NOTHING = Told([])


class Leader:
    """Its questions, oldest first, each with the future of its answer."""

    def __init__(self) -> None:
        self.asked: list[tuple[Wanted, asyncio.Future[Told]]] = []
        self.cancelled = 0

    async def ask(self, wanted: Wanted, wait_s: float) -> Told:
        assert wait_s >= ASK_S_MIN, "or it is answered before any time has passed"
        answer: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self.asked.append((wanted, answer))
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def answer(self, told: Told) -> None:
        """The newest question."""
        self.asked[-1][1].set_result(told)
        await turns()


@pytest.fixture
def leader() -> Leader:
    return Leader()


@pytest.fixture
def lines(leader: Leader) -> WaitingLines:
    return WaitingLines(leader.ask)


def wanted(*partitions: int, node: str = "a", lane: int = 4) -> Wanted:
    return Wanted(7, NodeId(node), frozenset(map(partition, partitions)), lane)


def partition(number: int) -> PartitionId:
    return PartitionId(TopicId(1, 1), number)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def until_s() -> float:
    return asyncio.get_running_loop().time() + 60.0


def woken(places: list[Place]) -> list[int]:
    return [number for number, place in enumerate(places) if place.told.done()]


async def test_all_who_wait_for_the_same_are_one_question(
    leader: Leader, lines: WaitingLines
) -> None:
    places = [lines.join(wanted(0, 1), until_s()) for _ in range(1000)]
    other = [lines.join(wanted(0, 1, lane=0), until_s()), lines.join(wanted(2), until_s())]
    await turns()

    assert [asked for asked, _ in leader.asked] == [wanted(0, 1), wanted(0, 1, lane=0), wanted(2)]
    for place in places + other:
        place.leave()
    await turns()
    assert (leader.cancelled, len(lines)) == (3, 0)


async def test_the_first_few_are_woken_and_the_next_once_these_are_back(
    leader: Leader, lines: WaitingLines
) -> None:
    places = [lines.join(wanted(0), until_s()) for _ in range(2 * WOKEN_MAX + 1)]
    await turns()
    await leader.answer(Told([partition(0)]))

    assert woken(places) == list(range(WOKEN_MAX))
    assert len(leader.asked) == 1
    for place in places[:WOKEN_MAX]:
        assert len(leader.asked) == 1
        place.leave()
        place.leave()
        await turns()
    assert len(leader.asked) == 2
    await leader.answer(Told([partition(0)]))
    assert woken(places) == list(range(2 * WOKEN_MAX))


async def test_who_comes_back_for_more_stands_at_the_end(
    leader: Leader, lines: WaitingLines
) -> None:
    places = [lines.join(wanted(0), until_s()) for _ in range(WOKEN_MAX + 1)]
    await turns()
    await leader.answer(Told([partition(0)]))
    for place in places[:WOKEN_MAX]:
        place.leave()
    again = [lines.join(wanted(0), until_s()) for _ in range(WOKEN_MAX)]
    await turns()
    await leader.answer(Told([partition(0)]))

    assert (woken([places[-1]]), woken(again)) == ([0], list(range(WOKEN_MAX - 1)))


async def test_who_was_woken_and_does_not_come_back_holds_nobody_up(
    leader: Leader, lines: WaitingLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_lines, "BACK_S", 0.0)
    places = [lines.join(wanted(0), until_s()) for _ in range(WOKEN_MAX + 1)]
    await turns()
    await leader.answer(Told([partition(0)]))
    await asyncio.sleep(0.001)
    await turns()
    assert len(leader.asked) == 2
    for place in places[:WOKEN_MAX]:  # late: no other ones are taken for these
        place.leave()
    await leader.answer(Told([partition(0)]))

    assert len(woken(places)) == WOKEN_MAX + 1
    places[-1].leave()
    assert len(lines) == 0


async def test_everyone_looks_again_where_others_lead(leader: Leader, lines: WaitingLines) -> None:
    places = [lines.join(wanted(0), until_s()) for _ in range(100)]
    await turns()
    await leader.answer(Told([partition(0)], everyone=True))

    assert len(woken(places)) == 100
    for place in places:
        place.leave()
    assert len(lines) == 0


async def test_while_somebody_waits_an_answer_of_nothing_is_a_new_question(
    leader: Leader, lines: WaitingLines
) -> None:
    place = lines.join(wanted(0), until_s())
    await turns()
    await leader.answer(NOTHING)

    assert (len(leader.asked), woken([place])) == (2, [])


async def test_who_leaves_in_this_moment_makes_nobody_ask_without_end(
    leader: Leader, lines: WaitingLines
) -> None:
    place = lines.join(wanted(0), asyncio.get_running_loop().time())
    await turns()

    assert len(leader.asked) == 1
    place.leave()


async def test_an_error_is_told_to_all_and_the_next_ones_ask_anew(
    leader: Leader, lines: WaitingLines
) -> None:
    places = [lines.join(wanted(0), until_s()) for _ in range(3)]
    await turns()
    leader.asked[-1][1].set_exception(RuntimeError("broken"))
    await turns()

    assert [str(place.told.exception()) for place in places] == ["broken"] * 3
    for place in places:
        place.leave()
    lines.join(wanted(0), until_s())
    await turns()
    assert len(leader.asked) == 2
