"""What counts or moves messages the second time, too, is sent under a request id."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

from delivery.entries.ops import Op, Purged, Redriven
from goqueue.wire.types import PartitionId, TopicId
from node.peers.forwarding import Forwarder
from node.peers.link import NoPeers
from node.queue.operations import Operations
from node.replicas.partition_service import PartitionService
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.queue import OpsAnswer, OpsRequest

PARTITION = PartitionId(TopicId(7, 1), 0)


def operations(sent: list[bytes]) -> Operations:
    """Whose requests are kept, and answered with nothing."""

    async def call(
        _partition_id: PartitionId, *, method: str, payload: Any, **_named: object
    ) -> OpsAnswer:
        assert method == queue_rpc.OPS
        sent.extend((payload(9.0), payload(1.0)))
        return OpsAnswer([])

    forwarder = cast(Forwarder, SimpleNamespace(call=call))
    return Operations(cast(PartitionService, None), forwarder, NoPeers(), random.Random(1))


async def test_what_would_count_twice_is_named_before_it_is_sent() -> None:
    sent: list[bytes] = []
    ops: list[Op] = [Purged(3, [10]), Redriven(3, [1], 4)]

    await operations(sent).put(PARTITION, ops)

    first, again = (rpc.decode_request(payload, OpsRequest).ops for payload in sent)
    requests = [op.request for op in first if isinstance(op, Purged | Redriven)]
    assert first == again
    assert len(set(requests)) == 2
    assert all(requests)
