"""Which replicas of a node are damaged, as nodes tell each other in their hellos.

A damaged replica keeps its place, acknowledges and catches up: what Raft knows of it does not tell
that it can't read what it holds. A move must not count it among those that are in sync, or it might
take away the only replica from which it can be healed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goqueue.wire.types import PartitionId
from log.store.directory import Store

DAMAGED = "damaged"
TOLD_MAX = 256
"""With more damaged replicas, a node tells that all of them are: nothing is moved off others on
its account until most are healed."""
ALL = "*"


def damaged_replicas(store: Store) -> list[str]:
    """What to tell of this node's own."""
    found = store.damaged_ids
    return [str(one) for one in sorted(found)] if len(found) <= TOLD_MAX else [ALL]


def is_damaged(hello: Mapping[str, Any], partition_id: PartitionId) -> bool:
    """Whether a node has told that its replica of this group is damaged; nodes of 0.1.0 tell
    nothing."""
    told = hello.get(DAMAGED)
    return isinstance(told, list) and (ALL in told or str(partition_id) in told)
