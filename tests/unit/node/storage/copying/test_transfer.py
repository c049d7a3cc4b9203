"""Whole replicas copied over the link: whatever breaks on the way, the copy is equal at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any, cast

import pytest

from goqueue.wire.errors import BadRequest, Busy, NotFound
from goqueue.wire.types import Index, NodeId, PartitionId, TopicId
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.entry import Entry, EntryKind, make_entry
from log.partition.log import PartitionLog
from log.store.directory import Store
from node.metrics import Metrics
from node.peers.link import PeerLink
from node.rpc import partitions as rpc
from node.rpc import transfer as transfer_rpc
from node.runtime.throttle import Throttle
from node.storage.copying.limits import CopyLimits
from node.storage.copying.pull import PullParts
from node.storage.copying.source import SESSIONS_MAX, CopiedPartitions, TransferSource
from node.storage.copying.transfer import Transfers
from node.storage.flusher import Flusher
from node.storage.parts import StorageParts
from raft.host import RaftHost
from raft.link import LinkDown, RemoteError

GROUP = PartitionId(TopicId(1, 1), 0)
LIMITS = StorageConfig(
    segment_bytes=400_000,
    wal_file_bytes=8 << 20,
    ram_tail_bytes=0,
    checkpoint_bytes=1,
    watermark_bytes=0,
    watermark_percent=0,
    reserve_bytes=0,
)
STATE = b"what was applied " * 100
ENTRIES = 60
N1, N2, N3 = NodeId("n1"), NodeId("n2"), NodeId("n3")


def entry(index: int, term: int = 3) -> Entry:
    body = random.Random(index * 100 + term).randbytes(30_000)
    kind = EntryKind.COMMAND
    return make_entry(index=index, term=term, time_ms=index, kind=kind, body=body)


def flush(store: Store) -> None:
    while (job := store.take_flush()) is not None:
        job.sync()
        store.complete_flush(job)
        job.spill()
        store.complete_spill(job)


def checkpoint(store: Store) -> None:
    job = store.take_checkpoint()
    if job is not None:
        job.run()
        store.complete_checkpoint(job)
    flush(store)


class Inline(Executor):
    """Work done at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **named))
        except BaseException as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept = 0.0

    def now_s(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds
        await asyncio.sleep(0)


class Link:
    """One node's link; requests go straight to the handlers of the others."""

    def __init__(self, name: NodeId) -> None:
        self.name = name
        self.handlers: dict[str, Callable[[NodeId, bytes], Awaitable[bytes]]] = {}
        self.others: dict[NodeId, Link] = {}
        self.on_chunk: Callable[[NodeId, bytes], bytes | None] = lambda _node, answer: answer
        """What becomes of a chunk from this node; None cuts its link."""
        self.chunks: list[tuple[NodeId, bytes]] = []
        self.in_flight = self.in_flight_most = 0

    def handle(self, method: str, handler: Callable[[NodeId, bytes], Awaitable[bytes]]) -> None:
        self.handlers[method] = handler

    def connected(self) -> Mapping[NodeId, Mapping[str, Any]]:
        return {node: {} for node in self.others}

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        if node not in self.others:
            raise LinkDown(node, sent=False)
        self.in_flight += 1
        self.in_flight_most = max(self.in_flight_most, self.in_flight)
        try:
            await asyncio.sleep(0)
            answer = await self.others[node].handlers[method](self.name, payload)
        except Exception as error:
            raise RemoteError(error) from error  # type: ignore[arg-type]
        finally:
            self.in_flight -= 1
        if method != transfer_rpc.READ:
            return answer
        self.chunks.append((node, payload))
        changed = self.on_chunk(node, answer)
        if changed is None:
            self.others.pop(node, None)
            raise LinkDown(node, sent=True)
        return changed


class Spilling:
    """The flusher, as far as an install asks for it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def spilled(self) -> None:
        flush(self._store)


class Node:
    """A store with one group, that serves copies and makes them."""

    def __init__(
        self, name: NodeId, clock: Clock, disk: MemoryDisk | None = None, *, rate: int = 0
    ) -> None:
        self.name = name
        self.disk = disk or MemoryDisk()
        self.store = Store.open(self.disk, "/data", LIMITS)
        if not self.store.has_log(GROUP):
            self.store.create_log(GROUP)
            flush(self.store)
        self.link = Link(name)
        self.metrics = Metrics()
        self.committed: Index | None = Index(1 << 40)
        self.behind: list[tuple[PartitionId, NodeId]] = []
        self.held: list[str] = []
        self.renewed_at: Index | None = None
        """The entry whose state can be stored again."""
        numbers = random.Random(name)
        link, workers = cast(PeerLink, self.link), Inline()
        flusher = cast(Flusher, Spilling(self.store))
        self.source = TransferSource(
            StorageParts(self.store, flusher, link, cast(RaftHost, None), self.metrics),
            CopiedPartitions(
                committed=lambda _partition_id: self.committed,
                behind=lambda: self.behind,
                renew=self._renew,
            ),
            workers=workers,
            now_s=clock.now_s,
            random_u64=lambda: numbers.getrandbits(64),
        )
        throttle = Throttle(rate, clock.now_s, clock.sleep)
        self.transfers = Transfers(
            self.store,
            flusher,
            PullParts(link, workers, throttle, self.metrics, clock.now_s, clock.sleep),
            self,
            sources=self._sources,
            random_u64=lambda: numbers.getrandbits(64),
        )

    @property
    def log(self) -> PartitionLog:
        return self.store.partition_log(GROUP)

    def hold(self, partition_id: PartitionId) -> bool:
        self.held.append(f"hold at {self.log.last_index}")
        return True

    def release(self, partition_id: PartitionId) -> None:
        self.held.append(f"release at {self.log.last_index}")

    def fill(self, count: int = ENTRIES, term: int = 3) -> None:
        for _ in range(count):
            self.log.append([entry(self.log.last_index + 1, term)])
        flush(self.store)

    def trim(self, index: int, *snapshots: int) -> None:
        for snapshot in snapshots:
            self.log.save_snapshot(Index(snapshot), STATE + bytes([snapshot])).run()
        self.log.trim_to(Index(index))
        for _ in range(3):
            checkpoint(self.store)
            self.fill(1)

    def everything(self) -> list[bytes]:
        log = self.log
        return [log.entry(Index(n)).frame for n in range(log.first_index, log.last_index + 1)]

    def hashes(self) -> dict[int, str]:
        infos = self.log.segments()
        return {info.first_index: self.log.disk_segments.hash(info.first_index) for info in infos}

    async def _renew(self, _partition_id: PartitionId) -> bool:
        index = self.renewed_at
        if index is not None:
            self.log.save_snapshot(index, STATE + bytes([index])).run()
        return index is not None

    def _sources(self, _partition_id: PartitionId) -> Sequence[NodeId]:
        return sorted(self.link.others)


class World:
    """n1 and n2 have the group, trimmed; n3 is to have it."""

    def __init__(self, *, rate: int = 0, target: MemoryDisk | None = None) -> None:
        self.clock = Clock()
        self.n1, self.n2 = Node(N1, self.clock), Node(N2, self.clock)
        for node in (self.n1, self.n2):
            node.fill()
            node.trim(30, 40)
        self.n3 = Node(N3, self.clock, target, rate=rate)
        self.connect()

    @property
    def nodes(self) -> list[Node]:
        return [self.n1, self.n2, self.n3]

    def connect(self) -> None:
        for node in self.nodes:
            node.link.others = {n.name: n.link for n in self.nodes if n is not node}

    async def copied(self, source: NodeId | None = N1) -> None:
        self.n3.transfers.want(GROUP, source)
        await self.over()

    async def over(self) -> None:
        async with asyncio.timeout(30):
            while self.n3.transfers._running:
                await self.n3.transfers._tasks.settled()
                await asyncio.sleep(0)

    def assert_equal(self, origin: Node | None = None) -> None:
        theirs, mine = origin or self.n1, self.n3
        assert not mine.log.quarantined
        assert mine.log.first_index > 1
        expected = theirs.everything()[mine.log.first_index - theirs.log.first_index :]
        assert mine.everything() == expected
        hashes = mine.hashes()
        assert hashes == {first: h for first, h in theirs.hashes().items() if first in hashes}
        assert mine.log.latest_snapshot() == theirs.log.latest_snapshot()
        assert not [path for path in mine.disk.paths() if path.endswith(".incoming")]


async def test_a_follower_that_is_behind_by_everything_becomes_equal_by_hash() -> None:
    world = World()
    world.n3.fill(5, term=1)

    await world.copied()

    world.assert_equal()
    assert len(world.n3.hashes()) > 2
    assert world.n3.held == ["hold at 5", f"release at {world.n1.log.last_index}"]
    assert world.n3.link.in_flight_most == CopyLimits.window_chunks or len(world.n3.link.chunks) > 3
    assert world.n3.transfers.progress() == []


async def test_the_copy_is_there_after_a_power_cut_once_the_replica_runs_again() -> None:
    world = World()
    await world.copied()

    after = world.n3.disk.crash(random.Random(1), keep=0.0)
    world.n3 = Node(N3, world.clock, after)

    world.assert_equal()


async def test_a_damaged_chunk_is_asked_for_again() -> None:
    world = World()
    damaged = 0

    def flip(_node: NodeId, answer: bytes) -> bytes:
        nonlocal damaged
        if len(world.n3.link.chunks) % 3:
            return answer
        damaged += 1
        at = len(answer) // 2
        return answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1 :]

    world.n3.link.on_chunk = flip

    await world.copied()

    world.assert_equal()
    assert damaged > 2
    assert world.n3.metrics.storage.damaged_chunks.labels().value == damaged


async def test_an_answer_to_another_question_is_not_taken_for_the_chunk() -> None:
    world = World()
    before = b""

    def mix_up(_node: NodeId, answer: bytes) -> bytes:
        nonlocal before
        before, given = answer, before if len(before) == len(answer) else answer
        return given if len(world.n3.link.chunks) % 4 == 0 else answer

    world.n3.link.on_chunk = mix_up

    await world.copied()

    world.assert_equal()


async def test_a_node_whose_chunks_are_always_damaged_is_left_for_another() -> None:
    world = World()
    world.n3.link.on_chunk = lambda node, answer: answer if node == N2 else answer[:-1] + b"?"

    await world.copied()

    world.assert_equal()
    assert {node for node, _ in world.n3.link.chunks} == {N1, N2}


async def test_another_node_goes_on_where_one_died() -> None:
    world = World()
    died_at = 8

    def die(node: NodeId, answer: bytes) -> bytes | None:
        return None if node == N1 and len(world.n3.link.chunks) >= died_at else answer

    world.n3.link.on_chunk = die

    await world.copied()

    world.assert_equal()
    parts = [request for _node, request in world.n3.link.chunks]
    whole = {node for node, _ in world.n3.link.chunks}
    assert whole == {N1, N2}
    asked = [transfer_rpc.decode_chunk_request(part) for part in parts]
    first_segment = asked[0].first
    again = [c for c in asked[died_at + CopyLimits.window_chunks :] if c.first == first_segment]
    assert not [chunk for chunk in again if chunk.kind == 3]  # it was whole by then


async def test_a_copy_goes_on_after_the_death_of_this_very_process() -> None:
    world = World()
    wanted = world.n1.log.export(Index(1 << 40)).open().size_bytes
    world.n3.link.on_chunk = lambda _node, answer: answer if len(world.n3.link.chunks) < 9 else None
    world.n3.transfers.want(GROUP, N1)
    for _ in range(2000):
        await asyncio.sleep(0)
        if not world.n3.link.others:
            break
    assert world.n3.log.last_index == 0
    await world.n3.transfers.stop()

    world.n3 = Node(N3, world.clock, world.n3.disk.crash(random.Random(3), keep=1.0))
    world.connect()
    await world.copied(N2)

    world.assert_equal()
    received = world.n3.metrics.storage.transferred_bytes.labels("received")
    assert received.value < wanted


async def test_a_node_that_trims_meanwhile_keeps_what_is_being_copied() -> None:
    world = World()
    first = world.n1.log.first_index

    def trim(_node: NodeId, answer: bytes) -> bytes:
        if len(world.n3.link.chunks) == 4:
            last = world.n1.log.last_index
            world.n1.trim(last, last - 1, last)
            assert world.n1.log.first_index == first
        return answer

    world.n3.link.on_chunk = trim
    await world.copied()

    snapshot = world.n3.log.latest_snapshot()
    assert snapshot == (40, STATE + bytes([40]))
    assert {node for node, _ in world.n3.link.chunks} == {N1}
    after = world.n1.log.entries(Index(world.n3.log.last_index + 1), max_count=1)
    assert after[0].index == world.n3.log.last_index + 1  # so that the log can go on

    world.clock.now += CopyLimits.linger_s
    world.n1.source.sweep()
    world.n1.trim(world.n1.log.last_index)
    assert world.n1.log.first_index > first


@pytest.mark.parametrize("is_running", [True, False], ids=["from memory", "from nowhere"])
async def test_a_state_that_can_not_be_read_is_stored_again_for_who_copies_it(
    is_running: bool,
) -> None:
    world = World()
    world.n1.link.others.clear()
    world.n3.link.others.pop(N2)
    for path in world.n1.disk.paths():
        if path.endswith(".snapshot"):
            world.n1.disk.content(path)[-1] ^= 1
    world.n1.renewed_at = Index(40) if is_running else None

    await world.copied()

    assert bool(world.n3.log.last_index) == is_running
    if is_running:
        world.assert_equal()


async def test_a_copy_of_damaged_bytes_is_found_out_and_made_from_another_node() -> None:
    world = World()
    segment = world.n1.log.disk_segments.chain[1]
    handle = world.n1.disk.open(segment.path(), write=True)
    world.n1.disk.pwritev(handle, [b"\xff"], segment.end // 2)

    await world.copied()

    world.assert_equal(world.n2)
    assert not world.n3.log.quarantined


async def test_nothing_is_believed_of_a_list_that_makes_no_sense() -> None:
    world = World()
    manifest = world.n1.log.export(Index(1 << 40)).open()
    whole = transfer_rpc.encode_manifest(5, manifest)
    assert transfer_rpc.decode_manifest(whole, GROUP) == (5, manifest)

    with pytest.raises(BadRequest):
        transfer_rpc.decode_manifest(whole, PartitionId(TopicId(1, 2), 0))
    for cut in range(0, len(whole), 7):
        with pytest.raises(BadRequest):
            transfer_rpc.decode_manifest(whole[:cut], GROUP)


async def test_copies_take_no_more_than_their_rate() -> None:
    world = World(rate=1_000_000)
    size = world.n1.log.export(Index(1 << 40)).open().size_bytes
    began = world.clock.now

    await world.copied()

    world.assert_equal()
    took = world.clock.now - began
    assert size / 1_000_000 - 0.4 <= took <= size / 1_000_000 + 0.1


async def test_what_is_copied_goes_to_the_disk_in_small_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A whole segment synced at once holds up every other sync of this disk."""
    step = 32 << 10
    world = World()
    limits = CopyLimits(sync_bytes=step, chunk_bytes=step // 4)
    world.n3.transfers._parts = replace(world.n3.transfers._parts, limits=limits)
    unsynced = longest = 0
    disk = world.n3.disk
    write, sync = disk.pwritev, disk.fdatasync

    def written(handle: int, parts: Sequence[bytes], offset: int) -> int:
        nonlocal unsynced, longest
        unsynced += sum(map(len, parts))
        longest = max(longest, unsynced)
        return write(handle, parts, offset)

    def synced(handle: int) -> None:
        nonlocal unsynced
        unsynced = 0
        sync(handle)

    monkeypatch.setattr(disk, "pwritev", written)
    monkeypatch.setattr(disk, "fdatasync", synced)

    await world.copied()

    world.assert_equal()
    assert step <= longest < 2 * step


async def test_a_throttle_lets_everything_through_at_no_rate_and_none_ahead_of_others() -> None:
    clock = Clock()
    free, tight = Throttle(0, clock.now_s, clock.sleep), Throttle(100, clock.now_s, clock.sleep)
    await free.take(1 << 40)
    assert clock.slept == 0

    await tight.take(10)
    await tight.take(50)
    await tight.take(1)

    assert clock.slept == pytest.approx(0.5)


async def test_at_most_a_window_of_chunks_is_on_its_way() -> None:
    world = World()

    await world.copied()

    assert 1 < world.n3.link.in_flight_most <= CopyLimits.window_chunks


async def test_progress_tells_how_far_a_copy_is() -> None:
    world = World()
    seen: list[tuple[str, NodeId | None, int, int]] = []

    def look(_node: NodeId, answer: bytes) -> bytes:
        [progress] = world.n3.transfers.progress()
        seen.append((progress.stage, progress.source, progress.done_bytes, progress.total_bytes))
        world.clock.now += 1
        return answer

    world.n3.link.on_chunk = look
    await world.copied()

    assert {(stage, source) for stage, source, _, _ in seen} == {("copying", N1)}
    done = [bytes_ for _, _, bytes_, _ in seen]
    assert done == sorted(done)
    [total] = {total for *_, total in seen}
    assert 0 < done[-1] < total


async def test_an_offer_brings_a_copy_and_one_that_comes_late_brings_none() -> None:
    world = World()
    world.n1.behind = [(GROUP, N3)]

    await world.n1.source.offer()
    await world.over()
    world.assert_equal()
    chunks = len(world.n3.link.chunks)

    world.n1.fill(3)
    for rest in (0.0, CopyLimits.rest_s):
        world.clock.now += rest
        await world.n1.source.offer()
        await world.over()
    assert len(world.n3.link.chunks) == chunks
    assert world.n1.source.serving() == []


async def test_a_replica_with_another_entry_before_the_copys_first_is_copied() -> None:
    world = World()
    world.n3.fill(ENTRIES + 20, term=2)

    await world.copied()

    world.assert_equal()


async def test_a_replica_that_a_leader_can_go_on_from_is_not_copied() -> None:
    world = World()
    world.n3.fill(ENTRIES - 10)

    await world.copied()

    assert world.n3.link.chunks == []
    assert world.n3.log.last_index == ENTRIES - 10
    assert world.n3.held == []


async def test_a_log_damaged_for_longer_than_repair_takes_is_copied() -> None:
    world = World()
    world.n3.fill(ENTRIES - 10)
    world.n3.log.quarantine(Index(35), Index(36), "test")
    world.n3.transfers.watch()
    await world.over()
    assert world.n3.log.quarantined

    world.clock.now += CopyLimits.damaged_patience_s
    world.n3.transfers.watch()
    await world.over()

    world.assert_equal()


async def test_damage_at_the_end_is_left_to_the_leader() -> None:
    world = World()
    world.n3.fill(ENTRIES - 10)
    world.n3.log.quarantine(Index(ENTRIES - 9), Index(ENTRIES), "test")
    for _ in range(2):
        world.n3.transfers.watch()
        world.clock.now += CopyLimits.damaged_patience_s
    await world.over()

    assert world.n3.link.chunks == []


async def test_a_peer_that_falls_silent_pins_nothing_for_long() -> None:
    world = World()
    request = rpc.encode(transfer_rpc.TransferRequest(GROUP.pack()))
    await world.n3.link.request(N1, transfer_rpc.OPEN, request, 1)
    assert world.n1.source.serving() == [(GROUP, N3)]
    first = world.n1.log.first_index
    world.n1.trim(60, 61)
    assert world.n1.log.first_index == first

    world.clock.now += CopyLimits.silence_s
    world.n1.source.sweep()

    assert world.n1.source.serving() == []
    world.n1.trim(60)
    assert world.n1.log.first_index > first


async def test_only_so_many_copies_are_served_and_only_to_who_asked() -> None:
    world = World()
    request = rpc.encode(transfer_rpc.TransferRequest(GROUP.pack()))
    ask = world.n1.link.handlers
    answers = [await ask[transfer_rpc.OPEN](N3, request) for _ in range(SESSIONS_MAX)]
    with pytest.raises(Busy):
        await ask[transfer_rpc.OPEN](N3, request)
    session, manifest = transfer_rpc.decode_manifest(answers[0], GROUP)
    part = manifest.parts()[0]
    chunk = transfer_rpc.ChunkRequest(session, part.kind, part.first, 0, 10).pack()
    assert await ask[transfer_rpc.READ](N3, chunk)

    with pytest.raises(NotFound):
        await ask[transfer_rpc.READ](N2, chunk)
    with pytest.raises(BadRequest):
        await ask[transfer_rpc.READ](N3, chunk[:-1])
    beyond = transfer_rpc.ChunkRequest(session, part.kind, part.first, 1 << 40, 10).pack()
    with pytest.raises(Exception, match="no entry"):
        await ask[transfer_rpc.READ](N3, beyond)
    await ask[transfer_rpc.CLOSE](N3, transfer_rpc.encode_session(session))
    with pytest.raises(NotFound):
        await ask[transfer_rpc.READ](N3, chunk)
    assert await ask[transfer_rpc.OPEN](N3, request)


async def test_those_who_ask_at_once_are_not_served_beyond_the_bound() -> None:
    """Each copy reads the disk, and holds the beginning of a log."""
    world = World()
    request = rpc.encode(transfer_rpc.TransferRequest(GROUP.pack()))
    opened = world.n1.link.handlers[transfer_rpc.OPEN]

    asked = (opened(N3, request) for _ in range(3 * SESSIONS_MAX))
    answers = await asyncio.gather(*asked, return_exceptions=True)

    assert sum(isinstance(answer, Busy) for answer in answers) == 2 * SESSIONS_MAX
    assert len(world.n1.source.serving()) == SESSIONS_MAX


async def test_what_does_not_run_here_is_not_served() -> None:
    world = World()
    world.n1.committed = None
    request = rpc.encode(transfer_rpc.TransferRequest(GROUP.pack()))

    with pytest.raises(NotFound):
        await world.n1.link.handlers[transfer_rpc.OPEN](N3, request)
    with pytest.raises(NotFound):
        other = rpc.encode(transfer_rpc.TransferRequest(PartitionId(TopicId(9, 9), 0).pack()))
        await world.n3.link.handlers[transfer_rpc.OFFER](N1, other)


async def test_a_copy_that_nobody_goes_on_with_is_deleted_in_the_end() -> None:
    world = World()
    world.n3.link.on_chunk = lambda _node, _answer: None
    await world.n3.transfers.start()
    await world.copied()
    handle = world.n3.disk.open(
        f"/data/groups/{GROUP}/{1:016x}.segment.{7:016x}.incoming", write=True, create=True
    )
    world.n3.disk.close(handle)

    world.clock.now += CopyLimits.leftovers_s
    world.n3.transfers.watch()
    await world.n3.transfers.stop()

    assert not [path for path in world.n3.disk.paths() if path.endswith(".incoming")]
    assert world.n3.log.last_index == 0


async def test_a_topic_that_is_deleted_between_two_tries_of_an_installation_ends_nothing() -> None:
    """A checkpoint deletes trimmed files of the log, so that the copy has to wait."""
    world, deleted = World(), 0
    log, store = world.n3.log, world.n3.store
    world.n3.fill(60, term=1)
    log.save_snapshot(Index(50), STATE).run()
    log.trim_to(Index(41))
    for _ in range(2):
        checkpoint(store)
        world.n3.fill(1, term=1)
    dropping = store.take_checkpoint()
    assert dropping is not None
    assert dropping.dropped_segments
    for node in (world.n1, world.n2):
        node.fill()
        node.trim(100, 110)

    async def delete(_seconds: float) -> None:
        nonlocal deleted
        deleted += world.n3.held != []
        if deleted == 1:
            store.remove_log(GROUP)
            flush(store)
            dropping.run()
            store.complete_checkpoint(dropping)
            flush(store)

    world.n3.release = lambda _partition_id: world.n3.held.append("release")  # type: ignore[method-assign]
    world.n3.transfers._parts = replace(world.n3.transfers._parts, sleep=delete)

    await world.copied()

    assert deleted == 1
    assert store.failed is None
    assert not store.holds(log)
    assert [what.split()[0] for what in world.n3.held] == ["hold", "release"]


async def test_a_topic_that_is_deleted_while_it_is_copied_leaves_no_files() -> None:
    world = World()
    log, store = world.n3.log, world.n3.store

    def delete(_node: NodeId, answer: bytes) -> bytes | None:
        if len(world.n3.link.chunks) != 3:
            return answer
        store.remove_log(GROUP)
        store.create_log(GROUP)  # as for a replica that has moved away
        flush(store)
        return None

    world.n3.link.on_chunk = delete

    await world.copied()

    assert not store.holds(log)
    assert world.n3.log.last_index == 0
    assert not [path for path in world.n3.disk.paths() if path.endswith(".incoming")]
    assert world.n3.held == []
