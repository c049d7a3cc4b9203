"""Replication and disks: the page for whoever runs the nodes."""

from __future__ import annotations

from monitoring.dashboards import deployment
from monitoring.dashboards.model import (
    NODE,
    TOPIC,
    Dashboard,
    Kind,
    Panel,
    Query,
    Row,
    Unit,
    quantiles,
)

_WELL = "the disk of a test does not fail"
_IDLE = "it takes more load than the nodes take at once"
_SHORT = "it is over before anybody looks"


def _each(metric: str, legend: str = "{{instance}}", still: str = "") -> Query:
    """One figure of each node, of itself."""
    return Query(f"max by (instance) ({metric}{{@all,@node}})", legend, still)


def _rate(metric: str, legend: str = "{{instance}}", still: str = "") -> Query:
    return Query(f"sum by (instance) (rate({metric}{{@all,@node}}[@rate]))", legend, still)


_NODES = Row(
    "Nodes",
    (
        Panel(
            "State of nodes",
            "1 for the state that each is in, as the others see it. Normal: healthy, draining"
            " while you take one out.",
            (
                Query(
                    "max by (node_id, state) (goqueue_cluster_node_state{@all}) > 0",
                    "{{node_id}} {{state}}",
                ),
            ),
            Unit.number,
            Kind.table,
            width=8,
            height=6,
            alerts=("GoQueueNodeDown", "GoQueueBrokerDown"),
        ),
        Panel(
            "Controller",
            "1 where the cluster group is led. Normal: one node, the same for days.",
            (_each("goqueue_cluster_is_controller"),),
            Unit.number,
            width=8,
            height=6,
            alerts=("GoQueueNoController",),
        ),
        Panel(
            "Partitions led",
            "By node. Normal: about as many on each.",
            (Query("max by (node_id) (goqueue_cluster_leaders_per_node{@all})", "{{node_id}}"),),
            Unit.number,
            width=8,
            height=6,
        ),
        Panel(
            "Replicas that follow",
            "By node. Normal: about as many on each.",
            (Query("max by (node_id) (goqueue_cluster_followers_per_node{@all})", "{{node_id}}"),),
            Unit.number,
            width=8,
        ),
        Panel(
            "CPU",
            "Cores of each process; one node uses one, and a little more for its disk. Normal:"
            " below 0.8.",
            (_rate("process_cpu_seconds_total"),),
            Unit.number,
            width=8,
            warn=0.8,
        ),
        Panel(
            "Memory",
            "Resident, of each process. Normal: level under level load.",
            (_each("process_resident_memory_bytes"),),
            Unit.bytes,
            width=8,
        ),
        Panel(
            "Loop lag",
            "How late the event loop was at worst in the last ten seconds. Normal: below 20 ms;"
            " beyond 2 s a node is not ready.",
            (_each("goqueue_loop_lag_worst_seconds"),),
            Unit.seconds,
            warn=0.25,
            bad=2,
            alerts=("GoQueueLoopLag",),
        ),
        Panel(
            "Clock skew",
            "How far each clock is from the time that a majority agrees on. Normal: milliseconds;"
            " beyond a second that clock is not kept.",
            (_each("goqueue_clock_skew_seconds"),),
            Unit.seconds,
            warn=1,
            alerts=("GoQueueClockSkew",),
            still="nodes of one machine share its clock",
        ),
    ),
)

