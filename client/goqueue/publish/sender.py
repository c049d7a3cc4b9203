"""One partition's way out: batches in order, one request at a time, repeated until it is known.

With identity, a batch keeps its bytes (producer id, epoch, sequence) over every repeat, so the
log recognises what it already has. A batch that failed for certain gives its sequences back; one
whose outcome stayed unknown takes its identity with it, and the next batch starts under a new one.
A named batch needs no identity: the log recognises its messages by their ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from goqueue.background import TaskSet
from goqueue.models.failures import Closed
from goqueue.models.options import ProducerSettings
from goqueue.publish.batches import Batch, Identity
from goqueue.publish.request import BATCH, BatchResult, decode_results
from goqueue.transport.http import Transport, join
from goqueue.transport.spans import SPANS
from goqueue.wire.errors import GoQueueError, OutOfOrder, PayloadTooLarge, ServerError, Timeout

REQUEST_BATCHES_MAX = 16
IDENTITY_GRACE_S = 1.0
"""Asking for an identity ends by itself in time, and then says why; this is for when it doesn't."""
TIME_UP_S = 0.001

log = logging.getLogger(__name__)


class PartitionSender:
    """Sends what is queued, in order; `on_done(batch, error)` is called once for each batch."""

    def __init__(
        self,
        transport: Transport,
        topic: str,
        partition: int,
        settings: ProducerSettings,
        identify: Callable[[bool, float], Awaitable[Identity]] | None,
        on_done: Callable[[Batch, GoQueueError | None], None],
    ) -> None:
        """`identify(fresh, timeout_s)` gives an identity, one that nobody has used yet if `fresh`;
        without it batches have none, and a batch whose outcome is unknown fails."""
        self._transport = transport
        self._topic = topic
        self._partition = partition
        self._settings = settings
        self._identify = identify
        self._on_done = on_done
        self._identity: Identity | None = None
        self._used_identity = False
        self._cause: GoQueueError | None = None  # of the last failure since something went well
        self._queue: deque[Batch] = deque()
        self._owned = TaskSet(None)
        self._task: asyncio.Task[None] | None = None

    def enqueue(self, batch: Batch) -> None:
        """Send this batch after all that were enqueued before."""
        self._queue.append(batch)
        if self._task is None:
            self._task = self._owned.begin(self._run())

    async def stop(self) -> None:
        """Give up; what is queued fails with an unknown outcome if it was ever sent."""
        self._task = None
        await self._owned.stop()
        while self._queue:
            batch = self._queue.popleft()
            sent = batch.encoded is not None
            self._end(
                batch, Closed("the producer was closed", outcome="unknown" if sent else "none")
            )

    async def _run(self) -> None:
        failures = 0
        try:
            while self._queue:
                failures = 0 if await self._send_next() else failures + 1
                if failures:
                    await asyncio.sleep(self._transport.retry.pause_s(failures, 0.0))
        except Exception:
            log.exception("sending to %s:%d stopped", self._topic, self._partition)
            while self._queue:
                self._end(self._queue.popleft(), ServerError("the producer failed"))
        self._task = None

    async def _send_next(self) -> bool:
        """One request; True if it brought the queue on, False to try the same again later."""
        first = self._queue[0]
        try:
            identity = None if first.is_named else await self._known_identity()
        except GoQueueError as error:
            error.outcome = "unknown" if first.attempts_unknown else "none"
            return self._failed(first, error)
        try:
            batches = self._next_request(identity)
        except GoQueueError as error:
            return self._failed(first, error)
        try:
            results = await self._post(batches)
        except GoQueueError as error:
            for batch in batches:
                batch.attempts_unknown += error.outcome == "unknown"
            return self._failed(first, error)
        return self._settle(batches, results)

    def _settle(self, batches: list[Batch], results: list[BatchResult]) -> bool:
        """Take each batch's result, in order, up to the first that failed."""
        for number, (batch, result) in enumerate(zip(batches, results, strict=True)):
            if result.failure is not None:
                for other, its in zip(batches[number:], results[number:], strict=True):
                    # Those behind keep their bytes if they may be stored: a repeat will tell.
                    other.attempts_unknown += its.failure is None or its.failure.outcome != "none"
                return self._failed(batch, result.failure)
            self._queue.popleft()
            self._cause = None
            due = [message.deliver_at_ms for message in batch.accepted]
            batch.deliver(result.published(self._topic, self._partition, due))
            self._on_done(batch, None)
        return True

    async def _known_identity(self) -> Identity | None:
        if self._identify is not None and self._identity is None:
            left_s = self._left_s(self._queue[0])
            if left_s <= TIME_UP_S:
                raise Timeout("not sent in time", outcome="none")
            try:
                async with asyncio.timeout(left_s + IDENTITY_GRACE_S):
                    self._identity = await self._identify(self._used_identity, left_s)
            except TimeoutError:
                raise Timeout("no producer id in time", outcome="none") from None
            self._used_identity = True
        return self._identity

    def _left_s(self, batch: Batch) -> float:
        """How long the batch may still take; something, so that a last attempt is made."""
        timeout_s = self._settings.delivery_timeout_s
        if batch.is_named:
            timeout_s = min(timeout_s, batch.repeats_for_s)
        deadline_s = batch.started_s + timeout_s
        return max(TIME_UP_S, deadline_s - asyncio.get_running_loop().time())

    def _next_request(self, identity: Identity | None) -> list[Batch]:
        """As many whole batches as fit; one by one without identity, so that a repeat repeats
        only what failed. Raises if the first can't be encoded."""
        batches: list[Batch] = []
        size = 0
        codec = self._settings.compression, self._settings.compression_level
        for batch in self._queue:
            if batches and (identity is None or batch.is_named):
                break
            if len(batches) == REQUEST_BATCHES_MAX:
                break
            try:
                size += len(batch.encode(identity, *codec))
            except GoQueueError:
                if not batches:
                    raise
                break
            if batches and size > self._settings.request_bytes_max:
                break
            batches.append(batch)
        return batches

    async def _post(self, batches: list[Batch]) -> list[BatchResult]:
        created = [message.headers for batch in batches for message in batch.accepted]
        with SPANS.sending(self._topic, self._partition, created):
            answer = await self._transport.request(
                "POST",
                join("topics", self._topic, "partitions", self._partition, "messages"),
                body=b"".join(batch.encoded or b"" for batch in batches),
                headers=BATCH,
                repeatable=self._is_repeatable(batches[0]),
                timeout_s=self._left_s(batches[0]),
                towards=(self._topic, self._partition),
            )
        return decode_results(answer, len(batches))

    def _failed(self, batch: Batch, error: GoQueueError) -> bool:
        """Decide what an error means for the first batch of the queue; as `_send_next` answers."""
        in_time = self._left_s(batch) > TIME_UP_S
        never_stored = batch.attempts_unknown == 0 and error.outcome == "none"
        if in_time and error.retriable and (never_stored or self._is_repeatable(batch)):
            self._cause = error
            return False
        if in_time and never_stored and _is_forgotten(error):
            self._start_over()
            return False
        self._queue.popleft()
        if not batch.is_named:
            self._start_over()
        if never_stored and isinstance(error, PayloadTooLarge) and len(batch.accepted) > 1:
            self._queue.extendleft(reversed(batch.halves()))
            return True
        if isinstance(error, Timeout) and self._cause is not None:
            error = GoQueueError.from_body(self._cause.to_body())  # why it took so long
            error.outcome = "none" if never_stored else "unknown"
        else:
            self._cause = error
        if batch.attempts_unknown:
            error.outcome = "unknown"
        self._end(batch, error)
        return True

    def _is_repeatable(self, batch: Batch) -> bool:
        return batch.is_named or self._identify is not None

    def _start_over(self) -> None:
        """Another identity for what follows; what was never stored is encoded anew."""
        if self._identify is None:
            return
        self._identity = None
        for batch in self._queue:
            if batch.attempts_unknown == 0:
                batch.encoded = None

    def _end(self, batch: Batch, error: GoQueueError) -> None:
        batch.fail(error)
        self._on_done(batch, error)


def _is_forgotten(error: GoQueueError) -> bool:
    """The log does not know this producer (any more): it was silent for days."""
    return isinstance(error, OutOfOrder) and error.data.get("expected") == 0
