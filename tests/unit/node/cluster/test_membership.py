"""Whole nodes in one process: who is let in, who is told to stay out, and who votes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs

from coordinator.commands.codec import Command, RegisterBroker, encode_command
from coordinator.commands.placement import DrainBroker, RemoveBroker
from coordinator.topics.partitions import Configuration
from goqueue.wire.errors import GoQueueError, Unavailable
from goqueue.wire.types import CLUSTER_GROUP, Incarnation, Index, NodeId, Voter
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.errors import EntryMissing, WalDamaged
from log.partition.log import UNKNOWN_END, PartitionLog
from log.store.directory import Store
from node.cluster import membership
from node.cluster.admission import ADMIT
from node.cluster.host import ClusterHost
from node.cluster.membership import BrokerMembership
from node.partition.host import PartitionHost
from node.storage.copying.copies import Copies
from raft.link import RemoteError
from tests.ports import free_ports
from tests.unit.node.test_node import append, eventually
from tests.unit.node.three_nodes import NAMES, ThreeNodes, three_nodes

STORAGE = StorageConfig(watermark_percent=0, watermark_bytes=64 << 20)


@pytest.fixture
async def nodes() -> AsyncIterator[ThreeNodes]:
    async with three_nodes() as found:
        yield found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who hears no leader asks soon whether it still belongs to the cluster."""
    monkeypatch.setattr(membership, "LEADERLESS_S", 0.2)


def cluster(nodes: ThreeNodes, name: str) -> ClusterHost:
    return nodes.broker(name).topics._cluster


def configuration(nodes: ThreeNodes, name: str = "n1") -> tuple[str, str]:
    """The cluster group's voters and learners, as one node knows them."""
    raft_group = cluster(nodes, name).raft_group
    assert raft_group is not None
    known = raft_group.membership.configuration
    return _names(known.voters), _names(known.learners)


def _names(voters: tuple[Voter, ...]) -> str:
    return " ".join(voter.node for voter in voters)


async def do(nodes: ThreeNodes, command: Command, name: str = "n1") -> None:
    await cluster(nodes, name).command(command, 10.0)


async def come(nodes: ThreeNodes, name: str) -> None:
    """A node with an empty directory is there, and ready."""
    nodes.disks[name] = MemoryDisk()
    if name not in nodes.ports:
        nodes.ports[name] = free_ports(1)[0]
    await nodes.start(name)
    await eventually(lambda: nodes.broker(name).node.ready().ready, 30)


async def drain(nodes: ThreeNodes, name: str) -> None:
    await do(nodes, DrainBroker(name))
    await eventually(lambda: cluster(nodes, "n1").state.brokers[NodeId(name)].state == "drained")


async def remove(nodes: ThreeNodes, name: str) -> None:
    await drain(nodes, name)
    await do(nodes, RemoveBroker(name))
    await eventually(lambda: name not in " ".join(configuration(nodes)))


async def refusal(ask: Callable[[], object]) -> str:
    """The code of what an attempt is refused with; empty where it is not."""
    try:
        found = ask()
        if asyncio.iscoroutine(found):
            await found
    except GoQueueError as error:
        return error.code
    return ""


async def test_a_fourth_node_follows_and_three_vote(nodes: ThreeNodes) -> None:
    await come(nodes, "n4")

    await eventually(lambda: configuration(nodes, "n4") == ("n1 n2 n3", "n4"))
    noted = cluster(nodes, "n4").state.layout
    await eventually(lambda: (noted.configuration(CLUSTER_GROUP) or _NONE).learners != ())
    assert cluster(nodes, "n4").nodes == {"n1", "n2", "n3", "n4"}


_NONE = Configuration(Index(0), ())


async def test_five_nodes_vote_all_and_a_drained_voter_leaves_its_place(nodes: ThreeNodes) -> None:
    await come(nodes, "n4")
    await come(nodes, "n5")
    await eventually(lambda: configuration(nodes) == ("n1 n2 n3 n4 n5", ""), 30)

    leader = nodes.leader()
    assert leader is not None
    await do(nodes, DrainBroker(leader))

    kept = " ".join(name for name in ("n1", "n2", "n3", "n4", "n5") if name != leader)
    await eventually(lambda: leader not in configuration(nodes)[0].split(), 30)
    await eventually(lambda: leader in configuration(nodes)[1].split(), 30)
    # Four voters bear the loss of no more than three do: one of them leaves, too.
    await eventually(lambda: len(configuration(nodes)[0].split()) == 3, 30)
    assert set(configuration(nodes)[0].split()) <= set(kept.split())
    await nodes.broker(leader).topics.create_topic("t", {})