_RAFT = Row(
    "Raft",
    (
        Panel(
            "Leaders taken",
            "By how: elected after a loss, or handed over. Normal: handovers while nodes restart;"
            " elections after a death only.",
            (
                Query(
                    "sum by (election_type)"
                    " (rate(goqueue_cluster_leader_elections_total{@all,@topic}[@rate]))",
                    "{{election_type}}",
                ),
            ),
            Unit.per_second,
            alerts=("GoQueueFrequentLeaderElections",),
        ),
        Panel(
            "How long elections take",
            "From when the new leader knew of none to when it served. Normal: below half a second.",
            quantiles("goqueue_cluster_leader_election_latency_seconds", "@all,@topic"),
            Unit.seconds,
            warn=0.5,
            bad=2,
        ),
        Panel(
            "Terms",
            "Of the partitions with the highest, and of the cluster group. Normal: flat; each step"
            " is an election.",
            (
                Query("max by (topic) (goqueue_raft_term{@all,@topic})", "{{topic}}"),
                Query("max(goqueue_cluster_term{@all})", "cluster group"),
            ),
            Unit.number,
        ),
        Panel(
            "Partitions not whole",
            "Without a leader, or with fewer replicas in sync than wanted. Normal: 0.",
            (
                Query(
                    "max(goqueue_cluster_offline_partitions{@all})",
                    "offline",
                    "an election takes less time than passes between two looks",
                ),
                Query("sum(goqueue_cluster_under_replicated_partitions{@all})", "under-replicated"),
            ),
            Unit.number,
            warn=1,
            alerts=("GoQueueOfflinePartitions", "GoQueueUnderReplicatedPartitions"),
        ),
        Panel(
            "Out of sync, and back",
            "Voters that fell behind or away, and that caught up. Normal: both, around restarts.",
            (
                Query(
                    "sum by (topic) (rate(goqueue_cluster_isr_shrinks_total{@all,@topic}[@rate]))",
                    "{{topic}} out",
                ),
                Query(
                    "sum by (topic) (rate(goqueue_cluster_isr_expands_total{@all,@topic}[@rate]))",
                    "{{topic}} back",
                ),
            ),
            Unit.per_second,
            alerts=("GoQueueISRShrinking",),
        ),
        Panel(
            "Replication lag",
            "Entries that the furthest replica on each node is behind its leaders. Normal: 0 to a"
            " few; it falls while a node catches up.",
            (
                Query(
                    "max by (node_id) (goqueue_cluster_replication_lag{@all,@topic})",
                    "{{node_id}}",
                ),
            ),
            Unit.number,
        ),
        Panel(
            "Not committed, not applied",
            "Entries that no majority holds yet, and committed ones that wait to be applied."
            " Normal: 0 to a few.",
            (
                Query(
                    "max by (topic) (goqueue_raft_commit_lag_entries{@all,@topic})",
                    "{{topic}} to commit",
                    _SHORT,
                ),
                Query(
                    "max by (topic) (goqueue_raft_apply_lag_entries{@all,@topic,@node})",
                    "{{topic}} to apply",
                    _SHORT,
                ),
            ),
            Unit.number,
        ),
        Panel(
            "Preferred leaders elsewhere",
            "Partitions that another node leads than their first. Normal: it returns to 0 within"
            " minutes of a restart.",
            (Query("sum(goqueue_cluster_preferred_leader_imbalance{@all})", "partitions"),),
            Unit.number,
        ),
    ),
)

_LINKS = Row(
    "Between nodes",
    (
        Panel(
            "Replicated",
            "Bytes of entries sent to other nodes. Normal: what is published times the other"
            " replicas.",
            (
                Query(
                    "sum by (topic)"
                    " (rate(goqueue_cluster_bytes_replicated_total{@all,@topic}[@rate]))",
                    "{{topic}}",
                ),
            ),
            Unit.bytes_per_second,
        ),
        Panel(
            "Network",
            "Of the peer link. Normal: a little more than what is replicated.",
            (
                _rate("goqueue_cluster_inter_broker_network_in_bytes_total", "{{instance}} in"),
                _rate("goqueue_cluster_inter_broker_network_out_bytes_total", "{{instance}} out"),
            ),
            Unit.bytes_per_second,
        ),
        Panel(
            "Round trip",
            "Of an empty question to a peer. Normal: the network's, and what the loops are late.",
            quantiles(
                "goqueue_cluster_inter_broker_latency_seconds",
                "@all,@node",
                "target_node_id",
                of=(0.5, 0.99),
            ),
            Unit.seconds,
            warn=0.1,
        ),
        Panel(
            "Links lost",
            "To each node. Normal: 0 but for restarts.",
            (
                Query(
                    "sum by (node_id)"
                    " (rate(goqueue_cluster_failure_detections_total{@all,@node}[@rate]))",
                    "{{node_id}}",
                ),
            ),
            Unit.per_second,
            alerts=("GoQueueNodeDown",),
        ),
        Panel(
            "Forwarded requests",
            "That a node sent on to a leader, by kind. Normal: two in three where clients choose"
            " any of three nodes.",
            (
                Query(
                    "sum by (method) (rate(goqueue_forwarded_requests_total{@all,@node}[@rate]))",
                    "{{method}}",
                ),
            ),
            Unit.requests_per_second,
        ),
        Panel(
            "Waiting in links",
            "Bytes to each peer that are not sent yet. Normal: near 0.",
            (
                Query(
                    "max by (node_id) (goqueue_link_backlog_bytes{@all,@node})",
                    "{{node_id}}",
                    _IDLE,
                ),
            ),
            Unit.bytes,
        ),
    ),
)

