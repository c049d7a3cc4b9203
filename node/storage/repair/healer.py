"""Damaged entries made good from other replicas: any that has the same entry, leader or not.

A damaged replica keeps its place: it serves and acknowledges what it can read, but neither votes
nor leads, and stops where it would have to apply what it can't read. Unreadable entries are asked
of the peers, many at a time; what comes must agree in index, term and checksum with what was there.
Where nobody can say what was there, the whole replica is copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from goqueue.wire.errors import BadRequest, GoQueueError, NotFound
from goqueue.wire.types import PARTITION_ID_BYTES, Index, NodeId, PartitionId
from log.entry import Entry, decode_frames
from log.errors import Damaged, LogError
from log.partition.log import PartitionLog
from log.store.directory import Store
from log.wal.install import UNKNOWN_END
from node.peers.link import PeerLink
from node.rpc import partitions as rpc
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.storage.flusher import Flusher
from raft.link import RemoteError

INTERVAL_S = 2.0
ASK_TIMEOUT_S = 5.0
RUN_BYTES_MAX = 1 << 20
"""Entries that one answer brings, at least one."""
RUN_ENTRIES_MAX = 4096
MENDS_MAX = 3
"""So often entries are put in a place where they can't be read; then the replica is copied."""
_RANGE = struct.Struct("<QQ")

_log = get_logger("healer")


class Healer:
    """A service. `on_damaged` is called with each group whose log was found damaged, `on_healed`
    with each whose log is whole again, `on_hopeless` with one that single entries can't heal."""

    def __init__(
        self,
        store: Store,
        flusher: Flusher,
        link: PeerLink,
        *,
        on_damaged: Callable[[PartitionId], None],
        on_healed: Callable[[PartitionId], None],
        on_hopeless: Callable[[PartitionId], None],
    ) -> None:
        self._store = store
        self._flusher = flusher
        self._link = link
        self._on_damaged = on_damaged
        self._on_healed = on_healed
        self._on_hopeless = on_hopeless
        self._in_vain: dict[PartitionId, int] = {}
        """How often entries that were put in place could not be read."""
        self._rounds = Periodic("healer", self.heal, INTERVAL_S, _log, "not_healed")
        link.handle(rpc.ENTRY, self._serve)

    async def start(self) -> None:
        self._store.on_damaged = lambda _partition_id: self._rounds.wake()
        await self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()

    async def heal(self) -> None:
        """One round over all damaged logs."""
        for partition_id in sorted(self._store.damaged_ids):
            if partition_id not in self._store.damaged_ids:
                continue  # it was removed, or copied, while others were healed
            log = self._store.partition_log(partition_id)
            self._on_damaged(partition_id)
            try:
                is_whole = await self._heal(log)
            except (OSError, LogError):  # the others are healed all the same
                _log.exception("group_not_healed", group=str(partition_id))
                continue
            if is_whole:
                self._in_vain.pop(partition_id, None)
                _log.info("entries_repaired", group=str(partition_id))
                self._on_healed(partition_id)

    # private

    async def _heal(self, log: PartitionLog) -> bool:
        """Whether the whole damaged range can be read now. A log that was cut at the damage is
        not: only a leader can say what followed."""
        assert log.damaged is not None
        first, last = log.damaged
        if last == UNKNOWN_END or first < log.first_index:
            self._on_hopeless(log.id)  # no entry tells what is missing: a state, or the log's end
            return False
        index: Index | None = first
        while index is not None and index <= min(last, log.spilled_index):
            if not self._store.holds(log):
                return False
            index = await self._after(log, index) or await self._mend(log, index, last)
        if index is None or last > log.last_index:
            return False
        if log.damaged == (first, last):
            log.lift_quarantine()
        return log.damaged is None

    async def _after(self, log: PartitionLog, index: Index) -> Index | None:
        """The index after what can be read from here at once; None where this one can't be."""
        try:
            entries = await self._flusher.keep(lambda: log.cold_entries(index))
        except (Damaged, OSError):
            return None
        return Index(entries[-1].index + 1)

    async def _mend(self, log: PartitionLog, index: Index, last: Index) -> Index | None:
        """Puts entries from here on in place; the index after them, None where nobody has them."""
        if log.identity(index) is None:
            self._on_hopeless(log.id)
            return None
        if log.id in self._in_vain:
            last = log.spilled_index  # the place that can't be read may lie behind
        run = self._held(log, index, last) or await self._ask(log, index, last)
        if not run:
            return None
        try:
            number = await self._flusher.keep(lambda: log.disk_segments.repair(run))
        except Damaged:
            number = 0
        except OSError as error:
            _log.warning("entries_not_put_in_place", group=str(log.id), problem=str(error))
            self._mended_in_vain(log.id)
            return None
        if not number:
            self._on_hopeless(log.id)  # the index that tells where they belong is damaged, too
            return None
        following = await self._after(log, index)
        if following is None:
            self._mended_in_vain(log.id)
        return following and min(following, Index(index + number))

    def _mended_in_vain(self, partition_id: PartitionId) -> None:
        """What was written can't be read: the medium has lost that place."""
        self._in_vain[partition_id] = self._in_vain.get(partition_id, 0) + 1
        if self._in_vain[partition_id] >= MENDS_MAX:
            self._on_hopeless(partition_id)  # a copy is written elsewhere

    def _held(self, log: PartitionLog, index: Index, last: Index) -> list[Entry]:
        """The entries, where they are still in memory."""
        if log.is_cold(index):
            return []
        return log.entries(index, max_bytes=RUN_BYTES_MAX, max_count=last - index + 1)

    async def _ask(self, log: PartitionLog, index: Index, last: Index) -> Sequence[Entry]:
        """The very entries that were there, from any peer that has them."""
        payload = log.id.pack() + _RANGE.pack(index, last)
        disagree = False
        for node in sorted(self._link.connected()):
            try:
                frames = await self._link.request(node, rpc.ENTRY, payload, ASK_TIMEOUT_S)
                entries = list(decode_frames(frames, name=f"entries from {node}"))
            except (GoQueueError, RemoteError):
                continue
            if run := _agreeing(log, index, entries):
                return run
            disagree = True
        if disagree:
            self._on_hopeless(log.id)  # the index is damaged, or the entry was never committed
        return ()

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        """Frames of entries that can be read here, from the first one wanted on."""
        if len(payload) != PARTITION_ID_BYTES + _RANGE.size:
            raise BadRequest("a peer's request names no entries")
        partition_id = PartitionId.unpack(payload)
        first, last = _RANGE.unpack_from(payload, PARTITION_ID_BYTES)
        count = min(last - first + 1, RUN_ENTRIES_MAX)
        try:
            log = self._store.partition_log(partition_id)
            if log.untrusted:
                raise NotFound(f"group {partition_id} is not to be believed here")
            entries = log.entries(Index(first), max_bytes=RUN_BYTES_MAX, max_count=count)
        except (KeyError, LogError):
            raise NotFound(f"no entry {first} of group {partition_id} here") from None
        return b"".join([entry.frame for entry in entries])


def _agreeing(log: PartitionLog, index: Index, entries: Sequence[Entry]) -> list[Entry]:
    """Those in a row from this index on that are what the log's term index names."""
    run: list[Entry] = []
    for expected, entry in enumerate(entries, index):
        if entry.index != expected or (entry.term, entry.crc) != log.identity(Index(expected)):
            break
        run.append(entry)
    return run
