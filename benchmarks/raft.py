"""Commits per second of one group, and the idle cost of 64, on three nodes in one process.

The network is in memory, the disks are real: `python -m benchmarks.raft [--seconds 3]`. All three
nodes share one core's worth of Python, so a cluster of processes does better than this.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import tempfile
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from goqueue.wire.types import Index, NodeId, PartitionId, Term, TopicId, Voter
from log.config import StorageConfig
from log.disk.files import OsDisk
from log.entry import Entry, EntryKind
from log.store.checkpoint import CheckpointJob
from log.store.directory import Store
from log.store.flush import FlushJob
from raft.errors import Outcome
from raft.group import RaftGroup
from raft.host import RaftHost
from raft.interfaces import Environment

NAMES = ("a", "b", "c")


class LoopTime:
    """The running asyncio loop as a scheduler."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later


class Wire:
    """Frames between the hosts of this process, one loop turn later."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.hosts: dict[str, RaftHost] = {}
        self._out: list[tuple[str, str, PartitionId, list[bytes]]] = []

    def of(self, node: str) -> Port:
        return Port(self, node)

    def put(self, source: str, target: str, partition_id: PartitionId, parts: list[bytes]) -> bool:
        if not self._out:
            self._loop.call_soon(self._deliver)
        self._out.append((source, target, partition_id, parts))
        return True

    def _deliver(self) -> None:
        out, self._out = self._out, []
        for source, target, partition_id, parts in out:
            self.hosts[target].receive(NodeId(source), partition_id, memoryview(b"".join(parts)))


class Port:
    def __init__(self, wire: Wire, node: str) -> None:
        self._wire = wire
        self._node = node

    def send(self, node: NodeId, partition_id: PartitionId, parts: list[bytes]) -> bool:
        return self._wire.put(self._node, node, partition_id, parts)

    def backlog_bytes(self, node: NodeId) -> int:
        return 0


class Counter:
    """The cheapest state machine there is."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, entry: Entry) -> object:
        self.count += 1
        return None

    def snapshot(self) -> bytes:
        return b""

    def restore(self, index: Index, state: bytes) -> None: ...

    def on_leader(self, term: Term) -> None: ...

    def on_follower(self, leader: NodeId | None) -> None: ...


