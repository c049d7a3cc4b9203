"""Empty nodes form one cluster, once; whoever comes later joins it, or is told why not."""

from __future__ import annotations

import dataclasses
import random

from coordinator.brokers.formation import (
    Hello,
    Plan,
    Step,
    cluster_id,
    empty_directories,
    fingerprint,
    plan_formation,
)
from goqueue.wire.types import Incarnation, NodeId, Voter

NAMES = [NodeId("a"), NodeId("b"), NodeId("c")]


def voter(name: str, incarnation: int = 1) -> Voter:
    return Voter(NodeId(name), Incarnation(incarnation))


ALL = tuple(voter(name) for name in NAMES)


def hello(
    name: str,
    incarnation: int = 1,
    *,
    voters: tuple[Voter, ...] = (),
    sees: tuple[Voter, ...] = ALL,
    members: tuple[Voter, ...] = (),
    cluster: int = 0,
) -> Hello:
    """One of a cluster where it names founders or a cluster, else an empty one."""
    cluster = cluster or (cluster_id(voters) if voters else 0)
    seen = fingerprint(sees)
    return Hello(
        NodeId(name), Incarnation(incarnation), not cluster, voters, seen, cluster, members
    )


def plan(me: Hello, *peers: Hello) -> Plan:
    return plan_formation(me, {peer.node: peer for peer in peers}, NAMES)


def test_all_present_and_empty_found_the_cluster_with_all() -> None:
    found = plan(hello("a"), hello("b"), hello("c"))

    assert found == Plan(Step.FOUND, ALL, cluster=cluster_id(ALL))


def test_a_single_configured_node_founds_alone() -> None:
    me = hello("a")

    found = plan_formation(me, {}, [NodeId("a")])

    assert (found.step, found.voters) == (Step.FOUND, (voter("a"),))


def test_a_missing_node_is_waited_for_by_name() -> None:
    found = plan(hello("a"), hello("c"))

    assert found.step is Step.WAIT
    assert "waiting for b" in found.reason


def test_a_peer_that_sees_other_directories_is_waited_for() -> None:
    found = plan(hello("a"), hello("b"), hello("c", sees=ALL[1:]))

    assert found.step is Step.WAIT
    assert "c not ready" in found.reason


def test_a_founder_that_comes_late_begins_with_the_founders() -> None:
    found = plan(hello("a"), hello("b", voters=ALL))

    assert found == Plan(Step.FOUND, ALL, cluster=cluster_id(ALL))


def test_a_wiped_node_is_recognised_by_its_incarnation_and_asks_to_be_let_in() -> None:
    found = plan(hello("a", 2), hello("b", voters=ALL), hello("c", voters=ALL))

    assert (found.step, found.wiped, found.cluster) == (Step.JOIN, True, cluster_id(ALL))
    assert "a is not the one the cluster knows" in found.reason


def test_a_wiped_node_that_joined_later_is_known_by_the_members() -> None:
    members = (voter("a"), voter("b"), voter("c"))

    found = plan(hello("a", 2), hello("b", voters=(voter("b"),), members=members))

    assert (found.step, found.wiped) == (Step.JOIN, True)


def test_a_wiped_founder_is_recognised_as_far_as_a_peer_can_tell_it() -> None:
    """One that is configured alone has nobody to ask, and founds a cluster of its own."""
    wiped = hello("a", 2)

    alone = plan_formation(wiped, {}, [NodeId("a")])
    with_a_peer = plan_formation(wiped, {}, [NodeId("a"), NodeId("b")])
    told = plan_formation(wiped, {NodeId("b"): hello("b", voters=(voter("a"),))}, [NodeId("a")])

    assert (alone.step, with_a_peer.step) == (Step.FOUND, Step.WAIT)
    assert (told.step, told.wiped) == (Step.JOIN, True)


def test_a_new_node_asks_the_cluster_that_exists_to_be_let_in() -> None:
    formed = (voter("b"), voter("c"))

    found = plan(hello("a"), hello("b", voters=formed), hello("c"))

    assert (found.step, found.wiped, found.cluster) == (Step.JOIN, False, cluster_id(formed))


def test_a_node_asks_also_where_nobody_knows_the_founders_any_more() -> None:
    found = plan(hello("a"), hello("b", cluster=7, members=(voter("b"),)))

    assert (found.step, found.wiped, found.cluster) == (Step.JOIN, False, 7)


def test_a_founder_that_is_no_longer_empty_founds_nothing_again() -> None:
    me = Hello(NodeId("a"), Incarnation(1), False)

    assert plan(me, hello("b", voters=ALL)).step is Step.JOIN


def test_peers_of_different_clusters_are_told_of_and_none_is_joined() -> None:
    found = plan(hello("a", 2), hello("b", cluster=7), hello("c", cluster=8))

    assert found.step is Step.WAIT
    assert "different clusters: b, c" in found.reason


def test_two_wiped_of_three_found_nothing_beside_the_survivor() -> None:
    survivor = hello("c", voters=ALL)

    for name in ("a", "b"):
        other = hello("b" if name == "a" else "a", 2)
        assert plan(hello(name, 2), other, survivor).step is Step.JOIN


def test_a_peer_that_holds_groups_but_tells_no_voters_keeps_the_cluster_from_forming() -> None:
    odd = Hello(NodeId("b"), Incarnation(1), False)

    found = plan(hello("a"), odd, hello("c"))

    assert found.step is Step.WAIT
    assert empty_directories(hello("a"), {odd.node: odd}, NAMES) == (voter("a"),)


def test_the_cluster_id_is_the_same_whatever_the_order() -> None:
    assert cluster_id(ALL) == cluster_id(ALL[::-1])
    assert cluster_id(ALL) != cluster_id((*ALL[:2], voter("c", 2)))
    assert 0 < cluster_id(ALL) < 2**64


def test_any_order_of_hellos_forms_at_most_one_cluster() -> None:
    """Nodes come, go and are wiped while they form; hellos may be old."""
    clusters = 0
    for seed in range(300):
        rng = random.Random(seed)
        incarnations = dict.fromkeys(NAMES, 1)
        formed: dict[NodeId, tuple[Voter, ...]] = {}
        heard: dict[NodeId, dict[NodeId, Hello]] = {name: {} for name in NAMES}
        for _ in range(40):
            me = rng.choice(NAMES)
            if rng.random() < 0.05 and not formed:
                incarnations[me] += 1
                heard[me] = {}
            own = _own_hello(me, incarnations, formed, heard)
            if rng.random() < 0.7:
                other = rng.choice([name for name in NAMES if name != me])
                heard[other][me] = own
            found = plan_formation(own, heard[me], NAMES)
            if found.step is Step.FOUND and me not in formed:
                formed[me] = found.voters
        assert len(set(formed.values())) <= 1, (seed, formed)
        clusters += bool(formed)
    assert clusters > 100


def _own_hello(
    me: NodeId,
    incarnations: dict[NodeId, int],
    formed: dict[NodeId, tuple[Voter, ...]],
    heard: dict[NodeId, dict[NodeId, Hello]],
) -> Hello:
    founders = formed.get(me, ())
    cluster = cluster_id(founders) if founders else 0
    own = Hello(me, Incarnation(incarnations[me]), me not in formed, founders, cluster=cluster)
    sees = fingerprint(empty_directories(own, heard[me], NAMES)) if own.empty else ""
    return dataclasses.replace(own, sees=sees)
