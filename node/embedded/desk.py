"""The everyday calls of a program on its own directory, asked of the broker without a request.

A request through the front costs such a program more than the broker's work and the sync together.
What a desk does not take comes by a request, which is judged by the same broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from goqueue.wire.batch import RecordBatch
from goqueue.wire.compression import Codec
from goqueue.wire.errors import GoQueueError, PayloadTooLarge
from node.api.claims import Claim
from node.api.queue import QueuedMessage, SettleRequest, SettleView
from node.api.records import AppendResult
from node.api.rules.groups import EVERY_GROUPS
from node.broker.node import NodeBroker

LIMIT_MAX = 1000
"""Messages of one `take`."""
_PROGRAM = Claim(maker=EVERY_GROUPS)


class Desk:
    """Loop thread only. Whoever has the directory open may do everything in it."""

    def __init__(self, broker: NodeBroker, wait_s_max: float) -> None:
        self._broker = broker
        self._wait_s_max = wait_s_max

    def append(self, topic: str, batch: bytes) -> tuple[int, asyncio.Future[AppendResult | None]]:
        """Append one batch without keys and delays, made by this version's library, to a partition
        of the desk's choice: its number, and where the batch is. None, and nothing stored, where
        the topic compacts or compresses. Raises UnknownTopic, PayloadTooLarge, and what
        `NodeRecords.append_here` does."""
        topics, records = self._broker.topics, self._broker.records
        if topics.is_compacted(topic) or Codec.named(topics.compression(topic)) is not Codec.NONE:
            nowhere: asyncio.Future[AppendResult | None]
            nowhere = asyncio.get_running_loop().create_future()
            nowhere.set_result(None)
            return 0, nowhere
        found = RecordBatch.parse(batch)
        bound = topics.max_message_bytes(topic)
        if len(batch) > bound and max(found.value_lengths()) > bound:
            raise PayloadTooLarge(f"a value over the topic's {bound} bytes", limit=bound)
        partition = records.pick_partition(topic, found.count)
        appended: asyncio.Future[Any] = records.append_here(topic, partition, found)
        return partition, appended

    async def take(
        self, group: str, topic: str, limit: int, wait_s: float, visibility_ms: int | None
    ) -> list[QueuedMessage]:
        """Lease up to `limit` messages, waiting up to `wait_s` for the first; raises as
        `Queue.receive`. A caller that is cancelled has leased nothing for good."""
        return await self._broker.queue.receive(
            group,
            (topic,),
            claim=_PROGRAM,
            limit=min(limit, LIMIT_MAX),
            wait_s=min(wait_s, self._wait_s_max),
            visibility_ms=visibility_ms,
        )

    async def settle(
        self, group: str, receipts: Sequence[str], action: str
    ) -> list[SettleView | GoQueueError]:
        """Each receipt's own end, in order: `ack` or `release`. Raises UnknownGroup."""
        requests = [SettleRequest(receipt, action) for receipt in receipts]
        return await self._broker.receipts.settle(requests, group, _PROGRAM)
