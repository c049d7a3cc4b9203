"""Whose secret is tried next, and who has a place while others guess. Counted in places."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.commands.keys import SecretDigest
from goqueue.wire.errors import Busy
from node.api.auth.key_verifier import Origin
from node.security.proving_queue import PLACES_MAX, PLACES_OF_ID_MAX, ProvingLine, Trial


class Door:
    """A line whose first trial goes on until the door is opened."""

    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self._workers = workers
        self.line = ProvingLine(workers)
        self.tried: list[str] = []
        self._open = threading.Event()

    def begin(self) -> None:
        self.line.join("first", Origin("first"), self._wait)

    def join(self, id: str, address: str, failures: int = 0) -> asyncio.Future[SecretDigest | None]:
        return self.line.join(id, Origin(address, failures), self._trial(f"{id}@{address}"))

    def guess(self, id: str, count: int, addresses: int = 12, failures: int = 1) -> int:
        """How many of the guesses found a place."""
        found = 0
        for number in range(count):
            try:
                end = self.join(id, f"guesser-{number % addresses}", failures)
            except Busy:
                continue
            end.add_done_callback(lambda end: end.cancelled() or end.exception())
            found += 1
        return found

    async def open(self) -> list[str]:
        """Who was tried, in this order."""
        self._open.set()
        while self.line._is_trying:
            await asyncio.wrap_future(self._workers.submit(int))
        return self.tried

    def _wait(self) -> None:
        self._open.wait(60)

    def _trial(self, name: str) -> Trial:
        return lambda: self.tried.append(name)


@pytest.fixture
def door() -> Iterator[Door]:
    with ThreadPoolExecutor(1) as workers:
        door = Door(workers)
        yield door
        door._open.set()


async def test_guesses_at_one_id_leave_places_for_the_others(door: Door) -> None:
    door.begin()

    assert door.guess("admin", 500, addresses=500, failures=0) == PLACES_OF_ID_MAX
    for number in range(PLACES_MAX - PLACES_OF_ID_MAX):
        door.join(f"app-{number}", "nat")

    tried = await door.open()
    assert len(tried) == PLACES_MAX and tried.count("app-47@nat") == 1


async def test_the_holder_of_an_id_that_is_guessed_at_is_tried_before_the_guesses(
    door: Door,
) -> None:
    door.begin()
    door.guess("admin", 500)

    end = door.join("admin", "holder")

    assert (await door.open())[0] == "admin@holder"
    assert end.result() is None
    assert len(door.tried) == PLACES_OF_ID_MAX


async def test_guesses_at_many_ids_that_fill_the_line_give_way(door: Door) -> None:
    door.begin()
    for number in range(2 * PLACES_MAX):
        door.guess(f"made-up-{number}", 1)

    for number in range(20):
        door.join(f"app-{number}", f"pod-{number}")

    tried = await door.open()
    assert tried[:20] == [f"app-{number}@pod-{number}" for number in range(20)]
    assert len(tried) == PLACES_MAX


async def test_many_at_once_from_one_address_stand_behind_one_from_another(door: Door) -> None:
    door.begin()
    for number in range(PLACES_MAX):
        door.guess(f"made-up-{number}", 1, addresses=1, failures=0)

    door.join("app", "pod")

    assert "app@pod" in (await door.open())[:2]


async def test_who_lost_the_place_is_told_to_come_again(door: Door) -> None:
    door.begin()
    guesses = [door.join("admin", "guesser", 1) for _ in range(PLACES_OF_ID_MAX)]

    door.join("admin", "holder")

    assert isinstance(guesses[-1].exception(), Busy)
    with pytest.raises(Busy):
        door.join("admin", "guesser", 1)
    await door.open()


async def test_a_trial_that_fails_does_not_end_the_line(door: Door) -> None:
    def fail() -> None:
        raise ValueError("no such scheme")

    broken = door.line.join("app", Origin(), fail)
    after = door.join("app", "pod")

    with pytest.raises(ValueError, match="scheme"):
        await broken
    assert await after is None and door.tried == ["app@pod"]


async def test_nobody_waits_for_workers_that_have_stopped() -> None:
    workers = ThreadPoolExecutor(1)
    workers.shutdown()

    end = Door(workers).join("app", "pod")

    assert end.cancelled()
