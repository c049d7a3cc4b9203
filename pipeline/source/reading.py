"""A task's work: one range of offsets, page after page from the leader, into Arrow batches.

The next page is on its way while this one is decoded; no more than one is. A range is read whole or
not at all: what is missing in it is told as a loss, never passed over in silence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from goqueue.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from goqueue.transport.pages import FramePage
from pipeline.broker import Broker
from pipeline.source import data_loss
from pipeline.source.arrow import Place, record_batches
from pipeline.source.ranges import Range

LOOK_AGAIN_S: Final = 0.2
"""A leader of a moment may not have applied yet what was committed under the one before it."""
PAGE_BYTES: Final = 4 << 20
PAGES_A_SECOND: Final = 4
"""Of a read whose rate is bounded."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a task reads, in bytes of stored batches a second; None for as fast as it can."""

    bytes_per_second: int | None = None

    @property
    def page_bytes(self) -> int:
        """A fraction of a second's bytes at once; a batch is never split."""
        rate = self.bytes_per_second
        return PAGE_BYTES if rate is None else max(1, min(PAGE_BYTES, rate // PAGES_A_SECOND))

    def due_s(self, started_s: float, taken: int) -> float:
        """When the next page may be asked for."""
        rate = self.bytes_per_second
        return started_s if rate is None else started_s + taken / rate


def read_range(
    broker: Broker, wanted: Range, schema: Any, *, fail_on_data_loss: bool, pace: Pace
) -> Iterator[Any]:
    """The messages of a range as `pyarrow.RecordBatch`es of this schema, in order.

    Raises DataLoss where some are gone, unless told to go on; GoQueueError where the cluster can't
    be read within the request's timeout, or a batch is damaged.
    """
    place = Place(wanted.topic, wanted.partition)
    at = wanted.start
    try:
        for page in _pages(broker, wanted, pace):
            if page.topic_id not in ("", wanted.topic_id):
                text = data_loss.recreated(wanted.topic, wanted.topic_id, page.topic_id)
                data_loss.lost(text, fail=fail_on_data_loss)
                return
            if page.log_start > at and not wanted.is_compacted:
                gone = min(page.log_start, wanted.end)
                text = data_loss.offsets_gone(wanted.topic, wanted.partition, at, gone)
                data_loss.lost(text, fail=fail_on_data_loss)
            yield from record_batches(page.frames(), place, schema, at, wanted.end)
            at = page.next_offset
    except (UnknownTopic, UnknownPartition):
        data_loss.lost(data_loss.deleted(wanted.topic), fail=fail_on_data_loss)


def _pages(broker: Broker, wanted: Range, pace: Pace) -> Iterator[FramePage]:
    """Pages that cover the range; each is asked for when the one before it has come."""
    started_s, taken = time.monotonic(), 0
    with ThreadPoolExecutor(1, thread_name_prefix="goqueue-page") as ahead:
        at = wanted.start
        coming = (
            ahead.submit(_page, broker, wanted, at, started_s, pace) if at < wanted.end else None
        )
        while coming is not None:
            page = coming.result()
            at, taken = page.next_offset, taken + len(page.body)
            due_s = pace.due_s(started_s, taken)
            coming = (
                ahead.submit(_page, broker, wanted, at, due_s, pace) if at < wanted.end else None
            )
            yield page


def _page(broker: Broker, wanted: Range, at: int, due_s: float, pace: Pace) -> FramePage:
    """A page that reading goes on behind, not before it is due. What was planned is committed, so a
    replica that does not have it yet is asked again."""
    time.sleep(max(0.0, due_s - time.monotonic()))
    end_s = time.monotonic() + broker.access.request_timeout_s
    while True:
        try:
            page = broker.read(
                wanted.topic,
                wanted.partition,
                at,
                leader=wanted.leader,
                records_max=max(1, wanted.end - at),
                bytes_max=pace.page_bytes,
            )
            if page.next_offset > at or page.topic_id not in ("", wanted.topic_id):
                return page
            behind = OffsetOutOfRange(at, page.log_start, page.end_offset)
        except OffsetOutOfRange as error:
            behind = error
        if time.monotonic() > end_s:
            raise behind
        time.sleep(LOOK_AGAIN_S)
