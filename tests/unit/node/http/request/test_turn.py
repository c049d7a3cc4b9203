"""What comes in one turn of the loop is done together, and nothing waits for company."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from goqueue.wire.errors import Busy
from node.http.request import turn
from node.http.request.turn import OneTurn


class Work:
    """Answers in capitals once it is `open`; what it was given, in order."""

    def __init__(self) -> None:
        self.done: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.one = OneTurn()

    async def __call__(self, parts: Sequence[str]) -> list[str]:
        self.done.append(list(parts))
        await self.open.wait()
        if "bad" in parts:
            raise Busy("no room")
        return [part.upper() for part in parts]

    async def join(self, part: str, key: str = "k", items: int = 1, size_bytes: int = 1) -> str:
        return await self.one.join(key, part, self, items=items, size_bytes=size_bytes)


async def test_those_of_a_turn_go_together_and_each_has_its_own_result() -> None:
    work = Work()

    found = await asyncio.gather(*map(work.join, "abc"))

    assert (found, work.done) == (["A", "B", "C"], [["a", "b", "c"]])


async def test_nothing_waits_for_what_is_on_its_way() -> None:
    work = Work()
    work.open.clear()
    first = asyncio.ensure_future(work.join("a"))
    for _ in range(5):
        await asyncio.sleep(0)
    second = asyncio.ensure_future(work.join("b"))
    for _ in range(5):
        await asyncio.sleep(0)
    begun = list(work.done)
    work.open.set()

    assert await asyncio.gather(first, second) == ["A", "B"]
    assert begun == [["a"], ["b"]]


async def test_keys_do_not_meet() -> None:
    work = Work()

    await asyncio.gather(work.join("a", "one"), work.join("b", "two"), work.join("c", "one"))

    assert work.done == [["a", "c"], ["b"]]


@pytest.mark.parametrize(("items", "size_bytes"), [(400, 1), (1, 400 << 10)])
async def test_so_much_goes_together_and_the_rest_beside_it(items: int, size_bytes: int) -> None:
    work = Work()

    parts = [work.join(part, items=items, size_bytes=size_bytes) for part in "abcde"]
    found = await asyncio.gather(*parts)

    assert found == ["A", "B", "C", "D", "E"]
    assert work.done == [["a", "b"], ["c", "d"], ["e"]]
    assert turn.ITEMS_MAX == 1000


async def test_what_the_work_raises_all_of_them_raise() -> None:
    work = Work()

    found = await asyncio.gather(*map(work.join, ("a", "bad")), return_exceptions=True)

    assert [type(error) for error in found] == [Busy, Busy]


async def test_who_is_cancelled_before_takes_its_part_with_it() -> None:
    work = Work()
    first = asyncio.ensure_future(work.join("a"))
    second = asyncio.ensure_future(work.join("b"))
    await asyncio.sleep(0)

    first.cancel()

    assert await second == "B"
    assert work.done == [["b"]]


async def test_who_is_cancelled_meanwhile_costs_the_others_nothing() -> None:
    work = Work()
    work.open.clear()
    first = asyncio.ensure_future(work.join("a"))
    second = asyncio.ensure_future(work.join("b"))
    for _ in range(5):
        await asyncio.sleep(0)

    first.cancel()
    await asyncio.sleep(0)
    work.open.set()

    assert await second == "B"
    assert work.done == [["a", "b"]]


async def test_stopping_breaks_off_what_is_on_its_way() -> None:
    work = Work()
    work.open.clear()
    waiting = asyncio.ensure_future(work.join("a"))
    for _ in range(5):
        await asyncio.sleep(0)

    await work.one.stop()

    with pytest.raises(asyncio.CancelledError):
        await waiting
