"""One Spark task's rows in one partition of a topic, each stored once however often it is tried.

The log itself keeps count. A batch goes in at the number that its producer has reached there, and
the leader takes it only if that is still so: a compare-and-set. Who is refused has a predecessor,
or a twin that runs beside him, or has lost an answer of his own. He reads what stands in the log
under his identity, takes it off what he was about to write, row by row and whatever the order, and
goes on behind it. So whoever stores a batch has stored or read all that is before it, and no row
is stored more often than it is in the Spark partition.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from dataclasses import dataclass, field

from goqueue.errors import Forbidden, GoQueueError, OffsetOutOfRange, ProducerFenced
from goqueue.publish.request import BATCH, BatchResult, decode_results
from goqueue.transport.http import join
from goqueue.transport.pages import FramePage
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import OutOfOrder
from goqueue.wire.layout import HAS_MESSAGE_IDS, HEADER, Buffer
from pipeline.broker import Broker
from pipeline.sink.errors import SinkError
from pipeline.sink.identity import Identity
from pipeline.sink.options import SinkOptions
from pipeline.sink.rows import Rows, fingerprints

log = logging.getLogger(__name__)

PAUSE_S = 0.2
"""Before what could not be done is tried again; what is on its way applies within it."""
LOST_S = 5.0
"""What was on its way to the log and has not come in this time went down with its leader."""
FRUITLESS_MAX = 3
FOUND_MAX = 4_000_000
"""Fingerprints in memory, 150 bytes each."""
CATCH_UPS_MAX = 1000
"""Of one batch: each needs somebody else to have written in between."""


@dataclass(slots=True)
class Tally:
    """What became of the rows."""

    written: int = 0
    found: int = 0
    """Stored by an earlier attempt, or by one that runs beside this one."""


@dataclass(slots=True)
class _Unread:
    """Offsets that hold rows under our identity, and what was found in them so far."""

    at: int
    end: int
    numbers: int
    """Of the sequence, that these rows took."""
    rows: int = 0
    has_ids: bool = False
    """Some have an id of their own, by which the topic may have left rows out: their numbers say
    more rows than there are."""
    since_s: float = field(default_factory=time.monotonic)
    """When something new was read last."""


class PartitionSequence:
    """The end of one partition, as its producer knows it. Of one thread at a time."""

    def __init__(
        self,
        broker: Broker,
        topic: str,
        partition: int,
        leader: str | None,
        identity: Identity,
        options: SinkOptions,
    ) -> None:
        self.tally = Tally()
        self._broker = broker
        self._topic = topic
        self._partition = partition
        self._leader = leader
        self._identity = identity
        self._options = options
        self._next = 0
        """The number that the next row gets."""
        self._seen: int | None = None
        """The producer's rows at offsets below this are accounted for; None: there was none."""
        self._key = (identity.producer_id, identity.epoch)
        self._fruitless = 0
        """Catch-ups in a row that did not find what they were told of."""
        self._found: Counter[bytes] = Counter()
        """Fingerprints of rows that others have stored, and that have not come by here yet."""
        self._unread: _Unread | None = None
        """What others have stored besides. It is read as far as it takes to find what comes by
        here, so rows that come in the same order need no more memory than a page."""

    def append(self, rows: Rows) -> None:
        """Return when each of the rows is stored, once. Raises SinkError, or GoQueueError where
        the cluster could not in time, or will not: what is stored then, the next attempt finds."""
        left = self._not_found(rows)
        deadline_s = time.monotonic() + self._options.delivery_timeout_s
        for _attempt in range(CATCH_UPS_MAX):
            if not len(left):
                return
            try:
                result = self._post(left)
                if not result.duplicate:
                    self._stored(left, result)
                    break
                self._catch_up_with(result, len(left))
            except OutOfOrder as taken:
                self._catch_up_to(taken)
            except GoQueueError as error:
                if not error.retriable or time.monotonic() + PAUSE_S >= deadline_s:
                    raise self._explained(error, left) from error
                time.sleep(PAUSE_S)
            left = self._not_found(left)
        else:
            raise SinkError(f"{self}: others write under the identity of {self._identity.task}")

    def finish(self) -> None:
        """All rows have been appended. Raises SinkError where others have stored rows that were
        not among them: what Spark computes again must be what it computed before."""
        while self._unread is not None:
            self._read_on(self._unread)
        strange = self._found.total()
        if strange and self._options.fails_on_changed_rows:
            raise SinkError(
                f"{self}: an earlier attempt at {self._identity.task} stored {strange} rows that "
                "this one does not have, so these are not the same rows; with failOnChangedRows "
                "false, both attempts' rows stay"
            )
        if strange:
            log.warning("%s: %d rows of an earlier attempt stay", self, strange)

    def __str__(self) -> str:
        return f"partition {self._partition} of topic {self._topic}"

    # writing

    def _post(self, rows: Rows) -> BatchResult:
        now_ms = time.time_ns() // 1_000_000
        codec = self._options.compression
        answer = self._broker.request(
            "POST",
            join("topics", self._topic, "partitions", self._partition, "messages"),
            body=rows.encode(self._identity, self._next, now_ms, codec),
            headers=BATCH,
            repeatable=True,
            leader=self._leader,
        )
        (result,) = decode_results(answer, 1)
        if result.failure is not None:
            raise result.failure
        return result

    def _stored(self, rows: Rows, result: BatchResult) -> None:
        self._next += len(rows)
        offsets = [row.offset for row in result.rows or () if not row.duplicate]
        if result.rows is None:
            offsets = [result.offset + len(rows) - 1]
        if offsets:
            self._seen = max(self._seen or 0, max(offsets) + 1)
        self.tally.written += len(rows)

    def _explained(self, error: GoQueueError, rows: Rows) -> Exception:
        if isinstance(error, ProducerFenced):
            return SinkError(
                f"{self}: a later run than {self._identity.task} has written: this one is over"
            )
        if error.retriable:
            return error
        task = self._identity.task
        return SinkError(f"{rows.blamed(error)} of {task}, {self}: {error.message}")

    # what others have stored

    def _not_found(self, rows: Rows) -> Rows:
        """The rows but for those that are stored already."""
        if not len(rows) or (self._unread is None and not self._found):
            return rows
        encoded = rows.encode(self._identity, 0, 0, "none")
        prints = fingerprints(RecordBatch.parse(encoded))
        left = [row for row in range(len(rows)) if not self._is_found(prints[row])]
        while left and self._unread is not None:
            self._read_on(self._unread)
            left = [row for row in left if not self._is_found(prints[row])]
        self.tally.found += len(rows) - len(left)
        return rows if len(left) == len(rows) else rows.take(left)

    def _is_found(self, fingerprint: bytes) -> bool:
        count = self._found.get(fingerprint, 0)
        if count > 1:
            self._found[fingerprint] = count - 1
        elif count:
            del self._found[fingerprint]
        return count > 0

    def _catch_up_with(self, result: BatchResult, count: int) -> None:
        """A batch with the number and the count of ours stands there: what it holds is not told."""
        first, end = result.offset, result.offset + count
        if result.rows is not None:
            offsets = [row.offset for row in result.rows]
            first, end = min(offsets), max(offsets) + 1
        self._catch_up(first, end, self._next + count)

    def _catch_up_to(self, taken: OutOfOrder) -> None:
        expected, first, end = map(taken.data.get, ("expected", "first_offset", "end_offset"))
        if not isinstance(expected, int) or expected <= self._next:
            raise SinkError(
                f"{self}: it has forgotten what {self._identity.task} has written there, so "
                "nothing can tell whether a row comes twice"
            )
        if not isinstance(first, int) or not isinstance(end, int):
            raise SinkError(f"{self}: its node is too old to tell what is stored already")
        self._catch_up(first, end, expected)

    def _catch_up(self, first: int, end: int, expected: int) -> None:
        """There is something to read, from where the producer's rows are accounted for up to
        `end`, where its sequence has reached `expected`."""
        start = first if self._seen is None else self._seen
        self._unread = _Unread(start, end, expected - self._next)

    def _read_on(self, unread: _Unread) -> None:
        """Another page of it. What was on its way is waited for, for a while."""
        page = self._read(unread.at) if unread.at < unread.end else None
        for frame in () if page is None else page.frames():
            if _producer_of(frame.batch) == self._key and frame.base_offset < unread.end:
                batch = RecordBatch.parse(frame.batch)
                first = max(0, unread.at - frame.base_offset)
                found = fingerprints(batch)[first : unread.end - frame.base_offset]
                self._found.update(found)
                unread.rows += len(found)
                unread.has_ids |= bool(batch.header.flags & HAS_MESSAGE_IDS)
        if len(self._found) > FOUND_MAX:
            raise SinkError(
                f"{self}: {self._identity.task} is too large to be repeated in another order; "
                f"write Spark partitions of fewer than {FOUND_MAX} rows"
            )
        now_s = time.monotonic()
        if page is not None and page.next_offset > unread.at:
            unread.at, unread.since_s = min(page.next_offset, unread.end), now_s
        if unread.at >= unread.end or now_s >= unread.since_s + LOST_S:
            self._have_read(unread)
        elif unread.since_s != now_s:
            time.sleep(PAUSE_S)

    def _have_read(self, unread: _Unread) -> None:
        self._unread, self._seen = None, max(unread.at, self._seen or 0)
        missing = unread.numbers - unread.rows
        is_whole = missing <= 0 or unread.has_ids or not self._options.fails_on_changed_rows
        if unread.at >= unread.end and is_whole:
            self._next += unread.numbers
            self._fruitless = 0
            return
        # Either it was on its way and got lost with its leader, or it was stored and is gone.
        self._next += unread.rows
        self._fruitless += 1
        if self._fruitless > FRUITLESS_MAX:
            raise SinkError(
                f"{self}: {missing} rows that an earlier attempt at {self._identity.task} stored "
                "are gone (retention, compaction), so nothing can tell which ones are left"
            )
        time.sleep(PAUSE_S)

    def _read(self, at: int) -> FramePage | None:
        try:
            return self._broker.read(self._topic, self._partition, at, leader=self._leader)
        except OffsetOutOfRange:
            return None
        except Forbidden as error:
            raise SinkError(
                f"{self}: an earlier attempt at {self._identity.task} has stored rows, and the API "
                f"key may not read them to find out which: {error.message}"
            ) from error


def _producer_of(batch: Buffer) -> tuple[int, int]:
    """The id and the epoch in an encoded batch."""
    _, _, _, _, _, producer_id, _, epoch, *_ = HEADER.unpack_from(batch)
    return producer_id, epoch
