"""What must hold at every moment of a run, and at its end.

one value     an index, and so an offset, holds the same entry on every replica, for ever
one leader    per group and term
votes         of those only who have what they ever had on disk, and knew to be committed
truncated     is what differs, and never what was applied anywhere
same state    at the same index, on every replica
dense         offsets and log time rise without a gap or a step back
once          a producer's sequence is stored once; a request id, too, while it is remembered
acked         what was acked is applied at the offset told, and is there in the end
refused       what was refused for certain is not stored, and never will be
reads         answer what was stored; an end read under a read index is not older than asked
copies        hold all that they say, whole, and nothing but what committed
steps         change the replicas that they were decided for, and take no voter away where most of
              those that stay are not in sync, nor one that is before as many others are as wanted
alive         after the last fault: a leader, new acks, and equal replicas
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from dataclasses import dataclass, field

from coordinator.placement.steps import REMOVE, Seen, Step
from delivery.entries.records import decode_records
from goqueue.wire.types import Index, NodeId, Offset, PartitionId, Term
from log.entry import Entry, EntryKind
from log.errors import LogError
from log.partition.log import PartitionLog
from node.api.records import Slice
from tests.sim.loop import Loop
from tests.sim.requests import Identity

VIOLATIONS_MAX = 20


@dataclass
class _Ledger:
    """What is known of one group."""

    entries: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Index to (term, CRC) of what was applied somewhere."""
    last: int = 0
    end_offset: int = 0
    time_ms: int = 0
    batches: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Base offset to (checksum, count)."""
    stored: dict[Identity, int] = field(default_factory=dict)
    """Identity of a batch to its base offset."""
    leaders: dict[int, NodeId] = field(default_factory=dict)
    votes: dict[tuple[int, NodeId], set[NodeId]] = field(default_factory=dict)
    """By term and candidate, the candidate's own included."""
    reached: dict[NodeId, int] = field(default_factory=dict)
    """The last entry that each node had on its disk, and knew to be committed."""
    states: dict[int, int] = field(default_factory=dict)
    acked: dict[Identity, int] = field(default_factory=dict)
    acked_end: int = 0
    refused: set[Identity] = field(default_factory=set)
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Index to the end offset and the time after that entry."""
    gone: dict[Identity, int] = field(default_factory=dict)
    """Batches that a power cut took from everyone who held them, and their base offsets."""
    earlier: defaultdict[Identity, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Base offsets of requests that were forgotten, and stored again since."""

    def forget_after(self, index: int) -> None:
        """All later entries are as if they had never been."""
        for table in (self.entries, self.states, self.ends):
            for later in [at for at in table if at > index]:
                del table[later]
        self.last = max(self.ends, default=0)
        self.end_offset, self.time_ms = self.ends.get(self.last, (0, 0))
        self.gone.update({i: at for i, at in self.stored.items() if at >= self.end_offset})
        for known in (self.stored, self.acked):
            for identity in [one for one, at in known.items() if at >= self.end_offset]:
                del known[identity]
        for offset in [at for at in self.batches if at >= self.end_offset]:
            del self.batches[offset]
        self.acked_end = min(self.acked_end, self.end_offset)
        self.reached = {node: min(at, index) for node, at in self.reached.items()}


