"""Work that other threads hand to a loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from functools import partial

import pytest

from goqueue.wire.errors import Timeout
from node.embedded.handed import Handed, Hatch


async def test_what_is_handed_in_before_the_hatch_is_shut_is_called_and_nothing_after() -> None:
    hatch, called = Hatch(asyncio.get_running_loop()), list[int]()

    assert hatch.hand(lambda: called.append(1))
    assert hatch.hand(lambda: called.append(2))
    assert called == []
    hatch.shut()

    assert called == [1, 2]
    assert not hatch.hand(lambda: called.append(3))
    await asyncio.sleep(0)
    assert called == [1, 2]


async def test_the_loop_is_called_once_for_all_that_comes_before_it_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, called, calls = asyncio.get_running_loop(), list[int](), list[object]()
    hatch, plain = Hatch(loop), loop.call_soon_threadsafe

    def counted(call: Callable[[], object]) -> None:
        calls.append(call)
        plain(call)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)

    for turn in range(2):
        for number in range(3):
            hatch.hand(partial(called.append, 3 * turn + number))
        await asyncio.sleep(0)

    assert called == [0, 1, 2, 3, 4, 5]
    assert len(calls) == 2


async def test_a_thread_is_told_the_result_or_the_error() -> None:
    loop = asyncio.get_running_loop()
    hatch = Hatch(loop)

    def refused() -> asyncio.Future[str]:
        raise ValueError("refused")

    def done() -> asyncio.Future[str]:
        future: asyncio.Future[str] = loop.create_future()
        future.set_result("done")
        return future

    assert await asyncio.to_thread(lambda: Handed(hatch, done).wait(30)) == "done"
    with pytest.raises(ValueError, match="refused"):
        await asyncio.to_thread(lambda: Handed(hatch, refused).wait(30))


async def test_what_was_done_for_a_thread_that_has_left_is_undone() -> None:
    loop, undone = asyncio.get_running_loop(), list[str]()
    hatch, work = Hatch(loop), loop.create_future()

    def leave() -> None:
        with pytest.raises(Timeout):
            Handed(hatch, lambda: work, undone.append).wait(0)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    work.set_result("leased")  # in the very moment in which it leaves
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert undone == ["leased"]


def test_a_signals_handler_may_hand_in_while_its_thread_waits() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    hatch, work, told = Hatch(loop), loop.create_future(), list[str]()

    def done(text: str) -> asyncio.Future[str]:
        future: asyncio.Future[str] = loop.create_future()
        future.set_result(text)
        return future

    def handle(*_: object) -> None:
        told.append(Handed(hatch, lambda: done("handled")).wait(30))
        loop.call_soon_threadsafe(work.set_result, "waited")

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        handed = Handed(hatch, lambda: work)
        signal.raise_signal(signal.SIGUSR1)
        told.append(handed.wait(30))
    finally:
        signal.signal(signal.SIGUSR1, before)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    assert told == ["handled", "waited"]
