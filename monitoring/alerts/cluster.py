"""Nodes and replication: who is missing, who leads, and whether clocks and loops keep time."""

from __future__ import annotations

from monitoring.alerts.model import Group, Severity, alert

GROUP = Group(
    "goqueue.cluster",
    (
        alert(
            "GoQueueNodeDown",
            Severity.critical,
            "30s",
            "max by (@in) (goqueue_cluster_nodes_total)\n-\n"
            "max by (@in) (goqueue_cluster_nodes_healthy)",
            "> 0",
            "A node of the cluster is down",
            "{{ $value }} nodes of the cluster are linked with no other.",
        ),
        alert(
            "GoQueueBrokerDown",
            Severity.critical,
            "1m",
            'min by (@in, instance) (up{job=~".*goqueue.*"})',
            "< 1",
            "{{ $labels.instance }} does not answer Prometheus",
            "Its /metrics can't be read: the process is gone, stuck, or out of reach.",
        ),
        alert(
            "GoQueueNoController",
            Severity.critical,
            "30s",
            "sum by (@in) (goqueue_cluster_is_controller)",
            "< 1",
            "Nobody leads the cluster group",
            "No topic can be made, no partition moved and no group rebalanced; messages still"
            " flow.",
        ),
        alert(
            "GoQueueOfflinePartitions",
            Severity.critical,
            "30s",
            "max by (@in) (goqueue_cluster_offline_partitions)",
            "> 0",
            "Partitions have no leader",
            "{{ $value }} partitions can't be published to or received from.",
        ),
        alert(
            "GoQueueUnderReplicatedPartitions",
            Severity.warning,
            "5m",
            "sum by (@in) (goqueue_cluster_under_replicated_partitions)",
            "> 0",
            "Partitions have fewer replicas in sync than they should",
            "{{ $value }} partitions stand one more failure less than is wanted.",
        ),
        alert(
            "GoQueueISRShrinking",
            Severity.warning,
            "5m",
            "sum by (@in) (increase(goqueue_cluster_isr_shrinks_total[5m]))",
            "> 10",
            "Replicas fall out of sync again and again",
            "{{ $value | humanize }} times in 5 minutes.",
        ),
        alert(
            "GoQueueFrequentLeaderElections",
            Severity.warning,
            "5m",
            "sum by (@in) (increase("
            'goqueue_cluster_leader_elections_total{election_type="elected"}[15m]))\n/\n'
            "clamp_min(max by (@in) (goqueue_cluster_partition_count), 10)",
            "> 2",
            "Leaders change again and again",
            "{{ $value | humanize }} elections a partition in 15 minutes, handovers not counted; 2"
            " is the bound. Below ten partitions it is 20 in all.",
        ),
        alert(
            "GoQueueMovesWaiting",
            Severity.warning,
            "15m",
            "max by (@in) (goqueue_waiting_moves)",
            "> 0",
            "Partitions on their way to other nodes wait",
            "{{ $value }} moves go no further: a node is away, full, or behind.",
            still="a move that waits for nothing is no waiting move",
        ),
        alert(
            "GoQueueClockSkew",
            Severity.warning,
            "5m",
            "max by (@in, instance) (goqueue_clock_skew_seconds)",
            "> 1",
            "The clock of {{ $labels.instance }} is off",
            "It is {{ $value | humanizeDuration }} from the time that a majority agrees on."
            " Timestamps, delays and retention go by clocks of leaders.",
            still="nodes of one machine share its clock",
        ),
        alert(
            "GoQueueLoopLag",
            Severity.warning,
            "5m",
            "max by (@in, instance) (goqueue_loop_lag_worst_seconds)",
            "> 0.25",
            "{{ $labels.instance }} is late with everything",
            "Its event loop ran a timer {{ $value | humanizeDuration }} late; beyond 2 s it is not"
            " ready.",
        ),
    ),
)
