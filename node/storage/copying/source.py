"""Serving copies of the replicas here: to whoever needs what the others' logs no longer have.

Any replica can serve, as only what is committed is copied. While a copy is being made, and a little
longer, the log keeps the entries it begins with, so that it can be gone on with behind the copy. A
peer that falls silent pins nothing for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from goqueue.wire.errors import Busy, GoQueueError, NotFound
from goqueue.wire.types import Index, NodeId, PartitionId
from log.copy.export import Export
from log.copy.manifest import FileKind, Manifest
from log.errors import Damaged
from node.rpc import partitions as rpc
from node.rpc import transfer as transfer_rpc
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.storage.copying.limits import CopyLimits
from node.storage.copying.pace import CopyPace
from node.storage.parts import StorageParts
from raft.host import RaftHost
from raft.link import RemoteError

SESSIONS_MAX = 4
"""Copies served at a time; one more is told to come again."""
LINGERING_MAX = 32

T = TypeVar("T")

_log = get_logger("transfer")


@dataclass(slots=True)
class _Session:
    export: Export
    peer: NodeId
    used_s: float
    total_bytes: int = 0
    sent_bytes: int = 0
    ended_s: float | None = None


@dataclass(frozen=True, slots=True)
class CopiedPartitions:
    """What is asked of the groups of which copies are served."""

    committed: Callable[[PartitionId], Index | None]
    """The newest entry that is known here to be committed; None where no replica runs."""
    behind: Callable[[], Iterable[tuple[PartitionId, NodeId]]]
    """The peers that a leader here can't help."""
    prepare: Callable[[PartitionId], Awaitable[object]] | None = None
    """May store a newer state, so that whoever copies it has little to apply."""
    renew: Callable[[PartitionId], Awaitable[bool]] | None = None
    """Stores the state again where that on the disk can't be read; whether it could."""


