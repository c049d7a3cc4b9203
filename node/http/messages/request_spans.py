"""How a request tells what it did with messages. Nothing where nobody exports spans."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import GoQueueError
from goqueue.wire.layout import HAS_HEADERS
from node.api.queue import QueuedMessage, SettleView
from node.api.spans import MESSAGES_MAX, TRACEPARENT, Carried, Place, RequestSpans, Work
from node.http.messages.columns import Rows
from node.http.messages.results import PartitionRows
from node.http.messages.trace_context import of_message, of_request
from node.http.request.call import Call


@dataclass(slots=True)
class TracedRequest:
    """One request, from its beginning on."""

    spans: RequestSpans
    request: Carried | None
    began_ns: int

    def published(self, topic: str, rows: Rows, parts: Sequence[PartitionRows]) -> None:
        contexts = [of_message(headers) for headers in islice(rows.headers or (), MESSAGES_MAX)]
        failed = next((g.outcome for g in parts if isinstance(g.outcome, GoQueueError)), None)
        self._tell("publish", topic, len(rows), contexts=contexts, error=failed)

    def published_batches(self, topic: str, batches: Sequence[RecordBatch]) -> None:
        contexts: list[Carried | None] = []
        for batch in batches:
            if batch.header.flags & HAS_HEADERS and TRACEPARENT.encode() in bytes(batch.buffer):
                contexts += map(of_message, batch.headers()[:MESSAGES_MAX])
            if len(contexts) >= MESSAGES_MAX:
                break
        count = sum(batch.count for batch in batches)
        self._tell("publish", topic, count, contexts=contexts[:MESSAGES_MAX])

    def received(self, group: str, found: Sequence[QueuedMessage]) -> None:
        if found:
            first = found[:MESSAGES_MAX]
            places = [(m.topic, m.partition, int(m.offset)) for m in first]
            contexts = [of_message(m.headers) for m in first]
            self._tell(
                "receive", found[0].topic, len(found), places=places, contexts=contexts, group=group
            )

    def settled(
        self, group: str, action: str, outcomes: Sequence[SettleView | GoQueueError]
    ) -> None:
        views = [one for one in outcomes if isinstance(one, SettleView)]
        failed = next((one for one in outcomes if isinstance(one, GoQueueError)), None)
        places = [(v.topic, v.partition, int(v.offset)) for v in views[:MESSAGES_MAX]]
        topic = views[0].topic if views else ""
        self._tell(action, topic, len(outcomes), places=places, group=group, error=failed)

    def _tell(
        self,
        operation: str,
        topic: str,
        count: int,
        *,
        places: Sequence[Place] = (),
        contexts: Sequence[Carried | None] = (),
        group: str = "",
        error: GoQueueError | None = None,
    ) -> None:
        code = "" if error is None else error.code
        work = Work(
            operation,
            self.began_ns,
            self.request,
            topic,
            count,
            places,
            contexts,
            group,
            code,
        )
        self.spans.tell(work)


def traced_request(call: Call) -> TracedRequest | None:
    """None where nobody exports spans: the request has nothing to tell then."""
    spans = call.shared.spans
    if spans is None:
        return None
    return TracedRequest(spans, of_request(call.request.headers), time.time_ns())
