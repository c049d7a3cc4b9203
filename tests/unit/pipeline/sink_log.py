"""One partition's log behind the calls that the sink makes, under the rules of the real leader.

`Appender` and `PartitionState` judge and store; what is thrown at them comes from a seed: answers
that are lost, leaders that fall with what is on its way, somebody else who writes in between.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy

from delivery.entries.records import encode_records
from delivery.leader.appender import Admitted, Appender
from delivery.state.partition import PartitionState
from goqueue.errors import GoQueueError, NoQuorum, OffsetOutOfRange
from goqueue.transport.channel import Answer
from goqueue.transport.pages import FramePage
from goqueue.wire.batch import RecordBatch
from goqueue.wire.stream import frame_header
from goqueue.wire.types import Index
from log.entry import Entry, EntryKind, make_entry
from tests.unit.delivery.batches import START_MS

PAGE_FRAMES = 3


class SinkLog:
    """What the sink takes for a broker, with one partition of one topic."""

    def __init__(self, seed: int = 0, trouble: float = 0.0) -> None:
        self.chance = random.Random(seed)
        self.trouble = trouble
        self.state = PartitionState()
        self.stored: list[tuple[int, RecordBatch]] = []
        """(base offset, batch)."""
        self.start = 0
        self.meanwhile: Callable[[], None] = lambda: None
        """What somebody else does before a batch arrives."""
        self.posts = 0
        self._appender = Appender(self.state)
        self._flying: list[tuple[RecordBatch, Admitted]] = []
        self._index = 0

    def values(self) -> Counter[bytes]:
        return Counter(value for _base, batch in self.stored for value in batch.values())

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes,
        headers: Mapping[str, str],
        repeatable: bool,
        leader: str | None,
    ) -> Answer:
        assert (method, path) == ("POST", "/v1/topics/orders/partitions/0/messages")
        assert repeatable, "the sink knows its rows again"
        self.posts += 1
        self.meanwhile()
        if self.chance.random() < self.trouble / 3:
            self.fall()
        verdict = self.judge(RecordBatch.parse(body))
        if self.chance.random() < self.trouble / 3:  # on its way, and nobody waits for it
            raise NoQuorum(outcome="unknown")
        self.apply()
        if self.chance.random() < self.trouble / 3:
            raise NoQuorum(outcome="unknown")
        return Answer(200, CIMultiDictProxy(CIMultiDict()), msgspec.json.encode(verdict))

    def read(self, topic: str, partition: int, offset: int, *, leader: str | None) -> FramePage:
        assert (topic, partition) == ("orders", 0)
        self.meanwhile()
        end = self.state.next_offset
        if offset > end:
            raise OffsetOutOfRange(offset, self.start, end)
        if self.chance.random() < 0.5:
            self.apply()
        found = [
            (base, batch)
            for base, batch in self.stored
            if base + batch.count > max(offset, self.start)
        ][:PAGE_FRAMES]
        body = b"".join(
            frame_header(base, START_MS, len(batch.buffer)) + batch.buffer for base, batch in found
        )
        following = offset
        if found:
            following = found[-1][0] + found[-1][1].count
        return FramePage(body, following, self.start, end)

    def apply(self) -> None:
        """All that is on its way is stored."""
        for one, admitted in self._flying:
            self._index += 1
            self.state.apply(_entry(self._index, one, admitted))
            kept = one if admitted.rows is None else admitted.kept
            if kept is not None:
                self.stored.append((admitted.base_offset, kept))
        self._flying = []

    def forget(self, batches: int) -> None:
        """Retention takes the oldest batches."""
        del self.stored[:batches]
        self.start = self.stored[0][0] if self.stored else self.state.next_offset

    def judge(self, batch: RecordBatch) -> dict[str, object]:
        try:
            verdict = self._appender.admit(batch)
        except GoQueueError as error:
            raise GoQueueError.from_body(error.to_body()) from None
        result: dict[str, object] = {"partition": 0, "offset": verdict.base_offset}
        if verdict.rows is not None:
            result["rows"] = [
                {"offset": offset, "duplicate": duplicate} for offset, duplicate in verdict.rows
            ]
        if isinstance(verdict, Admitted):
            self._flying.append((batch, verdict))
            self._appender.proposed(Index(self._index + len(self._flying)))
        else:
            result["duplicate"] = True
        return {"results": [result]}

    def fall(self, *, loses: bool | None = None) -> None:
        """The leader falls; of what was on its way some entries get through, in order: all of them,
        or none, where it is said whether it `loses` them."""
        flying = len(self._flying)
        kept = self.chance.randint(0, flying) if loses is None else 0 if loses else flying
        self._flying = self._flying[:kept]
        self.apply()
        restored = PartitionState()
        restored.restore(self.state.snapshot())
        self.state = restored
        self._appender = Appender(restored)


def _entry(index: int, sent: RecordBatch, admitted: Admitted) -> Entry:
    return make_entry(
        index=index,
        term=1,
        time_ms=START_MS,
        kind=EntryKind.RECORDS,
        base_offset=admitted.base_offset,
        record_count=admitted.count,
        body=encode_records([admitted.to_append(sent, 0)]),
    )
