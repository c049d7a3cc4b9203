"""Nodes, replicas and leaders: `goqueue_cluster_*` as in GoQueue; Raft, and moves of replicas."""

from __future__ import annotations

from node.metrics.declare import PAUSE_BUCKETS_S, Declarations
from node.metrics.meaning import Moves, Teller

TOPIC = ("topic",)
PARTITION = ("topic", "partition")
NODE = ("node_id",)


class ClusterMetrics:
    """Of partitions their leaders tell, of the cluster as a whole every node what it sees."""

    def __init__(self, of: Declarations) -> None:
        self._declare_nodes(of)
        self._declare_replicas(of)
        self._declare_replication(of)
        self._declare_elections(of)
        self._declare_raft(of)
        self._declare_links(of)
        self._declare_moves(of)

    def _declare_nodes(self, of: Declarations) -> None:
        view, always = Teller.VIEW, Moves.ALWAYS
        self.nodes_total = of.gauge(
            "goqueue_cluster_nodes_total",
            "Brokers of the cluster",
            told=view,
            moves=always,
        )
        self.nodes_healthy = of.gauge(
            "goqueue_cluster_nodes_healthy",
            "Brokers that this node is linked with, and itself",
            told=view,
            moves=always,
        )
        self.node_state = of.sampled(
            "goqueue_cluster_node_state",
            "1 for the state that a node is in: healthy, dead, wiped, draining",
            ("node_id", "state"),
            told=view,
            moves=always,
        )
        self.is_controller = of.gauge(
            "goqueue_cluster_is_controller",
            "1 where the cluster group is led, else 0",
            told=Teller.NODE,
            moves=always,
        )
        self.controller_elections = of.counter(
            "goqueue_cluster_controller_elections_total",
            "Leaderships of the cluster group that this node has taken",
            told=Teller.NODE,
            moves=always,
        )
        self.controller_age = of.gauge(
            "goqueue_cluster_controller_age_seconds",
            "For how long this node has led the cluster group; 0 where another does",
            told=Teller.NODE,
            moves=always,
        )
        self.partition_count = of.gauge(
            "goqueue_cluster_partition_count",
            "Partitions of all topics",
            told=view,
            moves=Moves.PUBLISH,
        )
        self.finished_level = of.gauge(
            "goqueue_cluster_finished_level",
            "The feature level that the cluster may use: docs/internals/feature-levels.md",
            told=view,
            moves=Moves.CHANGE,
        )
        self.broker_level = of.sampled(
            "goqueue_cluster_broker_level",
            "The highest feature level that a broker's version speaks; above the finished one, an"
            " upgrade waits to be finished",
            NODE,
            told=view,
            moves=Moves.CHANGE,
        )
        self.connected_peers = of.gauge(
            "goqueue_connected_peers",
            "Peers with a live link",
            told=Teller.NODE,
            moves=Moves.CLUSTER,
        )

    def _declare_replicas(self, of: Declarations) -> None:
        leader, cluster = Teller.LEADER, Moves.CLUSTER
        self.leaders_per_node = of.gauge(
            "goqueue_cluster_leaders_per_node",
            "Partitions that a node leads, as it says itself",
            NODE,
            told=Teller.NODE,
            moves=Moves.PUBLISH,
        )
        self.followers_per_node = of.gauge(
            "goqueue_cluster_followers_per_node",
            "Replicas on a node that follow, as it says itself",
            NODE,
            told=Teller.NODE,
            moves=cluster,
        )
        self.isr_size = of.sampled(
            "goqueue_cluster_isr_size",
            "Voters in sync, the leader among them",
            PARTITION,
            told=leader,
            moves=Moves.PUBLISH,
        )
        self.isr_shrinks = of.counter(
            "goqueue_cluster_isr_shrinks_total",
            "How often a voter fell out of sync, as seen at looks and when links go down or up",
            PARTITION,
            told=leader,
            moves=Moves.FAILURE,
        )
        self.isr_expands = of.counter(
            "goqueue_cluster_isr_expands_total",
            "How often a voter came back in sync, seen likewise",
            PARTITION,
            told=leader,
            moves=Moves.FAILURE,
        )
        self.under_replicated_partitions = of.gauge(
            "goqueue_cluster_under_replicated_partitions",
            "Partitions led here with fewer voters in sync than there are, or are wanted",
            told=leader,
            moves=Moves.FAILURE,
        )
        self.offline_partitions = of.gauge(
            "goqueue_cluster_offline_partitions",
            "Partitions without a leader as this node sees it: its replica knows of none, or too "
            "few of those that hold one are there",
            told=Teller.VIEW,
            moves=Moves.FAILURE,
        )
        self.preferred_leader_imbalance = of.gauge(
            "goqueue_cluster_preferred_leader_imbalance",
            "Partitions led here whose first replica is on another node",
            told=leader,
            moves=Moves.CHANGE,
        )

    def _declare_replication(self, of: Declarations) -> None:
        leader, cluster = Teller.LEADER, Moves.CLUSTER
        self.replication_lag = of.sampled(
            "goqueue_cluster_replication_lag",
            "Entries that a replica is behind its leader's log; 0 in step",
            (*PARTITION, "node_id"),
            told=leader,
            moves=Moves.LOADED,
        )
        self.bytes_replicated = of.counter(
            "goqueue_cluster_bytes_replicated_total",
            "Bytes of entries sent to replicas on other nodes",
            TOPIC,
            told=leader,
            moves=cluster,
        )
        self.high_watermark = of.sampled(
            "goqueue_cluster_high_watermark",
            "The offset after the last message that this replica knows to be committed",
            PARTITION,
            told=Teller.REPLICA,
            moves=Moves.PUBLISH,
        )

    def _declare_elections(self, of: Declarations) -> None:
        self.leader_elections = of.counter(
            "goqueue_cluster_leader_elections_total",
            "Leaderships taken: elected where a leader was lost or there was none, handover where "
            "it was handed over",
            ("topic", "election_type"),
            told=Teller.LEADER,
            moves=Moves.PUBLISH,
        )
        self.leader_election_latency = of.histogram(
            "goqueue_cluster_leader_election_latency_seconds",
            "From when the new leader knew of none, or was asked to take over, to when it served",
            TOPIC,
            told=Teller.LEADER,
            moves=Moves.PUBLISH,
            buckets=PAUSE_BUCKETS_S,
        )

    def _declare_raft(self, of: Declarations) -> None:
        leader = Teller.LEADER
        self.term = of.sampled(
            "goqueue_raft_term", "Raft term", PARTITION, told=leader, moves=Moves.PUBLISH
        )
        self.commit_index = of.sampled(
            "goqueue_raft_commit_index",
            "The last entry of the leader's log that a majority holds: its rate is entries",
            PARTITION,
            told=leader,
            moves=Moves.PUBLISH,
        )
        self.commit_lag = of.sampled(
            "goqueue_raft_commit_lag_entries",
            "Entries in the leader's log that no majority holds yet",
            PARTITION,
            told=leader,
            moves=Moves.LOADED,
        )
        self.apply_lag = of.sampled(
            "goqueue_raft_apply_lag_entries",
            "Entries committed and not applied on this replica",
            PARTITION,
            told=Teller.REPLICA,
            moves=Moves.LOADED,
        )
        self.cluster_term = of.gauge(
            "goqueue_cluster_term",
            "Raft term of the cluster group",
            told=Teller.VIEW,
            moves=Moves.ALWAYS,
        )
        self.cluster_commit_index = of.gauge(
            "goqueue_cluster_commit_index",
            "Commit index of the cluster group",
            told=Teller.VIEW,
            moves=Moves.ALWAYS,
        )

    def _declare_links(self, of: Declarations) -> None:
        node, cluster = Teller.NODE, Moves.CLUSTER
        self.network_in_bytes = of.counter(
            "goqueue_cluster_inter_broker_network_in_bytes_total",
            "Bytes received from peers",
            told=node,
            moves=cluster,
        )
        self.network_out_bytes = of.counter(
            "goqueue_cluster_inter_broker_network_out_bytes_total",
            "Bytes sent to peers",
            told=node,
            moves=cluster,
        )
        self.inter_broker_latency = of.histogram(
            "goqueue_cluster_inter_broker_latency_seconds",
            "Round trips of an empty question to a peer, one every two seconds",
            ("target_node_id",),
            told=node,
            moves=cluster,
        )
        self.heartbeats_received = of.counter(
            "goqueue_cluster_heartbeats_received_total",
            "Words of a peer on how it is, two a second",
            NODE,
            told=node,
            moves=cluster,
        )
        self.heartbeats_missed = of.counter(
            "goqueue_cluster_heartbeats_missed_total",
            "How often a linked peer was silent for longer than two of its heartbeats take",
            NODE,
            told=node,
            moves=Moves.FAILURE,
        )
        self.failure_detections = of.counter(
            "goqueue_cluster_failure_detections_total",
            "Links to a peer that were lost: the peer is down, or out of reach",
            NODE,
            told=node,
            moves=Moves.FAILURE,
        )
        self.clock_skew = of.gauge(
            "goqueue_clock_skew_seconds",
            "How far this clock is from the time that a majority agrees on; 0 where none does",
            told=node,
            moves=Moves.FAILURE,
        )
        self.link_connects = of.counter(
            "goqueue_link_connects_total",
            "Links that came up; all but the first are reconnects",
            NODE,
            told=node,
            moves=cluster,
        )
        self.link_frames = of.counter(
            "goqueue_link_frames_total",
            "Frames over the peer link: what one turn of the loop has for a peer is one",
            ("node_id", "direction"),
            told=node,
            moves=cluster,
        )
        self.link_backlog_bytes = of.sampled(
            "goqueue_link_backlog_bytes",
            "Bytes for a peer that its socket has not taken",
            NODE,
            told=node,
            moves=Moves.LOADED,
        )

    def _declare_moves(self, of: Declarations) -> None:
        controller, change = Teller.CONTROLLER, Moves.CHANGE
        self.partitions_under_way = of.gauge(
            "goqueue_partitions_under_way",
            "Partitions whose replicas are not where they should be",
            told=controller,
            moves=change,
        )
        self.waiting_moves = of.gauge(
            "goqueue_waiting_moves",
            "Partitions under way that wait for something",
            told=controller,
            moves=change,
        )
        self.move_bytes_left = of.gauge(
            "goqueue_move_bytes_left",
            "Bytes that the replicas under way have yet to get",
            told=controller,
            moves=change,
        )
        self.move_steps = of.counter(
            "goqueue_move_steps_total",
            "Changes of replicas made by leaders here",
            ("step",),
            told=Teller.LEADER,
            moves=change,
        )
        self.move_steps_refused = of.counter(
            "goqueue_move_steps_refused_total",
            "Changes of replicas not made here",
            told=Teller.LEADER,
            moves=change,
        )
