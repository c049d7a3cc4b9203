"""One replica copied from another node, chunk by chunk, until it can be installed.

A window of chunks is on its way at a time; each has its checksum, each segment is verified entry by
entry when it is there. What was copied stays over a change of the source, and over a restart.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from goqueue.background import ended
from goqueue.wire.errors import GoQueueError, Timeout
from goqueue.wire.types import NodeId, PartitionId
from log.copy.manifest import Manifest, Part, SegmentParts
from log.copy.staging import Staging
from log.errors import Damaged
from log.wal.install import Install
from node.metrics import Metrics
from node.peers.link import PeerLink
from node.rpc import partitions as rpc
from node.rpc import transfer as transfer_rpc
from node.rpc.transfer import ChunkDamaged, ChunkRequest
from node.runtime.logger import get_logger
from node.runtime.throttle import Throttle
from node.storage.copying.limits import CopyLimits
from raft.link import RemoteError

CHUNK_TRIES = 3
FAILURES_MAX = 20
"""Sources that failed in a row, none of which brought a byte: then it is given up."""

T = TypeVar("T")

_log = get_logger("transfer")


class TransferFailed(GoQueueError):
    """No source could be copied; what was copied so far stays for the next attempt."""

    code = "transfer_failed"


class NoRoom(GoQueueError):
    """A copy would not leave this node the room that publishes need."""

    code = "no_room"


@dataclass(slots=True)
class Progress:
    """How far a copy is. `done_bytes` are in place, `reused_bytes` of them from an attempt before;
    `total_bytes` is 0 until a source has answered."""

    partition_id: PartitionId
    began_s: float
    source: NodeId | None = None
    total_bytes: int = 0
    done_bytes: int = 0
    reused_bytes: int = 0
    stage: str = "asking"
    """asking, copying, installing."""


@dataclass(frozen=True, slots=True)
class PullParts:
    """What all copies of a node share."""

    link: PeerLink
    workers: Executor
    """One thread: it reads and writes files, and verifies them."""
    throttle: Throttle
    metrics: Metrics
    now_s: Callable[[], float]
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    bound_bytes_s: Callable[[PartitionId], int] = lambda _partition_id: 0
    """How fast a group may be copied; 0: as fast as all copies together."""
    room_bytes: Callable[[], int] = lambda: 1 << 62
    """What may be written without publishes being refused for it."""
    limits: CopyLimits = field(default_factory=CopyLimits)


@dataclass(slots=True)
class Copied:
    """A copy that is there in full, and where it came from."""

    install: Install
    source: NodeId
    session: int


@dataclass(slots=True)
class Pull:
    """One attempt to copy a group's replica. `sources` tells who may have one, best first;
    `is_needed` whether a manifest has anything that this node's log lacks."""

    partition_id: PartitionId
    staging: Staging
    parts: PullParts
    sources: Callable[[], Sequence[NodeId]]
    is_needed: Callable[[Manifest], bool]
    progress: Progress
    others_bytes: Callable[[], int] = lambda: 0
    """What other copies have yet to write."""
    _distrusted: set[NodeId] = field(default_factory=set)
    _throttle: Throttle = field(init=False)

    def __post_init__(self) -> None:
        self._throttle = Throttle(0, self.parts.now_s, self.parts.sleep)

    async def run(self) -> Copied | None:
        """The copy; None where there is nothing to copy. Raises TransferFailed, NoRoom, OSError."""
        limits = self.parts.limits
        pause_s = limits.pause_first_s
        failures = 0
        while failures < FAILURES_MAX:
            for source in self._ordered():
                before = self.progress.done_bytes
                try:
                    return await self._copy(source)
                except NoRoom:
                    raise
                except (GoQueueError, RemoteError) as error:
                    self._failed(source, error)
                if self.progress.done_bytes > before:
                    pause_s, failures = limits.pause_first_s, 0
                failures += 1
            failures += 1
            await self.parts.sleep(pause_s)
            pause_s = min(2 * pause_s, limits.pause_max_s)
        raise TransferFailed(f"group {self.partition_id}: no other node's replica could be copied")

    async def close(self, copied: Copied) -> None:
        """Tells the source that all is there."""
        await self._close(copied.source, copied.session)

    # -- private

    def _ordered(self) -> list[NodeId]:
        """Who gave damaged bytes comes last."""
        return sorted(self.sources(), key=lambda node: node in self._distrusted)

    def _failed(self, source: NodeId, error: Exception) -> None:
        self.progress.stage = "asking"
        _log.warning(
            "copy_interrupted",
            group=str(self.partition_id),
            source=source,
            done_bytes=self.progress.done_bytes,
            total_bytes=self.progress.total_bytes,
            problem=str(error),
        )

    async def _copy(self, source: NodeId) -> Copied | None:
        request = rpc.encode(transfer_rpc.TransferRequest(self.partition_id.pack()))
        timeout_s = self.parts.limits.open_timeout_s
        answer = await self._ask(source, transfer_rpc.OPEN, request, timeout_s)
        session, manifest = transfer_rpc.decode_manifest(answer, self.partition_id)
        if not self.is_needed(manifest):
            await self._close(source, session)
            return None
        progress = self.progress
        progress.source, progress.total_bytes = source, manifest.size_bytes
        progress.stage, progress.done_bytes = "copying", 0
        await self._off_loop(lambda: self.staging.open(manifest))
        await self._check_room(source, session, manifest)
        for segment in manifest.segments:
            await self._copy_segment(source, session, segment)
        if manifest.snapshot_index:
            await self._copy_part(source, session, manifest.state_part())
            await self._checked(source, lambda: self.staging.check_state(manifest))
        install = await self._off_loop(lambda: self.staging.finish(manifest))
        return Copied(install, source, session)

    async def _check_room(self, source: NodeId, session: int, manifest: Manifest) -> None:
        parts = list(manifest.parts())
        held = await self._off_loop(lambda: sum(map(self.staging.held, parts)))
        missing = manifest.size_bytes - held
        room = self.parts.room_bytes() - self.others_bytes()
        if missing > room:
            await self._close(source, session)
            raise NoRoom(f"group {self.partition_id}: {missing} bytes, and room for {max(0, room)}")

    async def _take(self, length: int) -> None:
        """Return when these bytes may be asked for."""
        self._throttle.bytes_per_s = self.parts.bound_bytes_s(self.partition_id)
        await self._throttle.take(length)
        await self.parts.throttle.take(length)

    async def _copy_segment(self, source: NodeId, session: int, segment: SegmentParts) -> None:
        """What an earlier attempt left may be torn: then it is copied once more, from the start."""
        held = 0
        before = self.progress.done_bytes
        for part in segment.parts():
            held += await self._copy_part(source, session, part)
        if held:
            try:
                await self._off_loop(lambda: self.staging.check_segment(segment))
            except Damaged as error:
                _log.info("copied_file_torn", group=str(self.partition_id), problem=str(error))
                self.progress.done_bytes = before
                self.progress.reused_bytes -= held
                await self._copy_segment(source, session, segment)
            return
        await self._checked(source, lambda: self.staging.check_segment(segment))

    async def _checked(self, source: NodeId, check: Callable[[], None]) -> None:
        """What came whole and is damaged was damaged there."""
        try:
            await self._off_loop(check)
        except Damaged:
            self._distrusted.add(source)
            raise

    async def _copy_part(self, source: NodeId, session: int, part: Part) -> int:
        """Copies what is missing of a file, in order; the bytes that were there before."""
        held = await self._off_loop(lambda: self.staging.held(part))
        self.progress.done_bytes += held
        self.progress.reused_bytes += held
        following = held
        limits = self.parts.limits
        under_way: deque[tuple[int, asyncio.Task[bytes]]] = deque()
        try:
            while following < part.size_bytes or under_way:
                while following < part.size_bytes and len(under_way) < limits.window_chunks:
                    length = min(limits.chunk_bytes, part.size_bytes - following)
                    await self._take(length)
                    request = ChunkRequest(session, part.kind, part.first, following, length)
                    task = asyncio.ensure_future(self._chunk(source, request))
                    under_way.append((following, task))
                    following += length
                offset, task = under_way[0]
                data = await task
                under_way.popleft()
                await self._write(part, offset, data)
        finally:
            await ended([task for _offset, task in under_way])
        return held

    async def _write(self, part: Part, offset: int, data: bytes) -> None:
        step = self.parts.limits.sync_bytes
        sync = offset // step != (offset + len(data)) // step
        await self._off_loop(lambda: self.staging.write(part, offset, data, sync=sync))
        self.progress.done_bytes += len(data)
        self.parts.metrics.storage.transferred_bytes.labels("received").inc(len(data))

    async def _chunk(self, source: NodeId, request: ChunkRequest) -> bytes:
        """A chunk as it was sent, asked for again where it did not arrive so."""
        payload, timeout_s = request.pack(), self.parts.limits.chunk_timeout_s
        for last in (False,) * (CHUNK_TRIES - 1) + (True,):
            try:
                answer = await self._ask(source, transfer_rpc.READ, payload, timeout_s)
            except Timeout:
                if last:
                    raise
                continue
            data = transfer_rpc.decode_chunk(payload, answer, request.length)
            if data is not None:
                return data
            self.parts.metrics.storage.damaged_chunks.inc()
        self._distrusted.add(source)
        raise ChunkDamaged(f"a chunk from {source} was damaged {CHUNK_TRIES} times")

    async def _close(self, source: NodeId, session: int) -> None:
        payload = transfer_rpc.encode_session(session)
        with suppress(GoQueueError, RemoteError):  # the source ends a silent session by itself
            timeout_s = self.parts.limits.close_timeout_s
            await self._ask(source, transfer_rpc.CLOSE, payload, timeout_s)

    async def _ask(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        return await self.parts.link.request(node, method, payload, timeout_s)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.parts.workers, work)
