"""Damaged entries made good from other replicas: any that has the same entry, leader or not.

A damaged replica keeps its place: it serves and acknowledges what it can read, but neither votes
nor leads, and stops where it would have to apply what it can't read. Each unreadable entry is
asked of the peers; what comes must agree in index, term and checksum with what was there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from goqueue.wire.errors import BadRequest, GoQueueError, NotFound
from goqueue.wire.types import GROUP_ID_BYTES, GroupId, Index, NodeId
from log.entry import Entry, decode_frame
from log.errors import Damaged, LogError
from log.group import GroupLog
from log.store import Store
from node import rpc
from node.flusher import Flusher
from node.peer_link import PeerLink
from raft.link import RemoteError

INTERVAL_S = 2.0
ASK_TIMEOUT_S = 5.0
_INDEX_BYTES = 8

_log = structlog.get_logger("healer")


class Healer:
    """A service. `on_healed` is called with each group whose log is whole again."""

    def __init__(
        self,
        store: Store,
        flusher: Flusher,
        link: PeerLink,
        *,
        on_healed: Callable[[GroupId], None],
    ) -> None:
        self._store = store
        self._flusher = flusher
        self._link = link
        self._on_healed = on_healed
        self._task: asyncio.Task[None] | None = None
        link.handle(rpc.ENTRY, self._serve)

    async def start(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="healer")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def heal(self) -> None:
        """One round over all damaged logs."""
        for group in self._store.groups():
            log = self._store.group(group)
            if log.damaged is not None and await self._heal(log):
                _log.info("entries_repaired", group=str(group))
                self._on_healed(group)

    # private

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                await self.heal()
            except Exception:  # noqa: BLE001 - the task's outermost loop
                _log.exception("not_healed")

    async def _heal(self, log: GroupLog) -> bool:
        """Whether the whole damaged range can be read now. A log that was cut at the damage is
        not: only a leader can say what followed."""
        assert log.damaged is not None
        first, last = log.damaged
        if last > log.last_index:
            return False
        index = Index(max(first, log.first_index))
        while log.damaged is not None and index <= last and log.is_cold(index):
            following = await self._after(log, index)
            if following is None:
                entry = await self._ask(log, index)
                if entry is None or not log.repair(entry):
                    return False
                following = await self._after(log, index)
                if following is None:
                    return False
            index = following
        if log.damaged == (first, last):
            log.lift_quarantine()
        return log.damaged is None

    async def _after(self, log: GroupLog, index: Index) -> Index | None:
        """The index after what can be read from here at once; None where this one can't be."""
        try:
            entries = await self._flusher.keep(lambda: log.cold_entries(index))
        except (Damaged, OSError):
            return None
        return Index(entries[-1].index + 1)

    async def _ask(self, log: GroupLog, index: Index) -> Entry | None:
        """The very entry that was there, from any peer that has it."""
        wanted = log.identity(index)
        payload = log.id.pack() + index.to_bytes(_INDEX_BYTES, "little")
        for node in sorted(self._link.connected()):
            try:
                frame = await self._link.request(node, rpc.ENTRY, payload, ASK_TIMEOUT_S)
                entry = decode_frame(frame, name=f"entry {index} from {node}")
            except (GoQueueError, RemoteError):
                continue
            if entry.index == index and (entry.term, entry.crc) == wanted:
                return entry
        return None

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        if len(payload) != GROUP_ID_BYTES + _INDEX_BYTES:
            raise BadRequest("a peer's request names no entry")
        group = GroupId.unpack(payload)
        index = Index(int.from_bytes(payload[GROUP_ID_BYTES:], "little"))
        try:
            return bytes(self._store.group(group).entry(index).frame)
        except (KeyError, LogError):
            raise NotFound(f"no entry {index} of group {group} here") from None
