"""What a node says of itself and of the partitions that it leads."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from goqueue.wire.types import Incarnation, NodeId, PartitionId, TopicId, Voter
from node.metrics import Metrics
from node.observe.replay_watch import STALLED_S, ReplayWatch
from node.observe.status import LAGGING, UNDER_REPLICATED, NodeStatus
from node.runtime.looks import Looks
from node.runtime.loop_lag import LoopLag

GROUP = PartitionId(TopicId(1, 7), 0)


def replicas(names: str) -> tuple[Voter, ...]:
    return tuple(Voter(NodeId(name), Incarnation(1)) for name in names.split())


def status(
    voters: str,
    in_sync: str,
    wanted: str,
    *,
    moves: bool = False,
    told: dict[str, Any] | None = None,
) -> NodeStatus:
    """Of a node that leads one partition; `told` is by peers."""
    host = SimpleNamespace(id=GROUP, voters=replicas(voters), in_sync=in_sync.split, rests=False)
    host.is_leader, host.raft_group = True, SimpleNamespace(peers={})
    placement = SimpleNamespace(replicas=replicas(wanted), nodes=wanted.split())
    moving = SimpleNamespace(of=lambda _partition: moves or None)
    layout = SimpleNamespace(reassignments=moving, placement=lambda _group: placement)
    state = SimpleNamespace(placement=lambda _group: placement, layout=layout, applied_index=1)
    kept = SimpleNamespace(led=lambda: [host], all=lambda: [host], are_replaying=False)
    kept.looks, kept.find = lambda: Looks(kept.all), lambda _id: host
    parts: dict[str, Any] = {
        "config": SimpleNamespace(node_id="n1"),
        "store": SimpleNamespace(damaged_ids=set()),
        "cluster": SimpleNamespace(state=state, hellos=told or {}),
        "replicas": kept,
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


@pytest.mark.parametrize(
    ("voters", "in_sync", "wanted", "moves", "lagging"),
    [
        ("n1 n2 n3", "n1 n2 n3", "n1 n2 n3", False, {}),
        ("n1 n2 n3", "n1 n2", "n1 n2 n3", False, {"n3": 1}),
        ("n1 n2", "n1 n2", "n1 n2 n3", False, {"n3": 1}),
        ("n1 n2", "n1 n2", "n1 n2 n3", True, {}),
        ("n1 n2", "n1", "n1 n2 n3", True, {"n2": 1}),
        ("n1", "n1", "n1", False, {}),
    ],
    ids=["whole", "lags", "was wiped", "is being moved to", "lags beside a move", "alone"],
)
def test_a_leader_tells_whose_replicas_lag_but_not_those_that_a_move_has_not_brought_yet(
    voters: str, in_sync: str, wanted: str, moves: bool, lagging: dict[str, int]
) -> None:
    assert status(voters, in_sync, wanted, moves=moves).hello()[LAGGING] == lagging


def test_peers_are_told_with_one_look_at_each_partition() -> None:
    one, looks = status("n1 n2", "n1 n2", "n1 n2"), list[int]()
    (host,) = one._replicas.led()
    cast(Any, host).in_sync = lambda: looks.append(1) or ["n1", "n2"]

    one.hello()

    assert len(looks) == 1


def test_a_partition_at_rest_is_looked_at_again_once_it_is_to_have_other_replicas() -> None:
    one = status("n1 n2", "n1 n2", "n1 n2")
    (host,) = one._replicas.led()
    cast(Any, host).rests = True
    assert one.hello()[UNDER_REPLICATED] == 0

    state = cast(Any, one._cluster.state)
    state.applied_index, wanted = 2, SimpleNamespace(replicas=replicas("n1 n2 n3"), nodes=["n3"])
    state.placement = state.layout.placement = lambda _group: wanted
    assert one.hello()[UNDER_REPLICATED] == 1
    assert one.hello()[UNDER_REPLICATED] == 1, "until it has them"

    cast(Any, host).voters, cast(Any, host).in_sync = wanted.replicas, "n1 n2 n3".split
    assert one.hello()[UNDER_REPLICATED] == 0


def test_a_node_is_behind_as_others_lead_and_tells_who_else_is() -> None:
    told = {"n2": {LAGGING: {"n1": 2, "n3": 1}}, "n3": {LAGGING: {"n1": 1}}, "n4": {}}
    one = status("n1 n2 n3", "n1 n2", "n1 n2 n3", told=told)

    assert one.behind_here() == "3 partitions are not in sync here"
    assert one.lagging_elsewhere() == "2 partitions on n3"
    assert status("n1", "n1", "n1").behind_here() == ""


@pytest.mark.parametrize(
    ("late_s", "is_ready"),
    [
        ([2.5], False),
        ([2.5, *[0.0] * 9], False),
        ([2.5, *[0.0] * 10], True),
        ([1.9] * 3, True),
    ],
    ids=["stalled now", "within the last second", "on time for a second", "slow"],
)
def test_a_node_is_ready_a_second_after_its_event_loop_has_stalled(
    late_s: list[float], is_ready: bool
) -> None:
    """It was not for ten, though it served: others had its share meanwhile, and stalled next."""
    lag = LoopLag(Metrics())
    lag._samples = late_s
    found = node_status(lag=lag).readiness()

    assert found.checks["loop"].status == ("pass" if is_ready else "fail")
    assert found.ready is is_ready


@pytest.mark.parametrize(
    ("enabled", "file", "keys", "is_ready"),
    [
        (True, "/admin-key", {}, False),
        (True, "/admin-key", {"root": "any, revoked or not"}, True),
        (True, "", {}, True),
        (False, "/admin-key", {}, True),
    ],
)
def test_a_node_that_lets_nobody_in_is_not_ready_until_the_first_admin_key_holds(
    enabled: bool, file: str, keys: dict[str, str], is_ready: bool
) -> None:
    auth = SimpleNamespace(enabled=enabled, admin_key_file=file)
    found = node_status(auth, keys).readiness()

    assert found.ready is is_ready
    assert [name for name, check in found.checks.items() if check.status == "fail"] == (
        [] if is_ready else ["keys"]
    )


def test_a_node_that_still_applies_what_its_logs_held_is_not_ready() -> None:
    why = "2 replicas still apply what their logs held at the start"
    found = node_status(not_caught_up=why).readiness()

    assert not found.ready
    assert (found.checks["replay"].status, found.checks["replay"].message) == ("fail", why)


def test_a_node_that_has_not_met_what_the_state_names_here_is_not_ready() -> None:
    found = node_status(is_behind=True).readiness()

    assert (found.ready, found.checks["replay"].status) == (False, "fail")
    assert node_status(is_behind=False).readiness().ready


def test_a_node_that_was_ready_stays_so_while_a_replica_is_renewed() -> None:
    node = node_status()
    assert node.readiness().ready

    node._replay = ReplayWatch(Replay("1 replica applies a copied log", 1))

    assert node.readiness().ready


def test_replicas_that_can_not_go_on_do_not_keep_a_node_from_being_ready() -> None:
    """Given a replica whose next entries were trimmed elsewhere, or are of a later version, beside
    one that applies its log; when the other one is done, then the node is ready soon."""
    now_s = 100.0
    replicas = Replay("2 replicas still apply", 7)
    node = node_status()
    node._replay = ReplayWatch(replicas, lambda: now_s)

    for _ in range(5):  # what gets on is waited for, however long it takes
        replicas.replayed = (replicas.replayed or 0) + 1000
        assert not node.readiness().ready
        now_s += STALLED_S
    replicas.not_caught_up, replicas.replayed = "1 replicas still apply", 7
    assert not node.readiness().ready
    now_s += STALLED_S - 0.1
    assert not node.readiness().ready
    now_s += 0.1
    assert node.readiness().ready


def test_a_node_is_not_ready_while_its_replicas_are_started_however_long_that_takes() -> None:
    now_s = 100.0
    node = node_status()
    node._replay = ReplayWatch(Replay("the replicas are being started", None), lambda: now_s)

    assert not node.readiness().ready
    now_s += 10 * STALLED_S
    assert not node.readiness().ready


@dataclass
class Replay:
    """Replicas, as far as they apply their logs again."""

    not_caught_up: str | None
    replayed: int | None


def node_status(
    auth: object = SimpleNamespace(enabled=False),
    keys: object = None,
    lag: LoopLag | None = None,
    not_caught_up: str | None = None,
    *,
    is_behind: bool = False,
) -> NodeStatus:
    """A node's that lacks nothing else."""
    parts: dict[str, Any] = {
        "config": SimpleNamespace(node_id="n1", auth=auth),
        "store": SimpleNamespace(failed=None, partition_ids=list),
        "cluster": SimpleNamespace(
            state=SimpleNamespace(keys=SimpleNamespace(by_id=keys)),
            not_ready=lambda: None,
            is_newest=True,
        ),
        "replicas": SimpleNamespace(
            not_caught_up=not_caught_up,
            replayed=0,
            looks=lambda: None,
            are_behind=lambda _state: is_behind,
        ),
        "topology": None,
        "lag": lag or LoopLag(Metrics()),
        "space": None,
        "disks": None,
    }
    return NodeStatus(**cast(Any, parts))
