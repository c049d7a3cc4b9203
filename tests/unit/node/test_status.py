"""What a node says of itself and of the partitions that it leads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from goqueue.wire.types import GroupId, Incarnation, NodeId, TopicId, Voter
from node.status import UNDER_REPLICATED, NodeStatus

GROUP = GroupId(TopicId(1, 7), 0)


def replicas(names: str) -> tuple[Voter, ...]:
    return tuple(Voter(NodeId(name), Incarnation(1)) for name in names.split())


def status(voters: str, in_sync: str, wanted: str) -> NodeStatus:
    """Of a node that leads one partition."""
    host = SimpleNamespace(id=GROUP, voters=replicas(voters), in_sync=in_sync.split)
    placement = SimpleNamespace(replicas=replicas(wanted))
    state = SimpleNamespace(placement=lambda _group: placement)
    parts: dict[str, Any] = {
        "config": SimpleNamespace(node_id="n1"),
        "store": None,
        "cluster": SimpleNamespace(state=state),
        "replicas": SimpleNamespace(led=lambda: [host], all=lambda: [host], are_replaying=False),
        "topology": None,
        "lag": None,
        "space": SimpleNamespace(room_bytes=0),
        "disks": SimpleNamespace(hello=dict),
    }
    return NodeStatus(**cast(Any, parts))


@pytest.mark.parametrize(
    ("voters", "in_sync", "wanted", "count"),
    [
        ("n1 n2 n3", "n1 n2 n3", "n1 n2 n3", 0),
        ("n1 n2 n3", "n1 n2", "n1 n2 n3", 1),
        ("n1 n2", "n1 n2", "n1 n2 n3", 1),
        ("n1 n2 n3", "n1 n2 n3", "n2 n3 n4", 0),
        ("n1 n2 n3 n4", "n2 n3 n4", "n2 n3 n4", 1),
    ],
    ids=["whole", "one lags", "one still learns", "one is being replaced", "one too many lags"],
)
def test_a_partition_is_under_replicated_until_all_that_are_wanted_vote_in_sync(
    voters: str, in_sync: str, wanted: str, count: int
) -> None:
    assert status(voters, in_sync, wanted).hello()[UNDER_REPLICATED] == count
