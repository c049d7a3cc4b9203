"""Groups: lag, members, and what rebalances cost."""

from __future__ import annotations

from monitoring.dashboards.model import (
    GROUP,
    TOPIC,
    Dashboard,
    Kind,
    Panel,
    Query,
    Row,
    Unit,
    quantiles,
)

_HEALTH = Row(
    "Groups",
    (
        Panel(
            "Lag",
            "Messages due and not settled. Normal: steady or falling.",
            (Query("sum(goqueue_consumergroup_group_lag{@all,@lagging,@topic})", "messages"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
            warn=10_000,
            bad=100_000,
            alerts=("GoQueueHighConsumerLag",),
        ),
        Panel(
            "Oldest message",
            "For how long the oldest could have been delivered. Normal: seconds.",
            (Query("max(goqueue_consumergroup_group_lag_seconds{@all,@lagging,@topic})", "age"),),
            Unit.seconds,
            Kind.figure,
            width=4,
            height=4,
            warn=300,
            alerts=("GoQueueConsumerLagSeconds",),
        ),
        Panel(
            "Members",
            "Of all chosen groups. Normal: as many as you run.",
            (Query("sum(goqueue_consumer_group_members{@all,@group})", "members"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
        ),
        Panel(
            "Partitions assigned",
            "That members have. Normal: all partitions of the groups' topics.",
            (Query("sum(goqueue_consumer_assigned_partitions{@all,@group})", "partitions"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
        ),
        Panel(
            "Rebalances",
            "Begun in the time that is shown. Normal: one for each deployment or change of"
            " members.",
            (
                Query(
                    "sum(increase(goqueue_consumer_rebalances_total{@all,@group}[$__range]))",
                    "rebalances",
                ),
            ),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
            alerts=("GoQueueFrequentRebalances",),
        ),
        Panel(
            "Partitions halted",
            "Groups that halted because most of their work failed. Normal: 0.",
            (Query("sum(goqueue_halted_partitions{@all,@group,@topic})", "halted"),),
            Unit.number,
            Kind.figure,
            width=4,
            height=4,
            bad=1,
            alerts=("GoQueueGroupHalted",),
        ),
        Panel(
            "State",
            "1 for the state that each group is in. Normal: stable, or empty without members.",
            (
                Query(
                    "max by (consumer_group, state)"
                    " (goqueue_consumer_group_state{@all,@group}) > 0",
                    "{{consumer_group}} {{state}}",
                ),
            ),
            Unit.number,
            Kind.table,
            height=6,
        ),
        Panel(
            "Generation",
            "It grows with each change of members. Normal: it stands still between deployments.",
            (
                Query(
                    "max by (consumer_group) (goqueue_consumer_group_generation{@all,@group})",
                    "{{consumer_group}}",
                ),
            ),
            Unit.number,
            Kind.table,
            height=6,
        ),
    ),
)

_LAG = Row(
    "Lag and work",
    (
        Panel(
            "Lag by topic",
            "Messages due and not settled. Normal: steady or falling.",
            (
                Query(
                    "sum by (group, topic) (goqueue_consumergroup_group_lag{@all,@lagging,@topic})",
                    "{{group}} {{topic}}",
                ),
            ),
            Unit.number,
            warn=10_000,
            bad=100_000,
            alerts=("GoQueueHighConsumerLag", "GoQueueCriticalConsumerLag"),
        ),
        Panel(
            "Age of the oldest message",
            "Since when it could have been delivered: measured by the log. Normal: seconds.",
            (
                Query(
                    "max by (group, topic)"
                    " (goqueue_consumergroup_group_lag_seconds{@all,@lagging,@topic})",
                    "{{group}} {{topic}}",
                ),
            ),
            Unit.seconds,
            warn=300,
            alerts=("GoQueueConsumerLagSeconds",),
        ),
        Panel(
            "Acked",
            "Messages a second. Normal: as many as are published; 0 with lag is a group that"
            " stands.",
            (
                Query(
                    "sum by (consumer_group, topic)"
                    " (rate(goqueue_broker_messages_acked_total{@all,@group,@topic}[@rate]))",
                    "{{consumer_group}} {{topic}}",
                ),
            ),
            Unit.messages_per_second,
            alerts=("GoQueueNoOffsetCommits",),
        ),
        Panel(
            "Unevenness of lag",
            "The most lag of a partition, by the mean. Normal: 1 to 3; more is a hot key, or one"
            " slow member.",
            (
                Query(
                    "max by (group, topic)"
                    " (goqueue_consumergroup_group_lag{@all,@lagging,@topic})"
                    " / avg by (group, topic)"
                    " (goqueue_consumergroup_group_lag{@all,@lagging,@topic})",
                    "{{group}} {{topic}}",
                ),
            ),
            Unit.number,
        ),
        Panel(
            "In flight",
            "Leased and not settled. Normal: members times what each works on; at 10,000 a"
            " partition no more is given.",
            (
                Query(
                    "sum by (consumer_group, topic)"
                    " (goqueue_in_flight_messages{@all,@group,@topic})",
                    "{{consumer_group}} {{topic}}",
                ),
            ),
            Unit.number,
        ),
        Panel(
            "Receives",
            "Polls and receives a second, and those that brought nothing. Normal: with long polls,"
            " few empty ones.",
            (
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_consumer_polls_total{@all,@group}[@rate]))",
                    "{{consumer_group}}",
                ),
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_consumer_polls_empty_total{@all,@group}[@rate]))",
                    "{{consumer_group}} empty",
                ),
            ),
            Unit.requests_per_second,
        ),
        Panel(
            "Messages of a receive",
            "Of those that brought any. Normal: near what consumers ask for while they are"
            " behind, less while they are not.",
            quantiles(
                "goqueue_consumer_poll_batch_size",
                "@all,@group",
                "consumer_group",
                of=(0.5, 0.95),
            ),
            Unit.number,
        ),
        Panel(
            "Positions committed",
            "Partitions a second, of clients that commit offsets. Normal: as your clients are set;"
            " those that ack each message commit none.",
            (
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_consumer_offset_commits_total{@all,@group,@topic}[@rate]))",
                    "{{consumer_group}}",
                ),
            ),
            Unit.operations_per_second,
        ),
    ),
)

