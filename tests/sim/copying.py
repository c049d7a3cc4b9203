"""Whole replicas copied between simulated nodes: the production files of a copy, its checks, its
installation; chunk by chunk, so that everything may happen in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from goqueue.wire.types import CLUSTER_GROUP, GroupId, Index, NodeId
from log.errors import Damaged, LogError
from log.export import Export
from log.group import GroupLog
from log.install import InstallRefused
from log.manifest import FileKind, Manifest, Part
from log.staging import Staging
from node.transfer import _lacks
from node.transfer_rpc import ChunkRequest, decode_chunk, encode_chunk
from tests.sim import rpc

if TYPE_CHECKING:
    from tests.sim.process import Process

OFFER_S = 0.3
CHUNK_BYTES = 2048
ANSWER_S = 0.5
INSTALL_TRIES = 40
PAUSE_S = 0.05
SESSION_S = 4.0


class Copying:
    """One node's part: what it offers and serves as a source, and what it copies."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._exports: dict[int, Export] = {}
        self._copies: dict[GroupId, Copy] = {}
        self._sessions = 0

    def start(self) -> None:
        self.process.time.call_later(OFFER_S, self._offer)

    def _offer(self) -> None:
        """Followers that need entries which the log no longer has are told to copy."""
        for raft in self.process.rafts():
            for peer in raft.peers.values() if raft.is_leader else ():
                if peer.behind and peer.connected:
                    self._tell(peer.node, raft.id)
        self.process.time.call_later(OFFER_S, self._offer)

    def _tell(self, node: NodeId, group: GroupId) -> None:
        source = self.process.node

        def serve(process: Process, reply: rpc.Reply) -> None:
            if process.copying is not None:
                process.copying.want(group, source)
            reply(True)

        rpc.call(self.process, node, serve, _nothing, ANSWER_S)

    def want(self, group: GroupId, source: NodeId) -> None:
        """Have the group's log replaced by a copy, if it needs one."""
        if group in self.process.store.groups() and group not in self._copies:
            log = self.process.store.group(group)
            self._copies[group] = Copy(self, log, source, lambda: self._copies.pop(group, None))

    # as a source

    def open(self, group: GroupId, reply: rpc.Reply) -> None:
        """What there is to copy, and the session to read it in; None where nothing is."""
        raft = self.process.raft(group)
        if raft is None:
            reply(None)
            return
        log = self.process.store.group(group)
        try:
            export = log.export(raft.commit_index)
            manifest = export.open()
        except LogError as error:
            work = raft.take_snapshot(again=True) if isinstance(error, Damaged) else None
            if work is not None:
                self.process.storage.keep(work.run, lambda: None)
            reply(None)
            return
        self._sessions += 1
        self._exports[self._sessions] = export
        self.process.time.call_later(SESSION_S, self._close, self._sessions)
        reply((self._sessions, manifest))

    def read(self, request: ChunkRequest, reply: rpc.Reply) -> None:
        """A chunk with its checksum; None where the session is over, or the file can't be read."""
        export = self._exports.get(request.session)
        if export is None:
            reply(None)
            return
        try:
            data = export.read(
                FileKind(request.kind), request.first, request.offset, request.length
            )
        except LogError:
            reply(None)
        else:
            reply(encode_chunk(request.pack(), data))

    def _close(self, session: int) -> None:
        export = self._exports.pop(session)
        export.close()
        if export.group in self.process.store.groups():
            self.process.store.group(export.group).release(export)


class Copy:
    """One copy under way; `ended` is called once it is made or given up."""

    def __init__(
        self, copying: Copying, log: GroupLog, source: NodeId, ended: Callable[[], object]
    ) -> None:
        self._process = copying.process
        self._log = log
        self._source = source
        self._ended = ended
        self._staging: Staging
        self._session = 0
        self._manifest: Manifest
        self._reused = False
        self._parts: Iterator[Part] = iter(())
        self._tries = 0
        self._last = Index(0)

        def serve(process: Process, reply: rpc.Reply) -> None:
            assert process.copying is not None
            process.copying.open(log.id, reply)

        rpc.call(self._process, source, serve, self._opened, ANSWER_S)

    def _opened(self, answer: object) -> None:
        if not (
            isinstance(answer, tuple)
            and self._process.store.holds(self._log)
            and _lacks(self._log, answer[1])
        ):
            self._ended()
            return
        self._session, self._manifest = answer
        world = self._process.world
        store = self._process.store
        staging = store.staging(self._log.id, world.rng("copies").getrandbits(63) | 1)
        staging.__class__ = world.mutant.staging
        self._staging = staging
        self._parts = iter(self._manifest.parts())
        self._with_files(self._begin)

    def _begin(self) -> None:
        self._staging.open(self._manifest)
        self._next_part()

    def _with_files(self, work: Callable[[], None]) -> None:
        """It is given up where the disk is full, or the group is gone, with its directory."""
        try:
            work()
        except OSError:
            self._ended()

    def _next_part(self) -> None:
        part = next(self._parts, None)
        if part is None:
            self._check()
        else:
            held = self._staging.held(part)
            self._reused = self._reused or held > 0
            self._next_chunk(part, held)

    def _next_chunk(self, part: Part, at: int) -> None:
        if at >= part.size_bytes:
            self._next_part()
            return
        length = min(CHUNK_BYTES, part.size_bytes - at)
        request = ChunkRequest(self._session, part.kind, part.first, at, length)

        def serve(process: Process, reply: rpc.Reply) -> None:
            assert process.copying is not None
            process.copying.read(request, reply)

        def read(answer: object) -> None:
            data = None
            if isinstance(answer, bytes):
                data = decode_chunk(request.pack(), answer, length)
            if data is None:
                self._ended()
            else:
                self._with_files(partial(self._write, part, at, data))

        rpc.call(self._process, self._source, serve, read, ANSWER_S)

    def _write(self, part: Part, at: int, data: bytes) -> None:
        self._staging.write(part, at, data)
        self._next_chunk(part, at + len(data))

    def _check(self) -> None:
        try:
            for segment in self._manifest.segments:
                self._staging.check_segment(segment)
            if self._manifest.snapshot_index:
                self._staging.check_state(self._manifest)
        except Damaged:
            self._ended()
            return
        self._install()

    def _install(self) -> None:
        """Where the log is still the one that needs the copy: stop its replica, replace it."""
        process, group = self._process, self._log.id
        if not process.store.holds(self._log):
            self._ended()
            return
        made = self._staging.finish(self._manifest)
        process.hold(group)
        try:
            self._log.install(made)
        except InstallRefused:
            process.release(group)
            self._tries += 1
            if self._tries < INSTALL_TRIES:
                process.time.call_later(PAUSE_S, self._with_files, self._install)
                return
            with suppress(OSError):
                self._staging.remove()
            self._ended()
            return
        self._last = made.last_index
        process.world.copies += 1
        process.world.cluster_copies += group == CLUSTER_GROUP
        process.world.loop.note("copied", process.node, group.partition, self._source)
        self._wait_for_files()

    def _wait_for_files(self) -> None:
        if self._log.spilled_index < self._manifest.last_index:
            self._process.time.call_later(PAUSE_S, self._wait_for_files)
        else:
            self._judge()
            self._process.release(self._log.id)
            self._ended()

    def _judge(self) -> None:
        """What was copied is there, unless it was removed meanwhile, or its disk fails it."""
        process = self._process
        if process.store.holds(self._log) and not process.world.machines.is_victim(process.node):
            process.world.checks.copied(process.node, self._log, self._last)


def _nothing(_answer: object) -> None:
    return None
