"""What consumers ask of a node about its queue, and how that ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from delivery.entries.ops import Op, Result
from delivery.leader.dispatcher import Want
from goqueue.wire.types import NodeId, PartitionId


@dataclass(frozen=True, slots=True)
class Done:
    """The operation has applied, with this result; of a receive, what was granted."""

    result: Result
    node: NodeId


@dataclass(frozen=True, slots=True)
class NotDone:
    """It has not applied; with `unknown`, it may have, or may yet."""

    unknown: bool


QueueAnswer = Done | NotDone


@dataclass(slots=True, eq=False)
class Ask:
    """One operation, or a receive that waits up to `wait_s`; `reply` is called at most once."""

    partition_id: PartitionId
    reply: Callable[[QueueAnswer], object]
    op: Op | None = None
    want: Want | None = None
    wait_s: float = 0.0
    is_over: bool = field(default=False)
    """Answered, or given up by who asked."""