class TransferSource:
    """A service. File work is done by `workers`, which must be one thread."""

    def __init__(
        self,
        parts: StorageParts,
        partitions: CopiedPartitions,
        *,
        workers: Executor,
        now_s: Callable[[], float],
        random_u64: Callable[[], int],
        pace: CopyPace | None = None,
        limits: CopyLimits = CopyLimits(),  # noqa: B008 - it is frozen
    ) -> None:
        self._store = parts.store
        self._link = parts.link
        self._partitions = partitions
        self._metrics = parts.metrics
        self._now_s = now_s
        self._workers = workers
        self._random_u64 = random_u64
        self._pace = pace
        self._limits = limits
        self._sessions: dict[int, _Session] = {}
        self._opening = 0
        """Copies that are about to be served."""
        self._rounds = Periodic(
            "transfer-source", self._round, limits.offer_s, _log, "copies_not_offered"
        )
        parts.link.handle(transfer_rpc.OPEN, self._open)
        parts.link.handle(transfer_rpc.READ, self._read)
        parts.link.handle(transfer_rpc.CLOSE, self._close)

    async def start(self) -> None:
        await self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()
        for number in list(self._sessions):
            self._forget(number)

    def serving(self) -> list[tuple[PartitionId, NodeId]]:
        """The copies that are being made of replicas here."""
        return [
            (session.export.partition_id, session.peer)
            for session in self._sessions.values()
            if session.ended_s is None
        ]

    def left_bytes(self, partition_id: PartitionId, peer: NodeId) -> int | None:
        """What a node has yet to copy of a replica here; None where it copies none."""
        left = [
            max(0, session.total_bytes - session.sent_bytes)
            for session in self._sessions.values()
            if session.peer == peer
            and session.export.partition_id == partition_id
            and session.ended_s is None
        ]
        return min(left, default=None)

    async def offer(self) -> None:
        """One round: tells replicas that this node's groups can't bring up to date any more."""
        for partition_id, node in self._partitions.behind():
            await self._tell(node, partition_id)

    def sweep(self) -> None:
        """Ends sessions that fell silent, and pins that have lingered long enough."""
        now, limits = self._now_s(), self._limits
        for number, session in list(self._sessions.items()):
            over = session.ended_s is not None and now - session.ended_s >= limits.linger_s
            if over or (session.ended_s is None and now - session.used_s >= limits.silence_s):
                self._forget(number)

    # -- requests

    async def _open(self, peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, transfer_rpc.TransferRequest)
        partition_id = PartitionId.unpack(request.partition)
        self.sweep()
        opening = self._opening
        if len(self.serving()) + opening >= SESSIONS_MAX or (
            len(self._sessions) + opening >= LINGERING_MAX
        ):
            raise Busy("enough copies are being served")
        self._opening += 1
        try:
            return await self._begin(peer, partition_id)
        finally:
            self._opening -= 1

    async def _begin(self, peer: NodeId, partition_id: PartitionId) -> bytes:
        """Who comes while this waits counts it already."""
        if self._partitions.prepare is not None:
            await self._partitions.prepare(partition_id)
        try:
            export, manifest = await self._look(partition_id)
        except Damaged as error:
            # Without a state that can be read nobody can copy the group, before a scrub finds that.
            if self._partitions.renew is None or not await self._partitions.renew(partition_id):
                raise
            _log.warning("state_stored_again", group=str(partition_id), problem=str(error))
            export, manifest = await self._look(partition_id)
        number = self._random_u64() or 1
        self._sessions[number] = _Session(export, peer, self._now_s(), manifest.size_bytes)
        _log.info("copy_served", group=str(partition_id), to=peer, bytes=manifest.size_bytes)
        return transfer_rpc.encode_manifest(number, manifest)

    async def _read(self, peer: NodeId, payload: bytes) -> bytes:
        request = transfer_rpc.decode_chunk_request(payload)
        session = self._session(request.session, peer)
        session.used_s = self._now_s()
        if self._pace is not None:
            await self._pace.take(request.length)
        export, kind = session.export, FileKind(request.kind)

        def read() -> bytes:
            data = export.read(kind, request.first, request.offset, request.length)
            return transfer_rpc.encode_chunk(payload, data)

        answer = await self._off_loop(read)
        session.sent_bytes += len(answer)
        self._metrics.storage.transferred_bytes.labels("sent").inc(len(answer))
        return answer

    async def _close(self, peer: NodeId, payload: bytes) -> bytes:
        """The copy was made: its files are closed, the log's beginning stays for a while."""
        session = self._session(transfer_rpc.decode_session(payload), peer)
        session.ended_s = self._now_s()
        self._workers.submit(session.export.close)
        return b""

    # -- private

    async def _round(self) -> None:
        self.sweep()
        await self.offer()

    async def _tell(self, node: NodeId, partition_id: PartitionId) -> None:
        payload = rpc.encode(transfer_rpc.TransferRequest(partition_id.pack()))
        timeout_s = self._limits.offer_timeout_s
        try:
            await self._link.request(node, transfer_rpc.OFFER, payload, timeout_s)
        except (GoQueueError, RemoteError) as error:
            _log.debug("copy_not_offered", group=str(partition_id), to=node, problem=str(error))

    async def _look(self, partition_id: PartitionId) -> tuple[Export, Manifest]:
        export = self._export(partition_id)
        try:
            return export, await self._off_loop(export.open)
        except BaseException:
            self._release(export)
            raise

    def _export(self, partition_id: PartitionId) -> Export:
        committed = self._partitions.committed(partition_id)
        if committed is None:
            raise NotFound(f"no replica of {partition_id} runs here")
        return self._store.partition_log(partition_id).export(committed)

    def _session(self, number: int, peer: NodeId) -> _Session:
        session = self._sessions.get(number)
        if session is None or session.peer != peer or session.ended_s is not None:
            raise NotFound("this copy is no longer served", session=number)
        return session

    def _forget(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is not None:
            self._release(session.export)

    def _release(self, export: Export) -> None:
        self._workers.submit(export.close)
        if self._store.has_log(export.partition_id):
            self._store.partition_log(export.partition_id).release(export)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)


def committed_here(raft: RaftHost, partition_id: PartitionId) -> Index | None:
    """The newest entry that a running replica knows to be committed; None where none runs."""
    found = next((replica for replica in raft.raft_groups() if replica.id == partition_id), None)
    return None if found is None or found.failed is not None else found.commit_index


def behind_here(raft: RaftHost) -> list[tuple[PartitionId, NodeId]]:
    """Of the groups led here, the replicas that need entries which the log no longer has. A group
    that has one does not rest."""
    return [
        (raft_group.id, peer.node)
        for raft_group in raft.leading()
        for peer in raft_group.peers.values()
        if peer.behind and peer.connected
    ]
