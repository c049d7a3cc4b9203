"""A signal is an event: who waits goes on when it is set, and keeps nothing behind."""

from __future__ import annotations

import asyncio

from goqueue.signal import Signal


async def test_whoever_waits_goes_on_in_order_once_it_is_set() -> None:
    signal, done = Signal(), list[int]()

    async def wait(number: int) -> None:
        await signal.wait()
        done.append(number)

    waiting = [asyncio.create_task(wait(number)) for number in range(3)]
    await asyncio.sleep(0)
    assert done == []
    signal.set()
    signal.set()
    signal.clear()  # it was set, and that is told
    await asyncio.gather(*waiting)
    assert done == [0, 1, 2]
    assert signal._waiting == ()


async def test_one_that_is_set_lets_by_at_once_until_it_is_cleared() -> None:
    signal = Signal(is_set=True)
    await signal.wait()
    signal.clear()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    signal.set()
    await waiting


async def test_who_leaves_is_forgotten_and_the_others_go_on() -> None:
    signal = Signal()
    gone, stays = asyncio.create_task(signal.wait()), asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    gone.cancel()
    signal.set()
    await stays
    assert gone.cancelled() or gone.cancelling()
    await asyncio.wait([gone])
    assert signal._waiting == ()
