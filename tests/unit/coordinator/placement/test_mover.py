"""The mover brings truth to desire, from any interruption, with never fewer replicas in sync."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.commands.codec import CreateTopic, DeleteTopic
from coordinator.commands.placement import (
    AddPartitions,
    CancelReassignment,
    DrainBroker,
    Reassign,
    RemoveBroker,
    Row,
    SetReplicationFactor,
    UndrainBroker,
)
from coordinator.placement.mover import AGAIN_MS_MAX, STALLED_MS, Limits, Mover, made
from coordinator.placement.planner import plan_rebalance
from coordinator.placement.steps import ADD_LEARNER, PROMOTE, REMOVE, TRANSFER
from goqueue.wire.types import NodeId
from tests.unit.coordinator.cluster_group import Cluster, broker
from tests.unit.coordinator.placement.replica_world import World

CALM = Limits(leaders_at_once=0)


def world(brokers: int = 4, seed: int = 0, limits: Limits | None = CALM) -> World:
    return World(Cluster(brokers), seed, limits)


def rebalance(world: World, request: int = 0) -> object:
    rows = plan_rebalance(world.cluster.state.layout.picture())
    return world.do(Reassign(rows, "rebalance", request=request)) if rows else None


def nodes_of(world: World, topic: str) -> set[NodeId]:
    placements = world.cluster.topic(topic).partitions
    return {voter.node for placement in placements for voter in placement.replicas}


# what it does


def test_a_replica_moves_learner_first_and_the_old_one_goes_last() -> None:
    w = world(3)
    w.do(CreateTopic("orders", {"partitions": 1}))
    w.do(broker("n3"))
    topic = w.cluster.topic("orders")
    before = list(topic.partitions[0].nodes)
    after = [*before[1:], "n3"]

    w.do(Reassign([Row(topic.id.index, 0, list(before), list(after))]))
    w.settle()

    w.check()
    kinds = [(step.kind, step.voter.node) for step in w.steps]
    assert kinds == [
        (ADD_LEARNER, "n3"),
        (PROMOTE, "n3"),
        (TRANSFER, after[0]),
        (REMOVE, before[0]),
    ]


def test_a_drained_broker_ends_empty_and_can_be_removed() -> None:
    w = world(4)
    w.do(CreateTopic("orders", {"partitions": 12}))
    w.do(DrainBroker("n1"))

    w.settle()

    w.check()
    assert w.cluster.state.brokers[NodeId("n1")].state == "drained"
    assert nodes_of(w, "orders") == {"n0", "n2", "n3"}
    w.do(RemoveBroker("n1"))
    assert NodeId("n1") not in w.cluster.state.brokers


def test_a_drain_is_planned_with_its_throttle() -> None:
    w = world(4)
    w.do(CreateTopic("orders", {"partitions": 12}))
    w.do(DrainBroker("n1", throttle_bytes_s=1 << 20))
    w.settle()

    plans = w.cluster.state.layout.reassignments.by_id.values()
    assert {one.throttle_bytes_s for one in plans if one.cause == "drain"} == {1 << 20}


def test_a_wiped_broker_gets_its_replicas_anew() -> None:
    w = world(3)
    w.do(CreateTopic("orders", {"partitions": 4}))

    w.wipe(NodeId("n1"))
    w.settle()

    w.check()
    voters = w.cluster.topic("orders").partitions[0].replicas
    assert {(voter.node, voter.incarnation) for voter in voters} == {
        ("n0", 7),
        ("n1", 8),
        ("n2", 7),
    }


def test_a_dead_broker_is_drained_all_the_same() -> None:
    w = world(4)
    w.do(CreateTopic("orders", {"partitions": 8}))
    w.kill(NodeId("n2"))
    w.do(DrainBroker("n2"))

    w.settle()

    w.check()
    assert nodes_of(w, "orders") == {"n0", "n1", "n3"}


def test_a_higher_replication_factor_is_reached() -> None:
    w = world(4)
    w.do(CreateTopic("orders", {"partitions": 4, "replication_factor": 1}))
    topic = w.cluster.topic("orders")

    w.do(SetReplicationFactor("orders", str(topic.id), 3))
    w.settle()

    w.check()
    assert all(len(one.replicas) == 3 for one in w.cluster.topic("orders").partitions)
    w.do(SetReplicationFactor("orders", "", 2))
    w.settle()
    w.check()


def test_a_cancelled_reassignment_goes_back_and_what_has_arrived_stays() -> None:
    w = world(3, limits=Limits(moves_max=1, leaders_at_once=0))
    w.do(CreateTopic("orders", {"partitions": 4}))
    before = [p.replicas for p in w.cluster.topic("orders").partitions]
    w.do(broker("n3"))
    begun = rebalance(w)
    layout = w.cluster.state.layout
    while layout.reassignments.by_id[begun.id].left > 1:  # type: ignore[attr-defined]
        w.turn()
    w.turn()

    w.do(CancelReassignment(begun.id))  # type: ignore[attr-defined]
    w.settle()

    w.check()
    done = layout.reassignments.by_id[begun.id]  # type: ignore[attr-defined]
    assert done.state == "cancelled"
    states = [move.state for move in done.moves]
    assert states.count("returned") == 1
    assert states.count("arrived") == len(states) - 1
    after = [p.replicas for p in w.cluster.topic("orders").partitions]
    assert sum(a != b for a, b in zip(before, after, strict=True)) == states.count("arrived")


def test_an_undrained_broker_keeps_what_it_still_has() -> None:
    w = world(4, limits=Limits(moves_max=1, leaders_at_once=0))
    w.do(CreateTopic("orders", {"partitions": 8}))
    w.do(DrainBroker("n1"))
    for _ in range(20):
        w.turn()

    w.do(UndrainBroker("n1"))
    w.settle()

    w.check()
    assert w.cluster.state.brokers[NodeId("n1")].state == "active"
    assert "n1" in nodes_of(w, "orders")


def test_only_a_few_move_at_once_and_few_to_one_broker() -> None:
    w = world(3, limits=Limits(moves_max=5, broker_moves_max=2, leaders_at_once=0))
    w.do(CreateTopic("orders", {"partitions": 24}))
    w.do(broker("n3"))

    rebalance(w)
    w.settle()

    w.check()
    assert w.learners_max == 2


def test_where_all_is_well_nothing_is_done() -> None:
    w = world(3)
    w.do(CreateTopic("orders", {"partitions": 6}))

    assert rebalance(w) is None
    assert not any(w.turn() for _ in range(10))
    assert w.mover.next_wake_ms(w.now_ms) is None


def test_leaders_drift_back_into_balance_by_themselves_and_no_replica_moves() -> None:
    w = world(3, limits=Limits(leaders_at_once=2))
    w.do(CreateTopic("orders", {"partitions": 6}))
    topic = w.cluster.topic("orders")
    rows = []
    for number, placement in enumerate(topic.partitions):
        nodes = sorted(placement.nodes)
        if nodes != list(placement.nodes):
            rows.append(Row(topic.id.index, number, list(placement.nodes), list(nodes)))
    w.do(Reassign(rows))
    assert w.cluster.state.layout.leaders[NodeId("n0")] == 6

    for _ in range(2000):
        w.turn()

    assert set(w.cluster.state.layout.leaders.values()) == {2}
    assert w.steps == []


def test_a_partition_that_is_stuck_makes_room_for_others() -> None:
    w = world(4, limits=Limits(moves_max=1, broker_moves_max=1, leaders_at_once=0))
    w.do(CreateTopic("orders", {"partitions": 2, "replication_factor": 1}))
    topic = w.cluster.topic("orders")
    homes = [placement.preferred for placement in topic.partitions]
    free = sorted({"n0", "n1", "n2", "n3"} - set(homes))
    w.kill(NodeId(free[0]))
    w.do(Reassign([Row(topic.id.index, 0, [homes[0]], [free[0]])]))
    w.do(Reassign([Row(topic.id.index, 1, [homes[1]], [free[1]])]))

    for _ in range((STALLED_MS + 3 * AGAIN_MS_MAX) // 100):
        w.turn()

    assert w.cluster.topic("orders").partitions[1].preferred == free[1]
    assert [partition_id.partition for partition_id in w.cluster.state.layout.moving] == [0]
    w.revive(NodeId(free[0]))
    w.settle()
    w.check()


def test_a_voter_that_is_in_sync_stays_until_as_many_others_are() -> None:
    w = world(4)
    w.do(CreateTopic("orders", {"partitions": 1}))
    topic = w.cluster.topic("orders")
    before = topic.partitions[0].nodes
    spare = next(iter({NodeId(f"n{at}") for at in range(4)} - set(before)))
    w.kill(before[0])
    w.do(Reassign([Row(topic.id.index, 0, list(before), [before[0], before[1], spare])]))

    for _ in range(200):
        w.turn()

    partition_id = next(iter(w.partitions))
    assert len(w.partitions[partition_id].configuration.voters) == 4
    assert w.mover.waiting[partition_id] == f"waiting for {before[0]} to be in sync"
    w.revive(before[0])
    w.settle()
    w.check()


def test_a_step_nobody_heard_of_is_undone_after_the_plan_was_cancelled() -> None:
    w = world(4)
    w.do(CreateTopic("orders", {"partitions": 1}, avoid=["n3"]))
    topic = w.cluster.topic("orders")
    before = topic.partitions[0].nodes
    begun = w.do(Reassign([Row(topic.id.index, 0, list(before), [*before[:2], "n3"])]))
    w.turn()
    (step,) = w.mover.collect(w.now_ms).steps
    w.take(step)
    w.do(CancelReassignment(begun.id))  # type: ignore[attr-defined]
    assert w.is_settled()

    w.new_mover()
    w.settle()

    w.check()


def test_a_plan_that_is_made_elsewhere_is_proposed_once_it_is_there() -> None:
    w = world(4)
    w.do(CreateTopic("orders", {"partitions": 12}))
    w.do(DrainBroker("n1"))
    mover = Mover(lambda: w.cluster.state.layout, CALM, leaves_plans=True)

    work = mover.collect(100)
    (planning,) = work.plans
    assert not work.commands
    assert not mover.collect(200).plans, "it is being made"

    mover.planned(planning, made(planning), 300)
    assert mover.next_wake_ms(300) == 300
    (command,) = mover.collect(300).commands
    assert isinstance(command, Reassign)
    assert (command.cause, command.brokers) == ("drain", ["n1"])
    assert not mover.collect(400).commands, "it is under way"


# any interruption

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "turns",
                "turns",
                "turns",
                "mover_dies",
                "kill",
                "revive",
                "wipe",
                "drain",
                "undrain",
                "add_broker",
                "rebalance",
                "cancel",
                "late",
                "topic",
                "delete",
                "grow",
                "factor",
                "restart",
            ]
        ),
        st.integers(0, 20),
    ),
    max_size=30,
)


def act(w: World, action: str, which: int) -> None:
    state = w.cluster.state
    nodes = sorted(state.brokers)
    node = nodes[which % len(nodes)]
    topics = sorted(state.topics)
    name = topics[which % len(topics)] if topics else ""
    match action:
        case "turns":
            for _ in range(which):
                w.turn(loses=0.2)
        case "mover_dies":
            w.new_mover()
        case "kill" if w.survives(node):
            w.kill(node)
        case "revive":
            w.revive(node)
        case "wipe" if w.survives(node):
            w.wipe(node)
        case "drain":
            w.do(DrainBroker(node))
        case "undrain":
            w.do(UndrainBroker(node))
        case "add_broker" if len(nodes) < 7:
            w.do(broker(f"n{len(nodes)}", zone=f"z{which % 3}"))
        case "rebalance":
            rebalance(w)
        case "cancel":
            for one in state.layout.reassignments.running():
                w.do(CancelReassignment(one.id))
        case "late":
            w.late_arrive()
        case "topic" if len(topics) < 4:
            factor = min(1 + which % 3, state.layout.takers)
            w.do(
                CreateTopic(
                    f"t{which}", {"partitions": 1 + which % 4, "replication_factor": factor}
                )
            )
        case "delete" if which == 0 and name:
            w.do(DeleteTopic(name))
        case "grow" if name:
            w.do(AddPartitions(name, len(state.topics[name].partitions) + 1))
        case "factor" if name:
            w.do(SetReplicationFactor(name, "", 1 + which % 3))
        case "restart":
            restored = type(state).restore(state.snapshot())
            assert restored.snapshot() == state.snapshot()
            assert sorted(restored.layout.moving) == sorted(state.layout.moving)
            assert +restored.layout.held == +state.layout.held
            w.cluster.state = restored
        case _:
            return


@given(ACTIONS, st.integers(0, 1000))
def test_every_plan_ends_in_what_is_desired_whatever_interrupts_it(
    actions: list[tuple[str, int]], seed: int
) -> None:
    w = world(4, seed, Limits(moves_max=3, broker_moves_max=1, leaders_at_once=0))
    w.do(CreateTopic("orders", {"partitions": 3}))
    w.do(CreateTopic("single", {"partitions": 2, "replication_factor": 1}))

    for action, which in actions:
        act(w, action, which)
    for node in sorted(w.cluster.state.brokers):
        w.revive(node)
    w.late_arrive()
    w.settle()

    w.check()
    layout = w.cluster.state.layout
    for node, one in w.cluster.state.brokers.items():
        assert one.state in ("active", "drained")
        assert one.state == "active" or layout.held[node] == 0
    assert w.learners_max <= max(3, len(w.partitions))
