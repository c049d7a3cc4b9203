"""A real broker in this process: one node over a disk in memory, with its clock in the test's hand.

All of it is the node's own: its Raft groups of one voter, its threads that sync, its front. It is
there within some 30 ms, as its write-ahead files are small and its voter elects itself at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.store.directory import Store
from node.assembly import NodeAssembly, assemble
from node.broker.node import NodeBroker
from node.cluster.host import ClusterHost
from node.config.file import load_config
from node.partition.host import PartitionHost
from node.security.key_admin import KeyAdmin
from node.security.key_checks import KeyChecks, KeyFigures

NOW_MS = 1_736_866_800_000
WAL_FILE_BYTES = 1 << 20
SETTINGS: dict[str, object] = {
    "broker.listeners.http": "127.0.0.1:0",
    "storage.reservePercent": 0,
}
DEADLINE_S = 30.0
STEP_MS = 500
"""A node that did not look at its members for longer than a second forgives them their silence."""
TURNS = 10
"""Of the loop, until all that waits for a step has had its turn."""

Found = TypeVar("Found")


class TimedLoop(asyncio.SelectorEventLoop):
    """A loop whose time is ahead of the machine's by as much as `Clock` was moved, so that what is
    to happen then does."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


class Clock:
    """A node's clock, which stands still until it is moved. Timers of the `TimedLoop` that it is
    made on, if it is one, go with it."""

    def __init__(self, now_ms: int = NOW_MS, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._now_ms = now_ms
        self._loop = loop

    def __call__(self) -> int:
        return self._now_ms

    @property
    def now_ms(self) -> int:
        """Set, it moves there in one leap, by any thread: as when a node stood still meanwhile."""
        return self._now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        passed_ms, self._now_ms = now_ms - self._now_ms, now_ms
        if isinstance(self._loop, TimedLoop):
            self._loop.ahead_s += max(0, passed_ms) / 1000
            self._loop.call_soon_threadsafe(lambda: None)  # it looks at its timers again

    def set_ahead(self, by_ms: int) -> None:
        """Somebody sets the wall clock: no timer is due for it."""
        self._now_ms += by_ms

    async def pass_ms(self, passed_ms: int) -> None:
        """Time goes by, and the node goes on meanwhile: silent members are missed."""
        while passed_ms > 0:
            step_ms = min(passed_ms, STEP_MS)
            self.now_ms += step_ms
            passed_ms -= step_ms
            for _ in range(TURNS):
                await asyncio.sleep(0)

    # as a node reads it

    def wall_ms(self) -> int:
        return self._now_ms

    def now_s(self) -> float:
        return self._now_ms / 1000


@asynccontextmanager
async def one_node(
    clock: Clock | None = None, disk: MemoryDisk | None = None, **settings: Any
) -> AsyncIterator[NodeAssembly]:
    """A node that is ready, stopped at the end; by the machine's clock unless it is given one.

    Its settings are those that nodes have, but for `SETTINGS` and these. A disk that fails fails
    the test."""
    failures: list[Exception] = []
    storage = StorageConfig(
        watermark_percent=0,
        watermark_bytes=1 << 20,
        wal_file_bytes=WAL_FILE_BYTES,
        reserve_bytes=0,
    )
    store = Store.open(disk or MemoryDisk(), "/data", storage)
    config = load_config(env={}, overrides={**SETTINGS, **settings})
    node = assemble(config, store, on_failure=failures.append, clock=clock)
    await node.services.start()
    try:
        await eventually(lambda: node.broker.node.ready().ready)
        yield node
    finally:
        await node.services.stop()
    assert not failures


@asynccontextmanager
async def serving(clock: Clock | None = None, **settings: Any) -> AsyncIterator[str]:
    """The address of a node that creates topics when they are first used."""
    async with one_node(clock, **{"broker.autoCreateTopics": True, **settings}) as node:
        yield f"http://127.0.0.1:{node.front.port}"


async def eventually(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Waits until a condition holds; fails after the deadline."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - any condition: there is no event to wait for
            await asyncio.sleep(0.002)


async def until(ask: Callable[[], Awaitable[Found]], holds: Callable[[Found], object]) -> Found:
    """Asks again and again; the first answer for which it holds. Fails after the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not holds(found := await ask()):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.002)
    return found


def cluster_of(broker: NodeBroker) -> ClusterHost:
    """The node's cluster group."""
    return broker.topics._cluster


def partition_of(broker: NodeBroker, topic: str, partition: int) -> PartitionHost:
    """The node's replica of a partition."""
    (found,) = (
        host
        for host in broker.topics._replicas.all()
        if (host.topic, host.id.partition) == (topic, partition)
    )
    return found


class Keys(KeyAdmin):
    """A node's API keys: its desk, and what proves keys that were made there."""

    def __init__(
        self,
        cluster: ClusterHost,
        clock_ms: Callable[[], int],
        workers: ThreadPoolExecutor,
        figures: KeyFigures | None = None,
    ) -> None:
        super().__init__(cluster, clock_ms, workers, random.Random(1))
        self.cluster = cluster
        self.checks = KeyChecks(lambda: cluster.state.keys, clock_ms, workers, figures)
