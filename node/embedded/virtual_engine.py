"""A node for tests: on a disk in memory, in a thread of its own, on time that is moved by hand."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from goqueue.wire.errors import GoQueueError, Timeout
from log.disk.memory import MemoryDisk
from node.embedded.agenda import Agenda, Unfinished
from node.embedded.engine import Engine, EngineTime
from node.embedded.virtual_loop import IS_REQUEST, VirtualClock, VirtualLoop
from node.http.server.local import LocalAnswer

T = TypeVar("T")

DIRECTORY = "/goqueue"
SETTINGS: Mapping[str, object] = {
    "defaults.topic.partitions": 1,
    "storage.walFileBytes": 1 << 20,
    "storage.reserveBytes": 1 << 20,
}
REST_S = 30.0
"""By the machine's clock: a node that is not quiet by then never will be."""
LOOK_S = 0.001
BETWEEN_S = 0.02
"""Whoever receives without being a member is back by then, or has enough."""
SHOWN_MAX = 5


class VirtualEngine:
    """A node, from `open` to `close`; each method may be called from any thread but its own.

    Two that are made alike and asked alike, one request after the other, answer alike.
    """

    def __init__(self, now_ms: int, seed: int) -> None:
        """Opens nothing. The node's clock stands at `now_ms`."""
        self._rng = random.Random(seed)
        self._clock = VirtualClock(now_ms)
        self._disk = MemoryDisk()
        self._loop: VirtualLoop | None = None
        self._agenda: Agenda | None = None
        self._engine = self._made()
        self._asked_s = 0.0

    def open(self) -> None:
        """Usable when it returns. Raises GoQueueError."""
        self._engine.open()
        self._engine.node.raft.forgives = False
        parts = self._engine.node.timed
        self._agenda = Agenda(parts)
        assert self._loop is not None
        self._loop.is_busy = lambda: parts.flusher.is_busy

    def close(self) -> None:
        """Idempotent."""
        self._engine.close()

    @property
    def now_ms(self) -> int:
        """The node's time, in milliseconds since the epoch."""
        return self._clock.wall_ms()

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Future[LocalAnswer]:
        """As `Engine.ask`."""
        return self._engine.run(self._answered(method, target, headers, body))

    def advance(self, passed_ms: int) -> None:
        """Let so much time pass, and have the node do all that it brings about, each at its time.
        Consumers are given none meanwhile: leases and sessions run out. Raises Timeout where the
        node does not come to rest."""
        self._wait(self._advance(passed_ms, None))

    def run_until_idle(self, within_ms: int, timeout_s: float) -> list[str]:
        """As `advance`, and wait for consumers before time goes on, each time for up to `timeout_s`
        by the machine's clock. What they have not finished by then, empty where all is done: then
        time stands where that was."""
        return self._wait(self._advance(within_ms, timeout_s))

    def restart(self, *, power_cut: bool) -> None:
        """Close the node, and open it again on its disk. With a `power_cut` it does not come to
        closing anything: what was not synced is lost, in part or as a whole. Time stands still."""
        if power_cut:
            self._disk = self._wait(self._cut())
        self._engine.close()
        if not power_cut:
            self._disk.process_died()
        self._engine = self._made()
        self.open()

    # its thread

    def _made(self) -> Engine:
        return Engine(
            DIRECTORY,
            self._disk,
            time=EngineTime(self._make_loop, self._clock),
            settings=SETTINGS,
            rng=self._rng,
        )

    def _make_loop(self) -> VirtualLoop:
        self._loop = VirtualLoop(self._clock)
        return self._loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._engine.run(work).result()

    async def _answered(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> LocalAnswer:
        IS_REQUEST.set(True)
        self._asked_s = time.monotonic()
        try:
            return await self._engine.answered(method, target, headers, body)
        finally:
            self._asked_s = time.monotonic()

    async def _advance(self, passed_ms: int, consumers_s: float | None) -> list[str]:
        loop, agenda, clock = self._loop, self._agenda, self._clock
        assert loop is not None
        assert agenda is not None
        end_ms = clock.wall_ms() + passed_ms
        while True:
            await self._rest(loop)
            if consumers_s is not None and (left := await self._unfinished(agenda, consumers_s)):
                return left
            next_ms = self._next_ms(loop, agenda)
            if next_ms is not None and next_ms <= clock.wall_ms():
                agenda.wake()
                await self._rest(loop)
                next_ms = self._next_ms(loop, agenda)
            if next_ms is None or next_ms > end_ms:
                break
            self._leap(agenda, max(next_ms, clock.wall_ms() + 1), consumers_s is not None)
        if passed_ms:
            self._leap(agenda, end_ms, consumers_s is not None)
            loop.moved()
            await self._rest(loop)
        return []

    def _leap(self, agenda: Agenda, now_ms: int, heard: bool) -> None:
        agenda.leaps(now_ms, heard=heard)
        self._clock.move(now_ms)
        agenda.wake()

    def _next_ms(self, loop: VirtualLoop, agenda: Agenda) -> int | None:
        wait_s = loop.next_wait_s()
        found = [agenda.next_ms(), None if wait_s is None else self._clock.ms_at(wait_s)]
        return min((at for at in found if at is not None), default=None)

    async def _rest(self, loop: VirtualLoop) -> None:
        try:
            async with asyncio.timeout(REST_S):
                await loop.quiet()
        except TimeoutError:
            raise Timeout(f"the broker is not at rest after {REST_S:g} s") from None

    async def _unfinished(self, agenda: Agenda, within_s: float) -> list[str]:
        until_s = time.monotonic() + within_s
        while left := [one for one in agenda.unfinished() if self._is_worked_on(one)]:
            if time.monotonic() >= until_s:
                return list(map(_told, left[:SHOWN_MAX]))
            await asyncio.sleep(LOOK_S)
        return []

    def _is_worked_on(self, one: Unfinished) -> bool:
        is_asking = one.has_consumers or time.monotonic() - self._asked_s < BETWEEN_S
        return one.in_flight > 0 or is_asking

    async def _cut(self) -> MemoryDisk:
        return self._disk.crash(self._rng)


def _told(one: Unfinished) -> str:
    return f"group {one.group} of {one.topic}: {one.in_flight} in flight, {one.ready} ready"


def open_virtual_engine(now_ms: int, seed: int) -> VirtualEngine:
    """A node for tests, open. Raises GoQueueError."""
    engine = VirtualEngine(now_ms, seed)
    try:
        engine.open()
    except GoQueueError:
        engine.close()
        raise
    return engine
