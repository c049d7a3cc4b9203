"""Whole replicas copied between simulated nodes: the production code of both ends on virtual time,
chunk by chunk, so that everything may happen in between, and some of it is made to."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from goqueue.wire.types import CLUSTER_GROUP, Lsn, NodeId, PartitionId
from log.copy.manifest import Manifest
from log.copy.staging import Staging
from log.wal.format import BLOCK_BYTES
from log.wal.install import Install
from node.metrics import Metrics
from node.replicas.topology import Topology
from node.rpc.transfer import READ
from node.runtime.throttle import Throttle
from node.storage.copying.limits import CopyLimits
from node.storage.copying.pace import CopyPace
from node.storage.copying.pull import Progress, PullParts
from node.storage.copying.source import CopiedPartitions, behind_here, committed_here
from node.storage.copying.transfer import Transfers
from node.storage.flusher import Flusher
from node.storage.parts import StorageParts
from tests.sim.coroutines import Workers
from tests.sim.front import Nothing

if TYPE_CHECKING:
    from tests.sim.process import Process

LIMITS = CopyLimits(
    chunk_bytes=1024,
    window_chunks=3,
    sync_bytes=4096,
    chunk_timeout_s=0.5,
    open_timeout_s=0.8,
    close_timeout_s=0.3,
    pause_first_s=0.02,
    pause_max_s=0.1,
    watch_s=0.3,
    damaged_patience_s=2.0,
    leftovers_s=3.0,
    rest_s=0.2,
    install_pause_s=0.05,
    silence_s=2.0,
    linger_s=2.0,
    offer_s=0.3,
    offer_timeout_s=0.5,
)
RATES = (0, 0, 20_000)
"""How many bytes a second a node copies at most; 0 for no bound."""
STRIKE = 0.03
"""How often something happens to one of the two as a chunk is asked for, while faults strike."""
STRIKE_S = 0.03
SPILL_LOOK_S = 0.005


class Copying:
    """One node's part: what it offers and serves as a source, and what it copies."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._rng = rng = process.world.rng("copies")
        self._installs: dict[PartitionId, Install] = {}
        self._made: dict[PartitionId, tuple[Progress, int]] = {}
        """Of replicas that are held, the copies to be installed, and where the logs were made."""
        time, link, store = process.time, process.link, process.store
        self._coroutines = process.coroutines
        metrics: Any = Nothing()
        workers, rate = Workers(process.coroutines), rng.choice(RATES)
        store.staging = self._staging  # type: ignore[method-assign]
        self._topology = Topology(
            process.node,
            state=lambda: self._cluster.state,
            cluster_voters=self._cluster_voters,
            cluster_group=lambda: self._cluster.raft,
            find=cast(Any, process.replicas.get),
            is_present=lambda node: node in link.connected(),
        )
        draw = lambda: rng.getrandbits(63)  # noqa: E731
        self._source = process.world.mutant.source(
            StorageParts(
                store,
                cast(Flusher, None),
                cast(Any, link),
                process.host,
                cast(Metrics, metrics),
            ),
            CopiedPartitions(
                committed=partial(committed_here, process.host),
                behind=partial(behind_here, process.host),
                prepare=lambda partition_id: self._store_state(partition_id, again=False),
                renew=lambda partition_id: self._store_state(partition_id, again=True),
            ),
            workers=workers,
            now_s=time.now,
            random_u64=draw,
            pace=CopyPace(rate, time.now),
            limits=LIMITS,
        )
        self._transfers = Transfers(
            store,
            cast(Flusher, Spilling(process)),
            PullParts(
                cast(Any, Struck(self)),
                workers,
                Throttle(rate, time.now),
                cast(Metrics, metrics),
                time.now,
                room_bytes=self._room_bytes,
                limits=LIMITS,
            ),
            self,
            sources=self._sources,
            random_u64=draw,
        )

    @property
    def process(self) -> Process:
        return self._process

    def start(self) -> None:
        """Serve copies, and make those that are offered, or that damage makes necessary."""
        for begin in (self._source.start, self._transfers.start):
            self._coroutines.start(begin(), _nothing)

    def want(self, partition_id: PartitionId) -> None:
        """Have the group's log replaced by a copy, if it needs one."""
        self._coroutines.call_soon(self._transfers.want, partition_id)

    # what a copy of a whole replica asks for, as of `node.assembly`

    def hold(self, partition_id: PartitionId) -> bool:
        progress = next(
            one for one in self._transfers.progress() if one.partition_id == partition_id
        )
        self._made[partition_id] = (
            progress,
            self._process.store.partition_log(partition_id).installed_lsn,
        )
        self._process.hold(partition_id)
        return True

    def release(self, partition_id: PartitionId) -> None:
        if self._coroutines.is_over:
            return
        progress, before = self._made.pop(partition_id)
        store = self._process.store
        if store.has_log(partition_id) and store.partition_log(partition_id).installed_lsn > before:
            self._copied(partition_id, progress)
        self._process.release(partition_id)

    def _copied(self, partition_id: PartitionId, progress: Progress) -> None:
        process, world = self._process, self._process.world
        world.copies += 1
        world.cluster_copies += partition_id == CLUSTER_GROUP
        world.resumed_copies += progress.reused_bytes > 0
        again = progress.reused_bytes > 0
        world.loop.note("copied", process.node, partition_id.partition, progress.source, again)
        if not world.machines.is_victim(process.node):  # else its disk may fail it
            last = self._installs[partition_id].last_index
            world.checks.copied(process.node, process.store.partition_log(partition_id), last)

    def _sources(self, partition_id: PartitionId) -> list[NodeId]:
        raft = self._process.raft(partition_id)
        leader = None if raft is None else raft.leader
        others = {*self._replicas(partition_id), *([leader] if leader else [])}
        if partition_id == CLUSTER_GROUP and not others:
            others = set(self._process.link.connected())
        others.discard(self._process.node)
        return sorted(others, key=lambda node: (node != leader, node))

    def _replicas(self, partition_id: PartitionId) -> tuple[NodeId, ...]:
        if self._process.cluster is None:
            return tuple(self._process.world.nodes)
        return self._topology.replicas(partition_id)

    @property
    def _cluster(self) -> Any:
        return self._process.cluster

    def _cluster_voters(self) -> tuple[NodeId, ...]:
        raft = self._cluster.raft
        return () if raft is None else tuple(voter.node for voter in raft.membership.voters)

    def _room_bytes(self) -> int:
        disk = self._process.machine.disk
        return disk.capacity - disk.used_bytes()

    async def _store_state(self, partition_id: PartitionId, *, again: bool) -> bool:
        raft = self._process.raft(partition_id)
        work = None if raft is None else raft.apply.take_snapshot(again=again)
        if work is None:
            return False
        stored = self._coroutines.create_future()
        self._process.storage.keep(work.run, lambda: stored.set_result(None))
        await stored
        return True

    def _staging(self, partition_id: PartitionId, new_id: int) -> Staging:
        staging = type(self._process.store).staging(self._process.store, partition_id, new_id)
        staging.__class__ = self._process.world.mutant.staging
        finish = staging.finish

        def finished(manifest: Manifest) -> Install:
            self._installs[partition_id] = install = finish(manifest)
            return install

        staging.finish = finished  # type: ignore[method-assign]
        return staging

    # what goes wrong

    def asked(self, source: NodeId) -> None:
        """A chunk is asked for."""
        world = self._process.world
        if world.plan and not world.is_quiet and self._rng.random() < STRIKE:
            world.loop.call_later(self._rng.uniform(0.0, STRIKE_S), self._strike, source)

    def _strike(self, source: NodeId) -> None:
        world, rng, me = self._process.world, self._rng, self._process.node
        if world.is_quiet:
            return
        how = rng.choice(("kill", "kill source", "cut", "stall", "pause source"))
        world.loop.note("strike", how, me, source)
        if how == "cut":
            world.net.block(me, source, rng.uniform(0.1, 0.6))
        elif how == "stall":
            world.net.stall(source, me, rng.uniform(0.2, 1.5))
        elif how == "pause source":
            world.machines.pause(source, rng.choice((0.1, 1.0)))
        else:
            node = me if how == "kill" else source
            world.machines.kill(node, power=False, down_s=rng.uniform(0.02, 0.6))


class Struck:
    """The link of whoever copies: now and then something happens as a chunk is asked for."""

    def __init__(self, copying: Copying) -> None:
        self._copying = copying
        link = copying.process.link
        self._request = link.request
        self.connected, self.handle = link.connected, link.handle

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        if method == READ:
            self._copying.asked(node)
        return await self._request(node, method, payload, timeout_s)


class Spilling:
    """The flusher, as far as an installation asks for it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def spilled(self) -> None:
        """Everything appended before is in segments."""
        store = self._process.store
        lsn = store._block_lsn
        if store._pending.parts:
            lsn = Lsn(lsn + BLOCK_BYTES + store._pending.length)
        while store.spilled_lsn < lsn:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(SPILL_LOOK_S)


def _nothing(_result: object) -> None:
    return None