class Checks:
    """The judge of one run; `violations` in words, the first ones first."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._ledgers: defaultdict[PartitionId, _Ledger] = defaultdict(_Ledger)
        self.violations: list[str] = []
        self.acks = 0
        self.duplicates = 0
        self.reads = 0
        self.end_reads = 0
        self.requests_kept = 0
        """How many requests each partition remembers; 0 for all of a run."""
        self.stored_again = 0
        """Requests that came again after they had been forgotten."""

    def violated(self, *words: object) -> None:
        """Note a broken promise."""
        if len(self.violations) < VIOLATIONS_MAX:
            text = " ".join(map(str, words))
            self.violations.append(f"{self._loop.time:.3f} s: {text}")
            self._loop.note("violation", text)

    # while it runs

    def applied(self, node: NodeId, log: PartitionLog, entry: Entry) -> None:
        """A replica is about to apply a committed entry of its log."""
        partition_id = log.id
        ledger = self._ledgers[partition_id]
        held = min(entry.index, log.durable_index)
        ledger.reached[node] = max(ledger.reached.get(node, 0), held)
        told = (entry.term, entry.crc)
        known = ledger.entries.get(entry.index)
        if known is None:
            self._loop.note("commit", node, partition_id.partition, entry.index, *told)
            ledger.entries[entry.index] = told
            self._first_applied(node, ledger, entry)
        elif known != told:
            self.violated(
                f"one value: {node} applies {told} at {partition_id}/{entry.index}, not {known}"
            )

    def _first_applied(self, node: NodeId, ledger: _Ledger, entry: Entry) -> None:
        if entry.index < ledger.last:
            self.violated(f"one value: {node} applies {entry.index} after {ledger.last} was")
        ledger.last = entry.index
        if entry.time_ms < ledger.time_ms:
            self.violated(f"dense: log time steps back at {entry.index} on {node}")
        ledger.time_ms = entry.time_ms
        if entry.kind == EntryKind.RECORDS:
            self._first_stored(node, ledger, entry)
        ledger.ends[entry.index] = ledger.end_offset, ledger.time_ms

    def _first_stored(self, node: NodeId, ledger: _Ledger, entry: Entry) -> None:
        if entry.base_offset != ledger.end_offset:
            self.violated(
                f"dense: entry {entry.index} on {node} begins at {entry.base_offset},"
                f" the one before ends at {ledger.end_offset}"
            )
        for batch in decode_records(entry.body, entry.base_offset):
            stamp = batch.stamp()
            identity: Identity = (
                batch.request_id
                if stamp is None
                else (stamp.producer_id, stamp.epoch, stamp.base_sequence)
            )
            ledger.batches[batch.base_offset] = (zlib.crc32(batch.batch), batch.count)
            first = ledger.stored.setdefault(identity, batch.base_offset)
            if first != batch.base_offset and self._is_forgotten(ledger, identity):
                self.stored_again += 1
                ledger.earlier[identity].add(first)
                ledger.stored[identity] = batch.base_offset
            elif first != batch.base_offset:
                self.violated(f"once: {identity} is stored at {first} and {batch.base_offset}")
            if identity in ledger.refused:
                self.violated(f"refused: {identity} is stored at {batch.base_offset}")
            ledger.end_offset = batch.base_offset + batch.count

    def _is_forgotten(self, ledger: _Ledger, identity: Identity) -> bool:
        """Whether so many other requests were stored since that this one is not remembered."""
        if not self.requests_kept or isinstance(identity, tuple):
            return False
        at = ledger.stored[identity]
        later = [i for i, offset in ledger.stored.items() if offset > at and isinstance(i, int)]
        return len(later) >= self.requests_kept

    def granted(
        self, partition_id: PartitionId, term: Term, node: NodeId, candidate: NodeId, last: Index
    ) -> None:
        """A node whose log ends there votes; it may tell so, once that is durable."""
        ledger = self._ledgers[partition_id]
        ledger.votes.setdefault((term, candidate), {candidate}).add(node)
        if last < ledger.reached.get(node, 0):
            self.violated(
                f"votes: {node} had {partition_id}/{ledger.reached[node]}, and has {last}"
            )

    def led(self, partition_id: PartitionId, term: Term, node: NodeId, voters: int) -> None:
        """A node says that it leads."""
        leaders = self._ledgers[partition_id].leaders
        votes = self._ledgers[partition_id].votes.get((term, node), {node})
        if 2 * len(votes) <= voters:
            self.violated(f"one leader: {node} leads {partition_id} by {sorted(votes)} of {voters}")
        if term not in leaders:
            self._loop.note("lead", node, partition_id.partition, term)
        known = leaders.setdefault(term, node)
        if known != node:
            self.violated(f"one leader: {known} and {node} lead {partition_id} in term {term}")

    def state_is(self, node: NodeId, partition_id: PartitionId, index: Index, crc: int) -> None:
        """The checksum of a replica's whole state at this index."""
        known = self._ledgers[partition_id].states.setdefault(index, crc)
        if known != crc:
            self.violated(f"same state: {node} differs at {partition_id}/{index}")

    def acked(
        self,
        node: NodeId,
        partition_id: PartitionId,
        identity: Identity,
        offset: Offset,
        duplicate: bool,
    ) -> None:
        """A client was told that its batch is stored."""
        ledger = self._ledgers[partition_id]
        self.acks += 1
        self.duplicates += duplicate
        self._loop.note("ack", node, partition_id.partition, identity, offset)
        if ledger.gone.get(identity) == offset and identity not in ledger.stored:
            return  # the answer was on its way when the power went
        if identity in ledger.earlier:
            if offset not in {ledger.stored[identity], *ledger.earlier[identity]}:
                self.violated(f"acked: {node} acks {identity} at {offset}, where it is not")
            return  # answers of both may come
        if ledger.stored.get(identity) != offset:
            self.violated(
                f"acked: {node} acks {identity} at {offset}, it is {ledger.stored.get(identity)}"
            )
            return
        if ledger.acked.setdefault(identity, offset) != offset:
            self.violated(f"acked: {identity} at {offset} and {ledger.acked[identity]}")
        ledger.acked_end = max(ledger.acked_end, offset + ledger.batches[offset][1])

    def refused(self, partition_id: PartitionId, identity: Identity) -> None:
        """A client was told that its batch is not stored, and will not send it again."""
        ledger = self._ledgers[partition_id]
        ledger.refused.add(identity)
        if identity in ledger.stored:
            self.violated(f"refused: {identity} is stored at {ledger.stored[identity]}")

    def acked_offsets(self, partition_id: PartitionId) -> list[int]:
        """Every message that somebody was told is stored."""
        ledger = self._ledgers[partition_id]
        firsts = sorted({*ledger.acked.values()})
        return [at for base in firsts for at in range(base, base + ledger.batches[base][1])]

    def acked_end(self, partition_id: PartitionId) -> int:
        """The offset after the last acked record."""
        return self._ledgers[partition_id].acked_end

    def end_read(self, node: NodeId, partition_id: PartitionId, end: Offset, asked: int) -> None:
        """A leader confirmed by a read index says where the log ends."""
        self.end_reads += 1
        if end < min(asked, self.acked_end(partition_id)):
            self.violated(f"reads: {node} says {partition_id} ends at {end}, acked up to {asked}")

    def read(self, node: NodeId, partition_id: PartitionId, offset: Offset, found: Slice) -> None:
        """A replica answers a read that begins at this applied offset."""
        self.reads += 1
        ledger = self._ledgers[partition_id]
        told = f"{node} reads {partition_id} at {offset}"
        at = offset
        if not found.batches and at < found.end_offset:
            self.violated(f"reads: {told}, and gets nothing of {found.end_offset}")
        for number, stored in enumerate(found.batches):
            known = ledger.batches.get(stored.base_offset)
            if known is None or known[0] != zlib.crc32(stored.batch):
                self.violated(f"reads: {told}, and gets another batch at {stored.base_offset}")
                return
            if stored.base_offset > at or (number and stored.base_offset < at):
                self.violated(f"reads: {told}, and batches do not follow at {stored.base_offset}")
            at = Offset(stored.base_offset + known[1])
        if found.batches and found.next_offset != at:
            self.violated(f"reads: {told}, goes on at {found.next_offset}, not {at}")

    def copied(self, node: NodeId, log: PartitionLog, last: Index) -> None:
        """A replica was replaced by a copy, which says that it goes up to an entry."""
        entries, at = self._ledgers[log.id].entries, log.first_index
        try:
            while at <= last:
                for entry in log.entries(at, max_bytes=1 << 20):
                    known = entries.get(entry.index)
                    if known not in (None, (entry.term, entry.crc)):
                        self.violated(f"copies: {node} has copied another {log.id}/{entry.index}")
                    at = Index(entry.index + 1)
        except LogError as error:
            self.violated(f"copies: {node} has copied {log.id} without {at}: {error}")

    def stepped(self, node: NodeId, step: Step, seen: Seen) -> None:
        """A leader, whose replicas are so, has begun to change them."""
        voters, index = seen.configuration.voters, seen.configuration.index
        stay = [voter for voter in voters if voter != step.voter]
        in_sync = sum(voter.node in seen.in_sync for voter in stay)
        wanted = step.factor if step.voter.node in seen.in_sync else 0
        least = max(wanted, len(stay) // 2 + 1)
        if step.kind == REMOVE and step.voter in voters and in_sync < least:
            self.violated(
                f"steps: {node} takes {step.voter.node} out of {step.partition_id}: of the"
                f" {len(stay)} that stay {in_sync} are in sync"
            )
        if step.index != index:
            self.violated(f"steps: {node} takes that of entry {step.index} at {index}")

    def replica_failed(self, node: NodeId, partition_id: PartitionId, error: Exception) -> None:
        """A replica stopped itself; in a correct cluster none has a reason to."""
        self.violated(f"alive: the replica of {partition_id} on {node} stopped: {error}")

    # what a power cut may take

    def known_partitions(self) -> list[PartitionId]:
        """Those of which something was applied."""
        return list(self._ledgers)

    def last(self, partition_id: PartitionId) -> int:
        """The last entry that was applied anywhere."""
        return self._ledgers[partition_id].last

    def term_of(self, partition_id: PartitionId, index: Index) -> int | None:
        """The term of an entry that was applied; None where nobody saw it."""
        known = self._ledgers[partition_id].entries.get(index)
        return None if known is None else known[0]

    def reached(self, node: NodeId, partition_id: PartitionId) -> int:
        """The last entry that it had on its disk, and knew to be committed."""
        return self._ledgers[partition_id].reached.get(node, 0)

    def reaches_only(self, node: NodeId, partition_id: PartitionId, index: Index) -> None:
        """A power cut has left it this much of a relaxed partition."""
        reached = self._ledgers[partition_id].reached
        reached[node] = min(reached.get(node, 0), index)

    def gone(self, partition_id: PartitionId, index: Index) -> None:
        """Power cuts have taken what came after this entry from everyone who held it."""
        self._ledgers[partition_id].forget_after(index)

    def truncates(
        self, node: NodeId, partition_id: PartitionId, index: Index, term: int | None
    ) -> None:
        """A follower drops its log from here on, as a leader's differs."""
        known = self._ledgers[partition_id].entries.get(index)
        if known is not None and known[0] == term:
            self.violated(f"truncated: {node} drops {partition_id}/{index}, which was applied")

    # at the end

    def log_is(self, node: NodeId, partition_id: PartitionId, log: PartitionLog) -> None:
        """Compare a replica's whole log with what was ever applied anywhere."""
        ledger = self._ledgers[partition_id]
        index = log.first_index
        while index <= ledger.last:
            if index > log.last_index:
                self.violated(f"acked: {node} lacks {partition_id}/{index}, which was applied")
                return
            for entry in log.entries(index, max_count=256):
                known = ledger.entries.get(entry.index)
                if known is not None and known != (entry.term, entry.crc):
                    self.violated(f"one value: {node} holds another {partition_id}/{entry.index}")
                    return
                index = Index(entry.index + 1)

    def applied_all(self, partition_id: PartitionId, index: Index) -> bool:
        """Whether a replica that has applied this far has applied all that anybody has."""
        return index >= self._last_command(partition_id)

    def _last_command(self, partition_id: PartitionId) -> int:
        return self._ledgers[partition_id].last