@pytest.mark.usefixtures("impatient")
async def test_a_removed_node_is_told_and_serves_no_more_nor_after_a_restart(
    nodes: ThreeNodes,
) -> None:
    await come(nodes, "n4")
    await nodes.broker("n1").topics.create_topic("t", {"partitions": 1, "replication_factor": 3})
    with capture_logs() as logs:
        await remove(nodes, "n4")
        gone = nodes.broker("n4")
        await eventually(lambda: cluster(nodes, "n4").outcast is not None)
    kept_out = [one for one in logs if one["event"] == "peer_kept_out"]
    assert {one["log_level"] for one in kept_out} <= {"info"}, "somebody meant it"

    await eventually(lambda: cluster(nodes, "n4").outcast is not None)
    assert "was removed from the cluster" in gone.node.ready().checks["cluster"].message
    assert await refusal(lambda: gone.topics.topic("t")) == "broker_gone"
    assert await refusal(lambda: gone.topics.create_topic("u", {})) == "broker_gone"
    assert await refusal(gone.topics.list_topics) == "broker_gone"
    assert "n4 was removed from the cluster" in gone.node.cluster_view().problems[0]
    assert "n4" not in cluster(nodes, "n1").nodes

    await nodes.stop("n4")
    await nodes.start("n4")
    again = nodes.broker("n4")
    await eventually(lambda: cluster(nodes, "n4").outcast is not None)
    assert await refusal(lambda: again.topics.topic("t")) == "broker_gone"
    assert not again.node.ready().ready


async def test_a_removed_node_joins_again_with_an_empty_directory(nodes: ThreeNodes) -> None:
    await come(nodes, "n4")
    await remove(nodes, "n4")
    await nodes.stop("n4")

    await come(nodes, "n4")

    await eventually(lambda: configuration(nodes) == ("n1 n2 n3", "n4"))


@pytest.mark.usefixtures("impatient")
async def test_a_directory_whose_place_was_taken_is_kept_out_for_good(nodes: ThreeNodes) -> None:
    await nodes.stop("n3")
    old = nodes.disks["n3"]
    await come(nodes, "n3")
    await eventually(lambda: configuration(nodes) == ("n1 n2 n3", ""), 30)
    await nodes.stop("n3")
    taken = nodes.disks["n3"]

    nodes.disks["n3"] = old
    await nodes.start("n3")
    await eventually(lambda: cluster(nodes, "n3").outcast is not None, 30)
    assert await refusal(lambda: nodes.broker("n3").topics.topic("t")) == "broker_wiped"
    await nodes.stop("n3")

    nodes.disks["n3"] = taken
    await nodes.start("n3")
    await eventually(lambda: nodes.broker("n3").node.ready().ready, 30)


async def test_a_node_that_is_there_is_not_replaced_by_another_of_its_name(
    nodes: ThreeNodes,
) -> None:
    await another_is_refused(nodes)


async def test_a_node_that_was_let_in_just_now_is_not_replaced_either(nodes: ThreeNodes) -> None:
    """One that told of itself before this node knew the cluster counted as not heard of until it
    told of itself again."""
    part = part_of(nodes, "n1")
    part._part(NodeId("n3"))
    part._admission._heard_s.clear()
    part.cluster_changed()

    await another_is_refused(nodes)


def part_of(nodes: ThreeNodes, name: str) -> BrokerMembership:
    part = dict(nodes.running[name].services._parts)["cluster"]
    assert isinstance(part, BrokerMembership)
    return part


async def another_is_refused(nodes: ThreeNodes) -> None:
    """Another data directory asks n1 for n3's place, as its link would tell."""
    known, name = cluster(nodes, "n1"), NodeId("n3")
    await eventually(lambda: name in known.state.brokers)
    real = known.state.brokers[name].incarnation
    other = Incarnation(real ^ 1)
    asked = encode_command(RegisterBroker(name, other, "127.0.0.1:1", replaces=True))

    known.hellos[name] = {**known.hellos[name], "incarnation": other}
    with pytest.raises(Unavailable, match="another node that calls itself n3 was here"):
        await part_of(nodes, "n1")._admission._serve(name, asked)

    assert known.state.brokers[name].incarnation == real


@pytest.mark.parametrize("aside", [False, True])
async def test_a_node_whose_log_is_damaged_comes_back_as_a_voter_anew(
    nodes: ThreeNodes, aside: bool
) -> None:
    settings = {"partitions": 1, "replication_factor": 3}
    await nodes.broker("n1").topics.create_topic("t", settings)
    await append(nodes.running["n1"], "a", "b")
    before = cluster(nodes, "n3")._me
    await nodes.stop("n3")
    damage_log(nodes.disks["n3"])

    await nodes.start("n3", set_aside=aside, accept_damage=not aside)
    await eventually(lambda: nodes.broker("n3").node.ready().ready, 30)
    after = cluster(nodes, "n3")._me
    assert after != before
    await eventually(lambda: cluster(nodes, "n2").voters.get(NodeId("n3")) == after.incarnation, 30)
    layout = cluster(nodes, "n2").state.layout
    (partition_id,) = layout.held_by(after)
    await eventually(lambda: after in (layout.configuration(partition_id) or _NONE).voters, 30)
    await eventually(lambda: is_sound(nodes.broker("n3").topics._replicas.find(partition_id)), 30)

    await nodes.stop("n1")
    await nodes.broker("n3").topics.create_topic("u", {"replication_factor": 1})
    await append(nodes.running["n3"], "c")