_DISKS = Row(
    "Disks",
    (
        Panel(
            "Sync latency",
            "One write and fdatasync of the write-ahead log: every ack waits for one on a majority."
            " Normal: 0.2 to 10 ms, by the disk.",
            quantiles(
                "goqueue_storage_fsync_latency_seconds", "@all,@node", "instance", of=(0.5, 0.99)
            ),
            Unit.seconds,
            warn=0.1,
            alerts=("GoQueueHighFsyncLatency", "GoQueueDiskSlow"),
        ),
        Panel(
            "Syncs",
            "A second. Normal: fewer than publishes: those that wait share one.",
            (_rate("goqueue_storage_fsync_total"),),
            Unit.operations_per_second,
        ),
        Panel(
            "Failed syncs, full and slow disks",
            "Writes or syncs that failed; 1 while a disk is full or slow. Normal: 0.",
            (
                _each("goqueue_storage_fsync_errors_total", "{{instance}} failed"),
                _each("goqueue_disk_stuck", "{{instance}} full"),
                _each("goqueue_disk_slow", "{{instance}} slow"),
            ),
            Unit.number,
            bad=1,
            alerts=("GoQueueFsyncErrors", "GoQueueDiskFull", "GoQueueDiskSlow"),
            still=_WELL,
        ),
        Panel(
            "Free space",
            "And the watermark, below which publishes are refused. Normal: far above it.",
            (
                _each("goqueue_disk_free_bytes", "{{instance}} free"),
                _each("goqueue_disk_watermark_bytes", "{{instance}} watermark"),
            ),
            Unit.bytes,
            alerts=("GoQueueHighDiskUsage", "GoQueueCriticalDiskUsage", "GoQueueDiskFull"),
        ),
        Panel(
            "Stored",
            "Bytes of all replicas' logs on each node. Normal: level, once retention has set in.",
            (_each("goqueue_stored_bytes"),),
            Unit.bytes,
        ),
        Panel(
            "Written to the write-ahead log",
            "Of all partitions together. Normal: what is published times replicas on the node.",
            (
                Query(
                    "sum by (instance) (rate(goqueue_wal_durable_lsn{@all,@node}[@rate]))",
                    "{{instance}}",
                ),
            ),
            Unit.bytes_per_second,
        ),
        Panel(
            "Write-ahead files",
            "That are kept. Normal: two or three; at four, publishes are held back until segments"
            " are synced.",
            (_each("goqueue_wal_files"),),
            Unit.number,
            warn=4,
        ),
        Panel(
            "Snapshots",
            "Of applied state, written a second. Normal: one a minute for each busy partition.",
            (
                Query(
                    "sum by (snapshot_type)"
                    " (rate(goqueue_storage_snapshots_created_total{@all,@node}[@rate]))",
                    "{{snapshot_type}}",
                ),
            ),
            Unit.per_second,
        ),
    ),
)

_UPKEEP = Row(
    "Upkeep",
    (
        Panel(
            "Replicas on their way",
            "Partitions whose replicas are not where they should be, and those that wait. Normal: 0"
            " but for moves that you asked for.",
            (
                Query("max(goqueue_partitions_under_way{@all})", "under way"),
                Query(
                    "max(goqueue_waiting_moves{@all})",
                    "waiting",
                    "a move that waits for nothing is no waiting move",
                ),
            ),
            Unit.number,
            alerts=("GoQueueMovesWaiting",),
        ),
        Panel(
            "Steps of moves",
            "Replicas added, promoted and taken away by leaders. Normal: 0 but for moves.",
            (
                Query(
                    "sum by (step) (rate(goqueue_move_steps_total{@all,@node}[@rate]))", "{{step}}"
                ),
            ),
            Unit.per_second,
        ),
        Panel(
            "Copied replicas",
            "Bytes of whole replicas, to and from nodes. Normal: 0 but for moves of large"
            " partitions, at raft.copyRate at most.",
            (
                Query(
                    "sum by (direction) (rate(goqueue_transferred_bytes_total{@all,@node}[@rate]))",
                    "{{direction}}",
                    "small logs move as entries",
                ),
            ),
            Unit.bytes_per_second,
        ),
        Panel(
            "Read again",
            "Bytes that scrubbing reads. Normal: a round a day, at storage.scrubRate.",
            (_rate("goqueue_scrub_bytes_total"),),
            Unit.bytes_per_second,
        ),
        Panel(
            "Damage",
            "Entries found damaged, ranges that differ between replicas, and replicas that neither"
            " vote nor lead. Normal: 0.",
            (
                _each("goqueue_scrub_damaged_entries_total", "{{instance}} entries"),
                _each("goqueue_scrub_diverged_total", "{{instance}} ranges differ"),
                _each("goqueue_damaged_replicas", "{{instance}} replicas"),
            ),
            Unit.number,
            bad=1,
            alerts=("GoQueueDamagedReplicas", "GoQueueDamageFound", "GoQueueReplicasDiffer"),
            still=_WELL,
        ),
        Panel(
            "Series told",
            "Of Prometheus, by node; bounded by metrics.seriesMax a metric. Normal: grows with"
            " topics and groups only.",
            (_each("goqueue_metrics_series"),),
            Unit.number,
        ),
    ),
)

DASHBOARD = Dashboard(
    "raft",
    "goqueue-cluster",
    "GoQueue Raft and storage",
    "Nodes, leaders, links and disks.",
    (_NODES, deployment.ROW, _RAFT, _LINKS, _DISKS, _UPKEEP),
    (NODE, TOPIC),
)
