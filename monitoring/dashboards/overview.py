"""Is it well? What a person looks at first: health, objectives, traffic, latency, lag."""

from __future__ import annotations

from monitoring.dashboards.model import Dashboard, Kind, Panel, Query, Row, Unit, quantiles

_FAULTLESS = "a healthy cluster fails no publish"
_WHOLE = "a cluster at rest has none"

_HEALTH = Row(
    "Cluster health",
    (
        Panel(
            "Nodes linked",
            "Brokers that the cluster is linked with. Normal: as many as it has.",
            (Query("max(goqueue_cluster_nodes_healthy{@all})", "linked"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
            alerts=("GoQueueNodeDown",),
        ),
        Panel(
            "Partitions without a leader",
            "They take no messages and give none. Normal: 0, but for the second of an election.",
            (Query("max(goqueue_cluster_offline_partitions{@all})", "offline"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
            bad=1,
            alerts=("GoQueueOfflinePartitions",),
            still=_WHOLE,
        ),
        Panel(
            "Under-replicated partitions",
            "Fewer replicas in sync than wanted. Normal: 0; while a node restarts, what it holds.",
            (Query("sum(goqueue_cluster_under_replicated_partitions{@all})", "partitions"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
            warn=1,
            alerts=("GoQueueUnderReplicatedPartitions",),
        ),
        Panel(
            "Topics",
            "How many there are. Normal: it changes when somebody makes or deletes one.",
            (Query("max(goqueue_broker_topic_count{@all})", "topics"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
        ),
        Panel(
            "Partitions",
            "Of all topics. Normal: it changes with topics only.",
            (Query("max(goqueue_cluster_partition_count{@all})", "partitions"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
        ),
        Panel(
            "HTTP connections",
            "Of clients, to all nodes. Normal: steady; a jump is a deployment, or clients that do"
            " not keep connections.",
            (Query("sum(goqueue_broker_active_connections{@all})", "connections"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
        ),
    ),
)

_OBJECTIVES = Row(
    "Objectives",
    (
        Panel(
            "Messages acked",
            "Of those that publishers sent, without what was their own mistake; over 6 hours."
            " Normal: above 99.9 %, the objective.",
            (Query("1 - max(goqueue:publish_errors:ratio_rate6h{@all})", "acked"),),
            Unit.ratio,
            Kind.gauge,
            width=6,
            height=6,
            warn=0.9995,
            bad=0.999,
            falls=True,
            least=0.99,
            most=1,
            alerts=("GoQueueErrorBudgetBurn",),
        ),
        Panel(
            "Batches acked within 100 ms",
            "Over 6 hours. Normal: above 99 %, the objective.",
            (Query("1 - max(goqueue:publish_slow:ratio_rate6h{@all})", "quick"),),
            Unit.ratio,
            Kind.gauge,
            width=6,
            height=6,
            warn=0.995,
            bad=0.99,
            falls=True,
            least=0.9,
            most=1,
            alerts=("GoQueueLatencyBudgetBurn",),
        ),
        Panel(
            "Room for failures used up",
            "How many times faster than even over a month. Normal: below 1; at 14.4, 2 % of the"
            " month's room goes in an hour.",
            (
                Query("max(goqueue:publish_errors:ratio_rate1h{@all}) / 0.001", "failed, 1 h"),
                Query("max(goqueue:publish_errors:ratio_rate6h{@all}) / 0.001", "failed, 6 h"),
                Query("max(goqueue:publish_slow:ratio_rate1h{@all}) / 0.01", "slow, 1 h"),
            ),
            Unit.number,
            height=6,
            warn=1,
            bad=14.4,
            alerts=("GoQueueErrorBudgetBurn", "GoQueueErrorBudgetBurnSlow"),
            still=_FAULTLESS,
        ),
    ),
)

_TRAFFIC = Row(
    "Traffic",
    (
        Panel(
            "Messages published",
            "Acked to publishers a second. Normal: your own daily shape; a fall to 0 is worse than"
            " a peak.",
            (
                Query(
                    "sum by (topic) (rate(goqueue_broker_messages_published_total{@all}[@rate]))",
                    "{{topic}}",
                ),
            ),
            Unit.messages_per_second,
            stacked=True,
        ),
        Panel(
            "Messages delivered",
            "Leased to consumers a second, each time. Normal: as many as are published for each"
            " group, over time.",
            (
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_broker_messages_consumed_total{@all}[@rate]))",
                    "{{consumer_group}}",
                ),
            ),
            Unit.messages_per_second,
            stacked=True,
        ),
        Panel(
            "Bytes in",
            "Of stored batches, before replication. Normal: as messages published.",
            (
                Query(
                    "sum by (topic) (rate(goqueue_broker_bytes_published_total{@all}[@rate]))",
                    "{{topic}}",
                ),
            ),
            Unit.bytes_per_second,
            stacked=True,
        ),
        Panel(
            "Bytes out",
            "Values leased to groups, and batches read by offset. Normal: as messages delivered.",
            (
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_broker_bytes_consumed_total{@all}[@rate]))",
                    "{{consumer_group}}",
                ),
                Query("sum(rate(goqueue_read_bytes_total{@all}[@rate]))", "by offset"),
            ),
            Unit.bytes_per_second,
            stacked=True,
        ),
    ),
)

_LATENCY = Row(
    "Latency",
    (
        Panel(
            "Publish",
            "From a batch's arrival at its leader to its ack, replicated and synced. Normal: a few"
            " times a sync of the disk; p99 below 100 ms.",
            quantiles("goqueue_broker_publish_latency_seconds", "@all"),
            Unit.seconds,
            warn=0.1,
            alerts=("GoQueueHighPublishLatency",),
        ),
        Panel(
            "Receive",
            "Of receives that got something, without their waiting for messages. Normal: as"
            " publishing, since leases are replicated, too.",
            quantiles("goqueue_broker_fetch_latency_seconds", "@all"),
            Unit.seconds,
            warn=0.1,
            alerts=("GoQueueHighFetchLatency",),
        ),
        Panel(
            "Settle",
            "Acks, nacks, rejects and extensions, replicated and synced. Normal: as publishing.",
            quantiles("goqueue_broker_ack_latency_seconds", "@all"),
            Unit.seconds,
            warn=0.1,
        ),
        Panel(
            "HTTP",
            "From a request's head to its answer, long polls left out. Normal: p99 below 100 ms.",
            quantiles(
                "goqueue_http_request_seconds",
                '@all,route!~".*(receive|poll|heartbeat|join).*"',
            ),
            Unit.seconds,
            warn=0.25,
        ),
    ),
)

_TROUBLE = Row(
    "Lag and failures",
    (
        Panel(
            "Lag in messages",
            "Due and not settled, by group. Normal: steady or falling; it grows while consumers"
            " are slower than publishers.",
            (Query("sum by (group) (goqueue_consumergroup_group_lag{@all})", "{{group}}"),),
            Unit.number,
            warn=10_000,
            bad=100_000,
            alerts=("GoQueueHighConsumerLag", "GoQueueCriticalConsumerLag"),
        ),
        Panel(
            "Lag in time",
            "How long ago the oldest message that a group has not settled could have been"
            " delivered. Normal: seconds.",
            (Query("max by (group) (goqueue_consumergroup_group_lag_seconds{@all})", "{{group}}"),),
            Unit.seconds,
            warn=300,
            alerts=("GoQueueConsumerLagSeconds",),
        ),
        Panel(
            "Publishes refused",
            "Messages whose publisher got an error, by its code. Normal: 0, or what clients do"
            " wrong (4xx codes).",
            (
                Query(
                    "sum by (error_type) (rate(goqueue_broker_messages_failed_total{@all}[@rate]))",
                    "{{error_type}}",
                ),
            ),
            Unit.messages_per_second,
            alerts=("GoQueueHighErrorRate",),
        ),
        Panel(
            "HTTP errors",
            "Answers of 4xx and 5xx a second. Normal: no 5xx; 4xx are clients' mistakes.",
            (
                Query(
                    "sum by (status)"
                    ' (rate(goqueue_http_requests_total{@all,status=~"[45].."}[@rate]))',
                    "{{status}}",
                ),
            ),
            Unit.requests_per_second,
        ),
    ),
)

DASHBOARD = Dashboard(
    "overview",
    "goqueue-overview",
    "GoQueue Overview and SLO",
    "Is the cluster well, and does it keep what it promises?",
    (_HEALTH, _OBJECTIVES, _TRAFFIC, _LATENCY, _TROUBLE),
)