def is_sound(host: PartitionHost | None) -> bool:
    """Whether a replica may vote as any other."""
    return host is not None and not host.log.suspect and not host.log.quarantined


def damage_log(disk: MemoryDisk) -> None:
    """What a flipped bit in the middle of the newest file does."""
    for path in disk.paths():
        if path.startswith("/data/wal/") and len(content := disk.content(path)) > 4096:
            content[len(bytes(content).rstrip(b"\0")) // 2] ^= 1
    with pytest.raises(WalDamaged):
        Store.open(disk, "/data", STORAGE)


async def test_a_damaged_replica_of_the_cluster_group_is_copied_whole(nodes: ThreeNodes) -> None:
    before = cluster(nodes, "n3").raft_group
    assert before is not None
    log = before.state.log
    assert isinstance(log, PartitionLog)
    await eventually(lambda: (log.latest_snapshot() or (0,))[0] > 2)
    log.quarantine(3, UNKNOWN_END, "as damage would")
    copies = dict(nodes.running["n3"].services._parts)["copies"]
    assert isinstance(copies, Copies)

    copies.transfers.want(CLUSTER_GROUP)

    await eventually(lambda: cluster(nodes, "n3").raft_group not in (None, before), 30)
    await eventually(lambda: not log.quarantined and not log.suspect, 30)
    await eventually(lambda: nodes.broker("n3").node.ready().ready, 30)
    await nodes.stop("n1")
    await nodes.broker("n3").topics.create_topic("v", {"replication_factor": 2})


async def test_a_node_whose_stopped_replica_of_the_cluster_group_was_copied_is_ready_again(
    nodes: ThreeNodes,
) -> None:
    """It told of the replica that had stopped, for good, and was never ready again."""
    before = cluster(nodes, "n3").raft_group
    assert before is not None
    log = before.state.log
    assert isinstance(log, PartitionLog)
    await eventually(lambda: (log.latest_snapshot() or (0,))[0] > 2)
    before.fail(RuntimeError("an entry that is to be applied is damaged"))
    log.quarantine(3, UNKNOWN_END, "as damage would")
    copies = dict(nodes.running["n3"].services._parts)["copies"]
    assert isinstance(copies, Copies)

    copies.transfers.want(CLUSTER_GROUP)

    await eventually(lambda: cluster(nodes, "n3").raft_group not in (None, before), 30)
    await eventually(lambda: nodes.broker("n3").node.ready().ready, 30)


async def test_a_stopped_replica_is_told_of_until_its_topic_is_deleted(nodes: ThreeNodes) -> None:
    """It was told of for good: in the cluster's problems, and in what alerts are made of."""
    status, broker = nodes.running["n3"].status, nodes.broker("n3")
    await broker.topics.create_topic("t", {"partitions": 1, "replication_factor": 3})
    (host,) = broker.topics._replicas.all()
    host.raft_group.fail(RuntimeError("an entry that is to be applied is damaged"))
    assert status.damaged_replicas == 1
    assert any("has stopped" in problem for problem in broker.node.cluster_view().problems)

    await broker.topics.delete_topic("t")

    await eventually(lambda: not broker.topics._replicas.all())
    assert status.damaged_replicas == 0
    assert not any("has stopped" in problem for problem in broker.node.cluster_view().problems)


async def test_a_node_that_joined_runs_nothing_on_a_log_that_is_being_replaced(
    nodes: ThreeNodes,
) -> None:
    """It began by asking to be let in, and took the group it stopped for one it has not got yet."""
    await come(nodes, "n4")
    part, known = part_of(nodes, "n4"), cluster(nodes, "n4")
    await eventually(lambda: part._store.partition_log(CLUSTER_GROUP).last_index > 0)

    part.hold()
    await part._register()
    assert known.raft_group is None

    part.release()
    assert known.raft_group is not None
    await eventually(lambda: nodes.broker("n4").node.ready().ready, 30)


async def test_a_node_asks_on_where_its_group_s_log_was_replaced_as_it_asked(
    nodes: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What keeps it registered ended, for good: it would not even say that it is elsewhere now."""
    part, asked = part_of(nodes, "n3"), asyncio.Event()

    async def ask(*_: object) -> None:
        if not asked.is_set():
            part.hold()
            asked.set()

    monkeypatch.setattr(part._admission, "ask", ask)
    monkeypatch.setattr(part, "_is_forsaken", lambda: not asked.is_set())
    await asyncio.wait_for(asked.wait(), 30)
    await asyncio.sleep(0)
    part.release()
    part.in_zone("b")

    await eventually(lambda: is_in_zone(nodes, "n3", "b"))


async def test_a_node_asks_on_after_any_fault(
    nodes: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, failed = part_of(nodes, "n3"), asyncio.Event()

    def fail() -> None:
        failed.set()
        raise OSError("the disk, say")

    with monkeypatch.context() as faults:
        faults.setattr(part, "_look_at_state", fail)
        await asyncio.wait_for(failed.wait(), 30)
    part.in_zone("b")

    await eventually(lambda: is_in_zone(nodes, "n3", "b"))


def is_in_zone(nodes: ThreeNodes, name: str, zone: str) -> bool:
    """Whether the cluster knows of it."""
    return cluster(nodes, "n1").state.brokers[NodeId(name)].zone == zone


async def test_nodes_that_set_all_aside_found_no_new_cluster_in_its_place(
    nodes: ThreeNodes,
) -> None:
    for name in NAMES:
        await nodes.stop(name)
        damage_log(nodes.disks[name])

    for name in NAMES:
        await nodes.start(name, set_aside=True)
    await eventually(lambda: all(len(cluster(nodes, name).hellos) == 2 for name in NAMES))

    assert all(cluster(nodes, name).raft_group is None for name in NAMES)
    assert not nodes.broker("n1").node.ready().ready


async def test_a_member_goes_on_where_the_group_s_first_entry_is_gone(nodes: ThreeNodes) -> None:
    await come(nodes, "n4")
    await nodes.broker("n4").topics.create_topic("t", {})
    await eventually(lambda: configuration(nodes, "n3") == ("n1 n2 n3", "n4"))
    known = cluster(nodes, "n3")
    id = known.state.cluster_id
    assert known.raft_group is not None
    before, log = known.raft_group.applied_index, known.raft_group.state.log
    await eventually(lambda: (log.latest_snapshot() or (0,))[0] >= before)
    await nodes.stop("n3")
    forget_beginning(nodes.disks["n3"], before)

    await nodes.start("n3")
    await eventually(lambda: nodes.broker("n3").node.ready().ready, 30)

    assert configuration(nodes, "n3") == ("n1 n2 n3", "n4")
    assert cluster(nodes, "n3").state.cluster_id == id
    await nodes.stop("n1")
    await nodes.broker("n3").topics.create_topic("u", {"replication_factor": 2})


def forget_beginning(disk: MemoryDisk, before: Index) -> None:
    """As after a copy from another replica: the log begins behind its snapshot."""
    store = Store.open(disk, "/data", STORAGE)
    log = store.partition_log(CLUSTER_GROUP)
    found = log.latest_snapshot()
    assert found is not None and found[0] >= before
    log.start_at(Index(found[0] + 1))
    with pytest.raises(EntryMissing):
        log.entry(Index(1))
    store.close()


async def test_a_node_of_another_cluster_is_no_part_of_this_one(nodes: ThreeNodes) -> None:
    nodes.ports["n4"] = free_ports(1)[0]
    nodes.disks["n4"] = MemoryDisk()
    await nodes.start("n4", seeds=())
    await eventually(lambda: nodes.broker("n4").node.ready().ready)
    await nodes.stop("n4")

    await nodes.start("n4")
    await eventually(lambda: "n4" in cluster(nodes, "n1").hellos)

    assert not cluster(nodes, "n1").is_present(NodeId("n4"))
    assert not cluster(nodes, "n4").is_present(NodeId("n1"))
    assert cluster(nodes, "n4").state.cluster_id != cluster(nodes, "n1").state.cluster_id
    await eventually(lambda: nodes.broker("n4").node.ready().ready)
    assert set(NAMES) == set(cluster(nodes, "n1").state.brokers)


async def test_a_node_registers_nobody_but_itself_and_its_own_directory(nodes: ThreeNodes) -> None:
    link = nodes.broker("n1").records._partitions.forwarder._mesh
    mine = nodes.broker("n1").topics._cluster._me
    other = RegisterBroker("n2", 7, "127.0.0.1:1", replaces=True)
    stolen = RegisterBroker("n1", Incarnation(mine.incarnation ^ 1), "127.0.0.1:1", replaces=True)

    for command in (other, stolen):
        with pytest.raises(RemoteError) as refused:
            await link.request(NodeId("n2"), ADMIT, encode_command(command), 5.0)
        assert refused.value.error.code == "bad_request"
    assert set(NAMES) == set(cluster(nodes, "n2").state.brokers)
