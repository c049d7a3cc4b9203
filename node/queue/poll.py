"""One consumer's request for messages, as the node that was asked carries it to the leaders."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import structs

from delivery.config import LANES_COUNT
from delivery.entries.ops import UNCLAIMED
from goqueue.wire.types import PartitionId
from node.queue.stream_leases import StreamLeases
from node.rpc.queue import GroupRef, StreamTakeRequest, TakeRequest


@dataclass(slots=True)
class Poll:
    """One consumer's request. `partitions` in the order of preference; `generation`, `lowest_lane`
    and a visibility of 0 as in `delivery.leader.dispatcher.Want`."""

    group: GroupRef
    partitions: list[PartitionId]
    member: str
    limit: int
    visibility_ms: int
    max_bytes: int
    generation: int = UNCLAIMED
    lowest_lane: int = LANES_COUNT - 1
    stream: StreamLeases | None = None
    requests: dict[PartitionId, int] = field(default_factory=dict[PartitionId, int])
    """The ids under which partitions were asked whose answer did not come."""
    doubtful: set[PartitionId] = field(default_factory=set[PartitionId])
    """Those of them that may have been granted something nevertheless."""
    unread: set[PartitionId] = field(default_factory=set[PartitionId])
    """Partitions with messages that their leaders could not read, and have set aside."""

    def request(self, wanted: list[tuple[bytes, int]], limit: int, bytes_max: int) -> TakeRequest:
        """For one leader; `wanted` as `TakeRequest.partitions`."""
        request = TakeRequest(
            self.group,
            wanted,
            self.member,
            limit,
            bytes_max,
            self.visibility_ms,
            self.generation,
            self.lowest_lane,
        )
        if self.stream is None:
            return request
        return StreamTakeRequest(**structs.asdict(request), stream=self.stream.stream)
