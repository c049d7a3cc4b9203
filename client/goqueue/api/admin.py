"""`AsyncClient.admin`: what an operator does to the cluster, and to what others use."""

from __future__ import annotations

from goqueue.admin.brokers import Brokers
from goqueue.admin.cluster import WholeCluster
from goqueue.admin.groups import GroupAdmin
from goqueue.admin.moves import Moves
from goqueue.admin.redrives import Redrives
from goqueue.admin.topics import TopicAdmin
from goqueue.api.parts import Part
from goqueue.publish.metadata import KnownTopics
from goqueue.transport.calls import Calls

_brokers = Part[Brokers]("_brokers")
_moves = Part[Moves]("_moves")
_cluster = Part[WholeCluster]("_cluster")
_topics = Part[TopicAdmin]("_topics")
_groups = Part[GroupAdmin]("_groups")
_redrives = Part[Redrives]("_redrives")


class AsyncAdmin:
    """The calls for operators; from `AsyncClient.admin`, whose connections it uses."""

    def __init__(self, calls: Calls, known: KnownTopics) -> None:
        self._brokers = Brokers(calls)
        self._moves = Moves(calls)
        self._cluster = WholeCluster(calls)
        self._topics = TopicAdmin(calls, known)
        self._groups = GroupAdmin(calls)
        self._redrives = Redrives(calls)

    brokers = _brokers(Brokers.brokers)
    broker = _brokers(Brokers.broker)
    plan_drain = _brokers(Brokers.plan_drain)
    drain_broker = _brokers(Brokers.drain_broker)
    undrain_broker = _brokers(Brokers.undrain_broker)
    remove_broker = _brokers(Brokers.remove_broker)

    plan_rebalance = _moves(Moves.plan_rebalance)
    rebalance = _moves(Moves.rebalance)
    plan_moves = _moves(Moves.plan_moves)
    reassign = _moves(Moves.reassign)
    reassignments = _moves(Moves.reassignments)
    reassignment = _moves(Moves.reassignment)
    cancel_reassignment = _moves(Moves.cancel_reassignment)

    cluster = _cluster(WholeCluster.cluster)
    cluster_nodes = _cluster(WholeCluster.cluster_nodes)
    cluster_health = _cluster(WholeCluster.cluster_health)
    stats = _cluster(WholeCluster.stats)
    level = _cluster(WholeCluster.level)
    cluster_version = _cluster(WholeCluster.cluster_version)
    plan_upgrade = _cluster(WholeCluster.plan_upgrade)
    finish_upgrade = _cluster(WholeCluster.finish_upgrade)

    add_partitions = _topics(TopicAdmin.add_partitions)
    report_archived = _topics(TopicAdmin.report_archived)

    assign_group = _groups(GroupAdmin.assign_group)
    resume_group = _groups(GroupAdmin.resume_group)
    park_key = _groups(GroupAdmin.park_key)
    release_key = _groups(GroupAdmin.release_key)
    parked_keys = _groups(GroupAdmin.parked_keys)
    members = _groups(GroupAdmin.members)
    rebalances = _groups(GroupAdmin.rebalances)
    reset_offsets = _groups(GroupAdmin.reset_offsets)

    redrive = _redrives(Redrives.redrive)
    redrives = _redrives(Redrives.redrives)
    redrive_job = _redrives(Redrives.redrive_job)
    stop_redrive = _redrives(Redrives.stop_redrive)
    purge = _redrives(Redrives.purge)
