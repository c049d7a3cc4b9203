"""What a simulated leader trims: what must be kept is carried on first, as in a node."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from coordinator.topics.settings import TopicConfig
from delivery.entries.records import encode_trim
from goqueue.wire.errors import NotLeader
from goqueue.wire.types import Index, Offset
from log.entry import EntryKind
from node.partition.reading.reader import PartitionReader
from node.partition.retention.trimming import Retention
from raft.errors import Outcome
from tests.sim.indexed import Indexed, entries_between

if TYPE_CHECKING:
    from tests.sim.replica import Replica

T = TypeVar("T")
UNSETTLED_TRIMMED = 0.2
"""How often a trim takes what some group has not settled."""


class Maintenance:
    """The trims of one replica."""

    def __init__(self, replica: Replica, reader: PartitionReader, rng: random.Random) -> None:
        self._replica = replica
        self._rng = rng
        self._carrying = False
        self._retention = Retention(
            log=replica.log,
            state=replica.state,
            reader=reader,
            raft_group=lambda: replica.raft,
            config=TopicConfig,
            stories=self._stories,
        )

    def trim(self, keep: int) -> None:
        """As leader: move the log start, keeping at least this many entries."""
        replica = self._replica
        if self._carrying or not replica.raft.is_ready_leader:
            return
        index = Index(min(replica.raft.replication.trim_limit, replica.state.applied_index - keep))
        if replica.state.queue.groups and self._rng.random() > UNSETTLED_TRIMMED:
            index = min(index, self._settled_index())
        if index <= replica.state.log_start_index:
            return
        self._carry_and_trim(index, self._offset_from(index))

    def _carry_and_trim(self, index: Index, offset: Offset) -> None:
        """Trim once all that must be kept stands at or after the index."""
        left = self._retention.left(index, offset)
        if not left:
            self._propose(EntryKind.TRIM, encode_trim(index, offset), lambda: None)
            return
        _count, body = _result(self._retention._body(left))
        self._propose(EntryKind.CARRIED, body, lambda: self._carry_and_trim(index, offset))

    async def _stories(self, offsets: Sequence[Offset]) -> bytes:
        """Timelines so far, for the entry that carries these messages; it waits for nobody."""
        state = self._replica.state
        entries = entries_between(self._replica.log, state.log_start_index, state.applied_index)
        return Indexed(entries, state.queue.outcome_notes).stories(offsets)

    def _settled_index(self) -> Index:
        """The entry of the first message that some group has not settled."""
        groups = self._replica.state.queue.groups.values()
        committed_offset = Offset(min(group.committed_offset for group in groups))
        found = self._replica.log.locate_offset(committed_offset)
        return self._replica.state.applied_index if found is None else found

    def _offset_from(self, index: Index) -> Offset:
        """The offset that the entries before this index end at."""
        replica = self._replica
        while index <= replica.state.applied_index:
            entry = replica.log.entry(index)
            if entry.kind == EntryKind.RECORDS:
                return entry.base_offset
            index = Index(index + 1)
        return replica.state.next_offset

    def _propose(self, kind: EntryKind, body: bytes, then: Callable[[], None]) -> None:
        def ended(outcome: Outcome, _result: object, _index: Index) -> None:
            self._carrying = False
            if outcome is Outcome.APPLIED:
                then()

        try:
            self._carrying = True
            self._replica.raft.propose(kind, body, callback=ended)
        except NotLeader:
            self._carrying = False


def _result(work: Coroutine[Any, Any, T]) -> T:
    """Of work that waits for nobody."""
    try:
        work.send(None)
    except StopIteration as stopped:
        return stopped.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")