_REBALANCES = Row(
    "Rebalances",
    (
        Panel(
            "Rebalances by cause",
            "Begun a second. Normal: a few around a deployment, none between.",
            (
                Query(
                    "sum by (consumer_group, trigger)"
                    " (rate(goqueue_consumer_rebalances_total{@all,@group}[@rate]))",
                    "{{consumer_group}} {{trigger}}",
                ),
            ),
            Unit.per_second,
            alerts=("GoQueueFrequentRebalances",),
        ),
        Panel(
            "How long rebalances take",
            "To the last partition's arrival. Normal: below a second with healthy members; up to"
            " the session timeout after a death.",
            quantiles(
                "goqueue_consumer_rebalance_latency_seconds", "@all,@group", "consumer_group"
            ),
            Unit.seconds,
            alerts=("GoQueueRebalanceStuck",),
        ),
        Panel(
            "Pause of a partition that moves",
            "All others are not paused at all. Normal: p99 below half a second where the former"
            " owner lives.",
            quantiles("goqueue_consumer_partition_pause_seconds", "@all"),
            Unit.seconds,
        ),
        Panel(
            "Partitions that moved",
            "Taken from members and given to others. Normal: no more than a change of members"
            " needs.",
            (
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_consumer_partitions_assigned_total{@all,@group}[@rate]))",
                    "{{consumer_group}} given",
                ),
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_consumer_partitions_revoked_total{@all,@group}[@rate]))",
                    "{{consumer_group}} taken",
                ),
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_consumer_partitions_fenced_total{@all,@group}[@rate]))",
                    "{{consumer_group}} fenced",
                ),
            ),
            Unit.per_second,
        ),
        Panel(
            "On their way now",
            "Partitions that nobody works on. Normal: 0 but for moments.",
            (
                Query(
                    "max by (consumer_group) (goqueue_consumer_moving_partitions{@all,@group})",
                    "{{consumer_group}}",
                ),
            ),
            Unit.number,
            alerts=("GoQueueRebalanceStuck",),
            still="a move takes less time than passes between two looks",
        ),
        Panel(
            "Members that come and go",
            "Joins, leaves and sessions that ended by silence. Normal: deployments only.",
            (
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_consumer_group_joins_total{@all,@group}[@rate]))",
                    "{{consumer_group}} joins",
                ),
                Query(
                    "sum by (consumer_group, reason)"
                    " (rate(goqueue_consumer_group_leaves_total{@all,@group}[@rate]))",
                    "{{consumer_group}} {{reason}}",
                ),
            ),
            Unit.per_second,
            alerts=("GoQueueMembersLost",),
        ),
        Panel(
            "Heartbeats",
            "Answered a second. Normal: one for each member every few seconds.",
            (
                Query(
                    "sum by (consumer_group)"
                    " (rate(goqueue_consumer_heartbeats_sent_total{@all,@group}[@rate]))",
                    "{{consumer_group}}",
                ),
            ),
            Unit.per_second,
        ),
        Panel(
            "Consumers by topic",
            "Members that consume a topic. Normal: as many as you run.",
            (
                Query(
                    "sum by (topic, consumer_group)"
                    " (goqueue_broker_active_consumers{@all,@group,@topic})",
                    "{{topic}} {{consumer_group}}",
                ),
            ),
            Unit.number,
        ),
    ),
)

DASHBOARD = Dashboard(
    "groups",
    "goqueue-consumers",
    "GoQueue Groups and rebalances",
    "How far groups are behind, who works in them, and what their rebalances cost.",
    (_HEALTH, _LAG, _REBALANCES),
    (TOPIC, GROUP),
)
