"""A task's work: the events of a range of entries, page after page from the leader; and how far
there are any."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from goqueue.api.events import decode_events, events_params, events_path
from goqueue.errors import UnknownPartition, UnknownTopic
from goqueue.transport.http import Transport
from goqueue.wire.events import EVENTS_MEDIA_TYPE, EventsPage
from pipeline.broker import Broker, Span
from pipeline.events.columns import record_batch
from pipeline.source import data_loss
from pipeline.source.options import Chosen
from pipeline.source.ranges import Range
from pipeline.source.topics import Known, look

BEYOND: Final = 2**63 - 1
"""After all entries: what is asked for after it is only how far there are any."""
LOOK_AGAIN_S: Final = 0.2
PAGE_EVENTS: Final = 20_000
_ACCEPT: Final = {"Accept": EVENTS_MEDIA_TYPE}


def look_at_events(broker: Broker, chosen: Chosen, *, missing_ok: bool = False) -> dict[str, Known]:
    """As `pipeline.source.topics.look`; spans are the entries that there are events of."""
    return {
        name: Known(
            replace(topic.facts, is_compacted=False), event_spans(broker, name, topic.spans)
        )
        for name, topic in look(broker, chosen, missing_ok=missing_ok).items()
    }


def event_spans(broker: Broker, topic: str, partitions: Iterable[int]) -> dict[int, Span]:
    """By partition, the first entry there are events of, and the one after the last."""
    numbers = list(partitions)

    def asking(number: int) -> Callable[[Transport], Coroutine[Any, Any, Span]]:
        async def ask(transport: Transport) -> Span:
            answer = await transport.request(
                "GET",
                events_path(topic, number),
                params=events_params(BEYOND, limit=1),
                headers=_ACCEPT,
                repeatable=True,
            )
            page = decode_events(answer)
            return Span(page.first, page.end + 1)

        return ask

    return dict(zip(numbers, broker.requests([*map(asking, numbers)]), strict=True))


def read_events(
    broker: Broker, wanted: Range, schema: Any, *, fail_on_data_loss: bool
) -> Iterator[Any]:
    """The events of entries from `start` up to `end` as `pyarrow.RecordBatch`es, in order.

    Raises DataLoss where entries are gone, unless told to go on; GoQueueError where the cluster
    can't be read within the request's timeout.
    """
    first = wanted.start
    try:
        for page in _pages(broker, wanted):
            if page.topic_id != wanted.topic_id:
                text = data_loss.recreated(wanted.topic, wanted.topic_id, page.topic_id)
                data_loss.lost(text, fail=fail_on_data_loss)
                return
            if page.first > first:
                gone = min(page.first, wanted.end)
                text = data_loss.entries_gone(wanted.topic, wanted.partition, first, gone)
                data_loss.lost(text, fail=fail_on_data_loss)
            first = page.next + 1
            if page.events.index:
                yield record_batch(page, schema)
    except (UnknownTopic, UnknownPartition):
        data_loss.lost(data_loss.deleted(wanted.topic), fail=fail_on_data_loss)


def _pages(broker: Broker, wanted: Range) -> Iterator[EventsPage]:
    """What was planned is applied: a leader of a moment that has not come so far is asked again."""
    after, offset, until = wanted.start - 1, None, wanted.end - 1
    quiet_s = time.monotonic() + broker.access.request_timeout_s
    while after < until:
        answer = broker.request(
            "GET",
            events_path(wanted.topic, wanted.partition),
            params=events_params(after, offset, until=until, limit=PAGE_EVENTS),
            headers=_ACCEPT,
            repeatable=True,
            leader=wanted.leader,
        )
        page = decode_events(answer)
        yield page
        if (page.next, page.next_offset) != (after, offset):
            quiet_s = time.monotonic() + broker.access.request_timeout_s
        elif time.monotonic() > quiet_s:
            raise TimeoutError(
                f"{wanted.topic}:{wanted.partition}: entry {after + 1} was planned, "
                f"and the log ends with entry {page.end}"
            )
        else:
            time.sleep(LOOK_AGAIN_S)
        after, offset = page.next, page.next_offset