class Flusher:
    """Syncs a store in a thread, one job at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store) -> None:
        self._loop = loop
        self._store = store
        self._pool = ThreadPoolExecutor(1)
        self._checkpoints = ThreadPoolExecutor(1)
        self._closed = False
        self.syncs = 0
        store.on_dirty = self._dirty

    def _dirty(self) -> None:
        self._loop.call_soon(self._kick)

    def _kick(self) -> None:
        job = self._store.take_flush()
        if job is not None:
            self._pool.submit(self._run, job)

    def _run(self, job: FlushJob) -> None:
        job.sync()
        self._loop.call_soon_threadsafe(self._done, job)
        job.spill()
        self._loop.call_soon_threadsafe(self._store.complete_spill, job)

    def _done(self, job: FlushJob) -> None:
        self.syncs += 1
        self._store.complete_flush(job)
        self._kick()
        if self._store.checkpoint_due and not self._closed:
            checkpoint = self._store.take_checkpoint()
            if checkpoint is not None:
                self._checkpoints.submit(self._checkpoint, checkpoint)

    def _checkpoint(self, job: CheckpointJob) -> None:
        job.run()
        self._loop.call_soon_threadsafe(self._store.complete_checkpoint, job)

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=True)
        self._checkpoints.shutdown(wait=True)


class Nodes:
    """Three hosts with their stores, in one loop."""

    def __init__(self, root: str, groups: int) -> None:
        loop = asyncio.get_running_loop()
        self.wire = Wire(loop)
        self.stores = {
            name: Store.open(OsDisk(), f"{root}/{name}", StorageConfig(node=name)) for name in NAMES
        }
        self.flushers = [Flusher(loop, store) for store in self.stores.values()]
        voters = [Voter(NodeId(name), store.incarnation) for name, store in self.stores.items()]
        for name, store in self.stores.items():
            self.wire.hosts[name] = RaftHost(
                Environment(
                    Voter(NodeId(name), store.incarnation),
                    self.wire.of(name),
                    LoopTime(loop),
                    random.Random(name),
                    lambda: int(time.time() * 1000),
                ),
                store,
            )
        self.ids = [PartitionId(TopicId(1, at + 1), 0) for at in range(groups)]
        for at, id in enumerate(self.ids):
            for host in self.wire.hosts.values():
                preferred = NodeId(NAMES[at % 3])
                host.start_raft_group(id, voters, Counter(), bootstrap=True, preferred=preferred)
        for name, host in self.wire.hosts.items():
            for other in NAMES:
                if other != name:
                    host.peer_connected(NodeId(other))

    def leaders(self) -> list[RaftGroup]:
        return [
            raft_group
            for host in self.wire.hosts.values()
            for raft_group in host.raft_groups()
            if raft_group.is_ready_leader
        ]

    async def elected(self) -> list[RaftGroup]:
        for _ in range(500):
            if len(self.leaders()) == len(self.ids):
                break
            await asyncio.sleep(0.02)
        return self.leaders()

    def close(self) -> None:
        for host in self.wire.hosts.values():
            host.stop()
        for flusher in self.flushers:
            flusher.close()
        for store in self.stores.values():
            store.close()


class Load:
    """Keeps a number of proposals in flight, and remembers how long each took."""

    def __init__(self, raft_groups: list[RaftGroup], in_flight: int, body: bytes) -> None:
        self.times: list[float] = []
        self.failed = 0
        self._raft_groups = raft_groups
        self._body = body
        self._in_flight = in_flight
        self.running = True

    def start(self) -> None:
        for raft_group in self._raft_groups:
            for _ in range(self._in_flight):
                self._propose(raft_group)

    def _propose(self, raft_group: RaftGroup) -> None:
        started = time.perf_counter()

        def answer(outcome: Outcome, _result: object, _index: Index) -> None:
            self.times.append(time.perf_counter() - started)
            self.failed += outcome is not Outcome.APPLIED
            if self.running:
                self._propose(raft_group)

        raft_group.propose(EntryKind.COMMAND, self._body, callback=answer)


async def busy(root: str, groups: int, in_flight: int, size: int, seconds: float) -> str:
    nodes = Nodes(root, groups)
    load = Load(await nodes.elected(), in_flight, os.urandom(size))
    syncs = sum(flusher.syncs for flusher in nodes.flushers)
    cpu = time.process_time()
    load.start()
    await asyncio.sleep(seconds)
    load.running = False
    count, times = len(load.times), sorted(load.times)
    cpu = time.process_time() - cpu
    syncs = sum(flusher.syncs for flusher in nodes.flushers) - syncs
    await asyncio.sleep(0.3)
    nodes.close()
    p50, p99 = times[count // 2] * 1000, times[count * 99 // 100] * 1000
    return (
        f"{groups} groups x {in_flight} in flight, {size} B: {count / seconds:,.0f} commits/s, "
        f"p50 {p50:.2f} ms, p99 {p99:.2f} ms, {cpu / count * 1e6:.0f} us CPU each (3 nodes), "
        f"{syncs / seconds:,.0f} syncs/s, {load.failed} failed"
    )


async def idle(root: str, groups: int, seconds: float) -> str:
    nodes = Nodes(root, groups)
    await nodes.elected()
    await asyncio.sleep(1.0)
    gc.collect()
    cpu = time.process_time()
    await asyncio.sleep(seconds)
    share = (time.process_time() - cpu) / seconds / len(NAMES)
    nodes.close()
    return f"{groups} idle groups: {share * 100:.2f} % of a core per node"


def run(measure: Callable[[str], Coroutine[None, None, str]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        print(asyncio.run(measure(directory)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    seconds = parser.parse_args().seconds
    size = 100
    for groups, in_flight in ((1, 1), (1, 64), (16, 4), (64, 1)):
        run(partial(busy, groups=groups, in_flight=in_flight, size=size, seconds=seconds))
    run(partial(busy, groups=1, in_flight=8, size=1_000_000, seconds=seconds))
    run(partial(idle, groups=64, seconds=seconds))


if __name__ == "__main__":
    main()
