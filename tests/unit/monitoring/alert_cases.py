"""For each alert: series at which it fires, and the nearest at which it does not.

Values are promtool's: `0+5x80` is 0, 5, 10 ... in 81 samples, 15 s apart.
"""

from __future__ import annotations

from dataclasses import dataclass

Series = dict[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    bad: Series
    calm: Series
    minutes: int = 10
    """When to look."""


def _flat(value: float, minutes: int = 60) -> str:
    return f"{value}x{4 * minutes}"


def _grows(by: float, minutes: int = 60) -> str:
    """By so much every 15 s."""
    return f"0+{by}x{4 * minutes}"


def _gauge(series: str, bad: float, calm: float, minutes: int = 10) -> Case:
    return Case({series: _flat(bad)}, {series: _flat(calm)}, minutes)


def _counter(series: str, bad: float, calm: float, minutes: int = 12) -> Case:
    return Case({series: _grows(bad)}, {series: _grows(calm)}, minutes)


def _latency(metric: str, labels: str, bound_s: str, above_s: str, minutes: int = 12) -> Case:
    """Of 100 a step, 5 or none take longer than the bound."""
    le = f"{labels}," if labels else ""

    def of(quick: int) -> Series:
        return {
            f'{metric}_bucket{{{le}le="{bound_s}"}}': _grows(quick),
            f'{metric}_bucket{{{le}le="{above_s}"}}': _grows(100),
            f'{metric}_bucket{{{le}le="+Inf"}}': _grows(100),
        }

    return Case(of(95), of(100), minutes)


def _failing(share: float) -> Series:
    """Of 1000 messages a step."""
    return {
        'goqueue_broker_messages_published_total{topic="t"}': _grows(1000 * (1 - share)),
        'goqueue_broker_messages_failed_total{topic="t",error_type="no_quorum"}': _grows(
            1000 * share
        ),
    }


def _mistaken() -> Series:
    """Half of what is sent is refused, by the clients' own mistake."""
    return {
        'goqueue_broker_messages_published_total{topic="t"}': _grows(500),
        'goqueue_broker_messages_failed_total{topic="t",error_type="bad_request"}': _grows(500),
    }


def _slow(share: float) -> Series:
    metric = "goqueue_broker_publish_latency_seconds"
    return {
        f'{metric}_bucket{{topic="t",le="0.1"}}': _grows(1000 * (1 - share)),
        f'{metric}_bucket{{topic="t",le="+Inf"}}': _grows(1000),
        f'{metric}_count{{topic="t"}}': _grows(1000),
    }


_LAG = 'goqueue_consumergroup_group_lag{group="g",topic="t",partition="0"}'
_AT = '{topic="t",consumer_group="g"}'
_ELECTED = 'goqueue_cluster_leader_elections_total{topic="t",election_type="elected"}'


def _settling(group: str, position: float = 0, acked: float = 0, died: float = 0) -> Series:
    """A group with lag, and by how much each of these grows a step."""
    at = f'consumer_group="{group}",topic="t"'
    return {
        f'goqueue_consumergroup_group_lag{{group="{group}",topic="t",partition="0"}}': _flat(5),
        f'goqueue_consumer_committed_offset{{{at},partition="0"}}': _grows(position),
        f"goqueue_broker_messages_acked_total{{{at}}}": _grows(acked),
        f"goqueue_died_messages_total{{{at}}}": _grows(died),
    }


CLUSTER = {
    "GoQueueNodeDown": Case(
        {"goqueue_cluster_nodes_total": _flat(3), "goqueue_cluster_nodes_healthy": _flat(2)},
        {
            'goqueue_cluster_nodes_total{instance="a"}': _flat(3),
            'goqueue_cluster_nodes_healthy{instance="a"}': _flat(3),
            'goqueue_cluster_nodes_total{instance="cut-off"}': _flat(3),
            'goqueue_cluster_nodes_healthy{instance="cut-off"}': _flat(1),
        },
        2,
    ),
    "GoQueueBrokerDown": _gauge("up", 0, 1, 3),
    "GoQueueNoController": Case(
        {
            'goqueue_cluster_is_controller{instance="a"}': _flat(0),
            'goqueue_cluster_is_controller{instance="b"}': _flat(0),
        },
        {
            'goqueue_cluster_is_controller{instance="a"}': _flat(0),
            'goqueue_cluster_is_controller{instance="b"}': _flat(1),
        },
        2,
    ),
    "GoQueueOfflinePartitions": _gauge("goqueue_cluster_offline_partitions", 1, 0, 2),
    "GoQueueUnderReplicatedPartitions": _gauge("goqueue_cluster_under_replicated_partitions", 1, 0),
    "GoQueueISRShrinking": _counter(
        'goqueue_cluster_isr_shrinks_total{topic="t",partition="0"}', 1, 0.25
    ),
    "GoQueueFrequentLeaderElections": Case(
        {"goqueue_cluster_partition_count": _flat(60), _ELECTED: _grows(2.5)},
        {
            "goqueue_cluster_partition_count": _flat(60),
            _ELECTED: "0x39 60x200",
            'goqueue_cluster_leader_elections_total{topic="t",election_type="handover"}': _grows(
                10
            ),
        },
        20,
    ),
    "GoQueueMovesWaiting": _gauge("goqueue_waiting_moves", 1, 0, 20),
    "GoQueueClockSkew": _gauge("goqueue_clock_skew_seconds", 2, 0.5),
    "GoQueueLoopLag": _gauge("goqueue_loop_lag_worst_seconds", 0.5, 0.1),
}
PUBLISHING = {
    "GoQueueHighPublishLatency": _latency(
        "goqueue_broker_publish_latency_seconds", 'topic="t"', "0.1", "0.25"
    ),
    "GoQueueHighFetchLatency": _latency(
        "goqueue_broker_fetch_latency_seconds", 'topic="t",consumer_group="g"', "0.1", "0.25"
    ),
    "GoQueueHighErrorRate": Case(_failing(0.05), _mistaken(), 12),
}
GROUPS = {
    "GoQueueHighConsumerLag": _gauge(_LAG, 20_000, 9_000),
    "GoQueueCriticalConsumerLag": _gauge(_LAG, 200_000, 90_000, 5),
    "GoQueueConsumerLagSeconds": _gauge(
        'goqueue_consumergroup_group_lag_seconds{group="g",topic="t",partition="0"}', 600, 100
    ),
    "GoQueueNoOffsetCommits": Case(
        _settling("g"),
        {
            **_settling("steps", position=1),
            **_settling("goes-round-one-old-message", acked=1),
            **_settling("buries", died=1),
        },
        25,
    ),
    "GoQueueGroupHalted": _gauge(f"goqueue_halted_partitions{_AT}", 2, 0, 3),
    "GoQueueFrequentRebalances": _counter(
        'goqueue_consumer_rebalances_total{consumer_group="g",trigger="join"}', 1, 0.1
    ),
    "GoQueueRebalanceStuck": _gauge('goqueue_consumer_moving_partitions{consumer_group="g"}', 3, 0),
    "GoQueueMembersLost": _counter(
        'goqueue_consumer_session_timeouts_total{consumer_group="g"}', 0.5, 0.02, 20
    ),
}
QUEUE = {
    "GoQueueDeadLettersGrowing": _counter(f"goqueue_died_messages_total{_AT}", 1, 0.1, 30),
    "GoQueueRedeliveryStorm": Case(
        {
            f"goqueue_redelivered_messages_total{_AT}": _grows(80),
            f"goqueue_broker_messages_consumed_total{_AT}": _grows(100),
        },
        {
            f"goqueue_redelivered_messages_total{_AT}": _grows(8),
            f"goqueue_broker_messages_consumed_total{_AT}": _grows(10),
        },
        20,
    ),
    "GoQueueLaneStarved": Case(
        {
            'goqueue_lane_head_wait_seconds{topic="t",lane="low"}': _flat(300),
            'goqueue_lane_waits_total{topic="t",lane="high"}': _grows(10),
        },
        {
            'goqueue_lane_head_wait_seconds{topic="t",lane="low"}': _flat(300),
            'goqueue_lane_waits_total{topic="t",lane="high"}': _flat(10),
        },
        12,
    ),
    "GoQueueDelayedLate": _latency("goqueue_delay_lateness_seconds", "", "1.0", "2.0"),
    "GoQueueMessagesLostToRetention": _counter(f"goqueue_fallen_messages_total{_AT}", 1, 0, 5),
}
STORAGE = {
    "GoQueueFsyncErrors": _counter("goqueue_storage_fsync_errors_total", 1, 0, 2),
    "GoQueueHighFsyncLatency": _latency("goqueue_storage_fsync_latency_seconds", "", "0.1", "0.25"),
    "GoQueueDiskSlow": _gauge("goqueue_disk_slow", 1, 0, 3),
    "GoQueueHighDiskUsage": Case(
        {"goqueue_disk_used_bytes": _flat(85), "goqueue_disk_free_bytes": _flat(15)},
        {"goqueue_disk_used_bytes": _flat(75), "goqueue_disk_free_bytes": _flat(25)},
        15,
    ),
    "GoQueueCriticalDiskUsage": Case(
        {"goqueue_disk_free_bytes": _flat(110), "goqueue_disk_watermark_bytes": _flat(100)},
        {"goqueue_disk_free_bytes": _flat(130), "goqueue_disk_watermark_bytes": _flat(100)},
        3,
    ),
    "GoQueueDiskFull": _gauge("goqueue_disk_stuck", 1, 0, 1),
    "GoQueueDamagedReplicas": _gauge("goqueue_damaged_replicas", 1, 0),
    "GoQueueDamageFound": _counter("goqueue_scrub_damaged_entries_total", 1, 0, 2),
    "GoQueueReplicasDiffer": _counter("goqueue_scrub_diverged_total", 1, 0, 2),
    "GoQueueArchiveLags": Case(
        {
            'goqueue_archive_lag_seconds{topic="t",partition="0"}': _flat(30_000),
            'goqueue_archive_required{topic="t",partition="0"}': _flat(1),
        },
        {
            'goqueue_archive_lag_seconds{topic="t",partition="0"}': _flat(30_000),
            'goqueue_archive_required{topic="t",partition="0"}': _flat(0),
        },
        20,
    ),
}
_UP = {'goqueue_up{instance="b"}': _flat(1, 100)}
DEPLOYMENT = {
    "GoQueueCertificateExpires": Case(
        {'goqueue_certificate_days_left{door="client"}': _flat(13, 100), **_UP},
        {'goqueue_certificate_days_left{door="client"}': _flat(15, 100), **_UP},
        90,
    ),
    "GoQueueCertificateExpiresSoon": Case(
        {'goqueue_certificate_days_left{door="peer"}': _flat(-1), **_UP},
        {'goqueue_certificate_days_left{door="peer"}': _flat(4), **_UP},
        15,
    ),
    "GoQueueKubernetesUnreachable": Case(
        {"goqueue_kubernetes_api_up": _flat(0), "goqueue_up": _flat(1)},
        {"goqueue_kubernetes_api_up": _flat(1), **_UP},
        15,
    ),
    "GoQueueDrainRefused": Case(
        {"goqueue_kubernetes_drains_refused": _flat(1), **_UP},
        {"goqueue_kubernetes_drains_refused": _flat(0), **_UP},
    ),
}
OBJECTIVES = {
    "GoQueueErrorBudgetBurn": Case(_failing(0.02), _failing(0.01), 20),
    "GoQueueErrorBudgetBurnSlow": Case(_failing(0.004), _mistaken(), 30),
    "GoQueueLatencyBudgetBurn": Case(_slow(0.2), _slow(0.1), 20),
    "GoQueueLatencyBudgetBurnSlow": Case(_slow(0.04), _slow(0.02), 30),
}
CASES: dict[str, Case] = {
    **CLUSTER,
    **PUBLISHING,
    **GROUPS,
    **QUEUE,
    **STORAGE,
    **DEPLOYMENT,
    **OBJECTIVES,
}
