"""Any file of one of three nodes is damaged in any way: nothing is lost, nothing wrong is served,
and the node is whole again by itself. A sample of it; `GOQUEUE_DAMAGE=all` tries everything
(`make damage`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import product

import pytest

from goqueue.wire.types import CLUSTER_GROUP, Index, NodeId, Offset, PartitionId
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.entry import Entry, make_entry
from log.segments.segment import OFFSETS_SUFFIX, SEGMENT_SUFFIX, TERM, TERMS_SUFFIX
from log.store.directory import Store
from node.api.scrub import ScrubView
from node.assembly import assemble
from node.storage.copying import copies
from node.storage.copying.limits import CopyLimits
from node.storage.repair.healer import Healer
from raft.group import RaftGroup
from tests.unit.node.test_node import append, config, eventually
from tests.unit.node.three_nodes import NAMES, ThreeNodes

SMALL = StorageConfig(
    segment_bytes=4 << 10,
    index_interval_bytes=512,
    wal_file_bytes=256 << 10,
    checkpoint_bytes=16 << 10,
    ram_tail_bytes=0,
    watermark_percent=0,
    watermark_bytes=64 << 20,
    reserve_bytes=0,
)
KEEPING = replace(SMALL, wal_file_bytes=16 << 10, wal_files_max=1000, checkpoint_bytes=1 << 30)
"""No file of the write-ahead log goes as long as the node runs."""
SETTINGS = {
    "cluster.secret": "the secret of three nodes in one process",
    "storage.scrubInterval": "0s",
    "storage.scrubRate": "0",
    "storage.snapshotInterval": "100ms",
    "storage.checkpointInterval": "50ms",
}
CLUSTER = f"/{CLUSTER_GROUP}/"
VICTIM = "n2"
"""Whatever it leads, the others can lead as well."""
REPAIRED_S = 30.0
BLOCK_BYTES = 512

Damage = Callable[[MemoryDisk, str, random.Random], None]


def place(disk: MemoryDisk, path: str, rng: random.Random) -> int:
    """Where to damage a file: of the write-ahead log the part that is used."""
    used = len(bytes(disk.content(path)).rstrip(b"\0"))
    return rng.randrange(used)


def flip(disk: MemoryDisk, path: str, rng: random.Random) -> None:
    disk.content(path)[place(disk, path, rng)] ^= 1 << rng.randrange(8)


def zeros(disk: MemoryDisk, path: str, rng: random.Random) -> None:
    content, at = disk.content(path), place(disk, path, rng)
    content[at : at + BLOCK_BYTES] = bytes(len(content[at : at + BLOCK_BYTES]))


def junk(disk: MemoryDisk, path: str, rng: random.Random) -> None:
    content, at = disk.content(path), place(disk, path, rng)
    content[at : at + BLOCK_BYTES] = rng.randbytes(len(content[at : at + BLOCK_BYTES]))


def cut(disk: MemoryDisk, path: str, rng: random.Random) -> None:
    del disk.content(path)[place(disk, path, rng) :]


def delete(disk: MemoryDisk, path: str, _rng: random.Random) -> None:
    disk.unlink(path)


DAMAGES: tuple[Damage, ...] = (flip, zeros, junk, cut, delete)
FILES = (
    "wal",
    *(f"{part}{suffix}" for part, suffix in product(
        ("sealed", "active"), (SEGMENT_SUFFIX, TERMS_SUFFIX, OFFSETS_SUFFIX))),
    "snapshot",
    "older snapshot",
    "cluster.segment",
    "cluster.terms",
    "cluster snapshot",
)  # fmt: skip


def stop_writing(operation: str, path: str) -> OSError | None:
    """A fault: the disk stays as it is, as if the process had been killed."""
    if operation in ("open", "pread"):
        return None
    return OSError(errno.EIO, os.strerror(errno.EIO), path)


class SmallNodes(ThreeNodes):
    """Segments are small; scrubs are begun by the test alone. A node that is `keeping` drops no
    file of its write-ahead log."""

    def __init__(self, keeping: str = "") -> None:
        super().__init__()
        self.keeping = keeping
        self.stores: dict[str, Store] = {}

    async def begin(self, name: str) -> None:
        others = {n: f"127.0.0.1:{port}" for n, port in self.ports.items() if n != name}
        settings = config(
            **{
                "broker.nodeId": name,
                "broker.listeners.internal": f"127.0.0.1:{self.ports[name]}",
                "cluster.peers": ",".join(f"{n}={address}" for n, address in others.items()),
                **SETTINGS,
                **({"storage.checkpointInterval": "1h"} if name == self.keeping else {}),
            }
        )
        storage = KEEPING if name == self.keeping else SMALL
        store = self.stores[name] = Store.open(self.disks[name], "/data", storage, set_aside=True)
        failed: list[Exception] = []
        node = assemble(settings, store, on_failure=failed.append)
        await node.services.start()
        self.running[name] = node

    async def kill(self, name: str) -> None:
        """Ends the node with its disk as it is now."""
        self.disks[name].fault = stop_writing
        await self.stop(name)
        self.disks[name] = self.disks[name].clone()

    async def fill_wal(self, name: str, files: int) -> None:
        """Publishes until a node, which was just started, keeps so many write-ahead files."""
        while self.stores[name].wal_files < files:
            await append(self.running["n1"], "fills the log " * 200)
            await eventually(lambda: self.is_whole(name), REPAIRED_S)

    def wal_files(self, name: str) -> list[str]:
        """Files of the write-ahead log, oldest first."""
        return [path for path in self.disks[name].paths() if path.startswith("/data/wal/0")]

    def partition_id(self) -> PartitionId:
        return next(g for g in self.stores["n1"].partition_ids() if g != CLUSTER_GROUP)

    def leader_of(self) -> str:
        """Who leads the partition."""
        replicas = {name: broker_replica(self, name, self.partition_id()) for name in NAMES}
        return next(name for name, replica in replicas.items() if replica and replica.is_leader)

    async def scrub(self, name: str = VICTIM) -> ScrubView:
        """A round there, to its end."""
        broker = self.broker("n1")
        await broker.scrubs.scrub(begin=True)
        views: dict[str, ScrubView | None] = {}

        async def look() -> None:
            views.update(await broker.scrubs.scrub(begin=False))

        while not (view := views.get(name)) or any(v and v.running for v in views.values()):
            await look()
        return view

    def path(self, name: str, file: str) -> str | None:
        """A file of this kind on a node."""
        disk, store = self.disks[name], self.stores[name]
        partition_id = CLUSTER_GROUP if file.startswith("cluster") else self.partition_id()
        directory = f"/data/groups/{partition_id}"
        if file == "wal":
            return max(path for path in disk.paths() if path.endswith(".wal"))
        if file.endswith("snapshot"):
            found = [p for p in disk.paths() if p.startswith(directory) and p.endswith(".snapshot")]
            return None if not found else found[0] if file.startswith("older") else found[-1]
        chain = store.partition_log(partition_id).disk_segments.chain
        segment = chain[len(chain) // 2] if file.startswith("sealed") else chain[-1]
        return segment.path("." + file.rpartition(".")[2])

    def is_whole(self, name: str) -> bool:
        """Whether the node holds everything that the others hold, beyond doubt, and votes."""
        broker = self.running[name].broker
        if not broker.node.ready().ready or broker.node.cluster_view().problems:
            return False
        store = self.stores[name]
        for partition_id in (CLUSTER_GROUP, self.partition_id()):
            if not store.has_log(partition_id):
                return False
            mine, theirs = (
                store.partition_log(partition_id),
                self.stores["n1"].partition_log(partition_id),
            )
            if mine.damaged or mine.suspect or mine.last_index != theirs.last_index:
                return False
            if mine.spilled_index != mine.last_index:
                return False
            replica = broker_replica(self, name, partition_id)
            if replica is None or replica.applied_index != theirs.last_index:
                return False
            if NodeId(name) not in [voter.node for voter in replica.membership.voters]:
                return False
        return True


def broker_replica(nodes: SmallNodes, name: str, partition_id: PartitionId) -> RaftGroup | None:
    return nodes.running[name].broker.scrubs._scrub._comparison.replica(partition_id)


@asynccontextmanager
async def small_nodes(keeping: str = "") -> AsyncIterator[SmallNodes]:
    nodes = SmallNodes(keeping)
    try:
        for name in NAMES:
            await nodes.begin(name)
        await eventually(lambda: all(broker.node.ready().ready for broker in nodes.brokers), 30)
        await nodes.broker("n1").topics.create_topic(
            "t", {"partitions": 1, "replication_factor": 3}
        )
        for number in range(40):
            await append(nodes.running["n1"], f"{number} " * 200)
        await eventually(lambda: all(nodes.is_whole(name) for name in NAMES), 30)
        yield nodes
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


async def everything(nodes: SmallNodes, name: str) -> list[bytes]:
    """Every entry of the partition, as this node reads it."""
    log = nodes.stores[name].partition_log(nodes.partition_id())
    found: list[bytes] = []
    index = log.first_index
    while index <= log.last_index:
        entries = log.entries(index)
        found += [entry.frame for entry in entries]
        index = Index(entries[-1].index + 1)
    return found


async def messages(nodes: SmallNodes, name: str) -> int:
    """How many messages can be read through this node."""
    found = await nodes.broker(name).records.read(
        "t", 0, Offset(0), max_records=10_000, max_bytes=1 << 24, wait_s=0
    )
    return found.next_offset


async def whole_again(nodes: SmallNodes, what: str) -> None:
    """Wait until the victim is whole. Names what it is not whole after."""
    try:
        await eventually(lambda: nodes.is_whole(VICTIM), REPAIRED_S)
    except TimeoutError:
        store = nodes.stores[VICTIM]
        logs = [
            (str(log.id), log.damaged, log.last_index)
            for log in map(store.partition_log, store.partition_ids())
        ]
        problems = nodes.broker(VICTIM).node.cluster_view().problems
        raise AssertionError(f"not whole after {what}: {logs} {problems}") from None


def cases() -> list[tuple[str, Damage, int]]:
    """Each file with each damage; in the sample each file with one."""
    everything = [(file, damage) for file in FILES for damage in DAMAGES]
    if os.environ.get("GOQUEUE_DAMAGE") == "all":
        return [(*case, seed) for case in everything for seed in range(3)]
    return [(file, DAMAGES[at % len(DAMAGES)], at) for at, file in enumerate(FILES)]


async def test_a_running_node_finds_and_repairs_damage_to_any_file() -> None:
    async with small_nodes() as nodes:
        for file, damage, seed in cases():
            path = nodes.path(VICTIM, file)
            if path is None:
                continue
            what = f"{file} {damage.__name__} {seed}"
            damage(nodes.disks[VICTIM], path, random.Random(seed))

            await append(nodes.running["n1"], what)
            await nodes.scrub()
            await append(nodes.running["n1"], what)

            await whole_again(nodes, what)
            view = await nodes.scrub()
            again = await nodes.scrub() if view.mended_files else view
            assert (again.damaged_entries, again.damaged, again.diverged) == (0, [], []), what
            assert await everything(nodes, VICTIM) == await everything(nodes, "n1"), what
            assert await messages(nodes, VICTIM) == await messages(nodes, "n1"), what


async def test_a_read_that_meets_damage_at_the_leader_is_answered_as_if_there_were_none() -> None:
    async with small_nodes() as nodes:
        count = await messages(nodes, "n1")
        for seed in range(3):
            leader = nodes.leader_of()
            path = nodes.path(leader, "sealed.segment")
            assert path is not None
            flip(nodes.disks[leader], path, random.Random(seed))

            assert await messages(nodes, leader) == count
            assert await nodes.broker(leader).records.offset_at("t", 0, 0) == 0
            await eventually(lambda: all(nodes.is_whole(name) for name in NAMES), REPAIRED_S)


async def test_a_node_that_is_down_is_told_as_not_scrubbed() -> None:
    async with small_nodes() as nodes:
        await nodes.stop("n3")

        broker = nodes.broker("n1")
        async with asyncio.timeout(30):
            while (views := await broker.scrubs.scrub(begin=False)).get("n3") is not None:
                pass  # the link is not known to be down yet

        assert [views[name] is not None for name in NAMES] == [True, True, False]


async def test_a_node_that_starts_on_damage_to_any_file_is_whole_again_by_itself() -> None:
    async with small_nodes() as nodes:
        for file, damage, seed in cases():
            path = nodes.path(VICTIM, file)
            if path is None:
                continue
            what = f"{file} {damage.__name__} {seed}"
            await nodes.stop(VICTIM)
            nodes.disks[VICTIM].process_died()
            damage(nodes.disks[VICTIM], path, random.Random(seed))
            await append(nodes.running["n1"], what)

            await nodes.begin(VICTIM)

            await whole_again(nodes, what)
            await nodes.scrub()
            await whole_again(nodes, what)
            view = await nodes.scrub()
            assert (view.damaged_entries, view.damaged, view.diverged) == (0, [], []), what
            assert await everything(nodes, VICTIM) == await everything(nodes, "n1"), what
            assert await messages(nodes, VICTIM) == await messages(nodes, "n1"), what


def deletions(files: int) -> list[str]:
    """What to delete while so many write-ahead files are kept: in the sample the newest of them."""
    kept = [f"wal {at}" for at in range(files)]
    if os.environ.get("GOQUEUE_DAMAGE") == "all":
        return [*kept, *(file for file in FILES if file != "wal")]
    return kept[-1:]


@pytest.mark.parametrize("end", ["killed", "stopped"])
@pytest.mark.parametrize("files", [1, 2, 3])
async def test_a_node_that_starts_without_any_one_file_is_whole_again_by_itself(
    files: int, end: str
) -> None:
    async with small_nodes(keeping=VICTIM) as nodes:
        for file in deletions(files):
            what = f"{file} of {files} deleted, {end}"
            await nodes.stop(VICTIM)
            nodes.disks[VICTIM].process_died()
            await nodes.begin(VICTIM)  # in one write-ahead file
            await nodes.fill_wal(VICTIM, files)
            incarnation = nodes.stores[VICTIM].incarnation
            kept = nodes.wal_files(VICTIM)
            assert len(kept) == files, what
            is_wal = file.startswith("wal")
            chosen = kept[int(file.removeprefix("wal "))] if is_wal else nodes.path(VICTIM, file)
            await (nodes.kill(VICTIM) if end == "killed" else nodes.stop(VICTIM))
            nodes.disks[VICTIM].process_died()
            if chosen is not None and nodes.disks[VICTIM].exists(chosen):
                nodes.disks[VICTIM].unlink(chosen)
            await append(nodes.running["n1"], what)

            await nodes.begin(VICTIM)

            if is_wal:
                assert nodes.stores[VICTIM].incarnation != incarnation, what
            await whole_again(nodes, what)
            assert await everything(nodes, VICTIM) == await everything(nodes, "n1"), what
            assert await messages(nodes, VICTIM) == await messages(nodes, "n1"), what


# -- replicas that differ though every checksum is right


def other(entry: Entry) -> Entry:
    """A sound entry of the same place and length that says something else."""
    body = bytes(entry.body)
    return make_entry(
        index=entry.index,
        term=entry.term,
        time_ms=entry.time_ms,
        kind=entry.kind,
        base_offset=entry.base_offset,
        record_count=entry.record_count,
        matches=entry.matches,
        body=body[:-1] + bytes([body[-1] ^ 1]),
    )


def forge(nodes: SmallNodes, name: str, index: int) -> None:
    """Puts another sound entry in the place of one, with the term index to fit."""
    log = nodes.stores[name].partition_log(nodes.partition_id())
    entry = log.entry(Index(index))
    segment = next(s for s in log.disk_segments.chain if s.last_index >= index)
    forged = other(entry)
    content = nodes.disks[name].content(segment.path())
    at = bytes(content).index(entry.frame)
    content[at : at + len(entry.frame)] = forged.frame
    item = TERM.pack(at, forged.crc, forged.term)
    terms = nodes.disks[name].content(segment.path(TERMS_SUFFIX))
    start = 48 + (index - segment.first_index) * len(item)
    terms[start : start + len(item)] = item


@pytest.mark.parametrize("is_leader", [False, True])
async def test_a_replica_that_differs_from_the_others_is_copied_anew(
    monkeypatch: pytest.MonkeyPatch, is_leader: bool
) -> None:
    monkeypatch.setattr(copies, "LIMITS", CopyLimits(rest_s=0.1))
    async with small_nodes() as nodes:
        leader = nodes.leader_of()
        name = leader if is_leader else next(n for n in NAMES if n != leader)
        sound = next(n for n in NAMES if n != name)
        truth = await everything(nodes, sound)
        forge(nodes, name, 20)
        assert await everything(nodes, name) != truth

        await nodes.scrub(leader)

        def is_copied() -> bool:
            log = nodes.stores[name].partition_log(nodes.partition_id())
            return log.damaged is None and not log.suspect and log.installed_lsn > 0

        await eventually(is_copied, REPAIRED_S)
        await append(nodes.running[sound], "goes on")
        assert (await everything(nodes, name))[: len(truth)] == truth
        text, _type = nodes.running[leader].broker.scrubs._scrub._metrics.render()
        assert b"goqueue_scrub_diverged_total 1.0" in text


async def test_where_no_majority_agrees_people_are_told_and_nothing_is_copied() -> None:
    async with small_nodes() as nodes:
        leader = nodes.leader_of()
        first, second = (n for n in NAMES if n != leader)
        forge(nodes, first, 20)
        await nodes.stop(second)

        view = await nodes.scrub(leader)

        [text] = view.diverged
        assert "no majority agrees" in text
        assert text in nodes.broker(leader).node.cluster_view().problems
        assert nodes.stores[first].partition_log(nodes.partition_id()).damaged is None


async def test_a_cluster_group_that_is_not_to_be_believed_is_renewed_by_a_restart() -> None:
    async with small_nodes() as nodes:
        leader = nodes.leader()
        name = next(n for n in NAMES if n != leader)
        store = nodes.stores[name]
        assert nodes.running[name].broker.node.ready().ready
        for suffix in (SEGMENT_SUFFIX, TERMS_SUFFIX):  # the first entry, and what names it
            path = nodes.path(name, f"cluster{suffix}")
            assert path is not None
            nodes.disks[name].content(path)[48:64] = b"x" * 16

        await nodes.scrub(name)
        await eventually(lambda: store.partition_log(CLUSTER_GROUP).untrusted, REPAIRED_S)
        assert not nodes.running[name].broker.node.ready().ready
        await nodes.stop(name)
        nodes.disks[name].process_died()
        await nodes.begin(name)

        await eventually(lambda: nodes.is_whole(name), REPAIRED_S)
        assert nodes.broker(name).topics.list_topics() == ["t"]
        assert nodes.stores[name].incarnation == store.incarnation


async def test_a_cluster_replica_that_stopped_over_damage_starts_again_once_it_is_healed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    healers: dict[Store, Healer] = {}

    async def noted(healer: Healer) -> None:
        healers[healer._store] = healer

    monkeypatch.setattr(Healer, "heal", noted)
    async with small_nodes() as nodes:
        raft_group = nodes.broker(VICTIM).topics._cluster.raft_group
        assert raft_group is not None
        await eventually(lambda: nodes.stores[VICTIM] in healers)
        raft_group.fail(RuntimeError("an entry that is to be applied is damaged"))
        assert nodes.running[VICTIM].status.fault

        healers[nodes.stores[VICTIM]]._on_healed(CLUSTER_GROUP)

        await whole_again(nodes, "a replica that stopped over damage")
        assert nodes.broker(VICTIM).topics.list_topics() == ["t"]
        assert nodes.broker(VICTIM).topics._cluster.raft_group is not raft_group
        assert nodes.running[VICTIM].status.fault is None


async def test_damaged_entries_of_the_cluster_group_are_back_before_it_starts_from_them() -> None:
    async with small_nodes() as nodes:
        log = nodes.stores[VICTIM].partition_log(CLUSTER_GROUP)
        entry = log.entry(
            Index(log.last_index - 1)
        )  # neither end, which are read when it is opened
        path = nodes.path(VICTIM, "cluster.segment")
        assert path is not None
        await nodes.stop(VICTIM)
        disk = nodes.disks[VICTIM]
        disk.process_died()
        for snapshot in [p for p in disk.paths() if CLUSTER in p and p.endswith(".snapshot")]:
            disk.unlink(snapshot)  # so all entries are applied again
        disk.content(path)[bytes(disk.content(path)).index(entry.frame) + len(entry.frame) - 1] ^= 1

        await nodes.begin(VICTIM)

        raft_group = nodes.broker(VICTIM).topics._cluster.raft_group
        assert raft_group is not None
        assert (
            nodes.stores[VICTIM].partition_log(CLUSTER_GROUP).entry(entry.index).frame
            == entry.frame
        )
        await whole_again(nodes, "a start on damaged entries without a snapshot")
        assert nodes.broker(VICTIM).topics.list_topics() == ["t"]
        assert nodes.broker(VICTIM).topics._cluster.raft_group is raft_group, (
            "it met the damage, and stopped"
        )
        assert raft_group.failed is None
