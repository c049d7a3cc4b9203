"""Priorities and delays: what waits in which lane, and whether what is delayed comes in time."""

from __future__ import annotations

from monitoring.dashboards.model import TOPIC, Dashboard, Panel, Query, Row, Unit, quantiles

_SHOWN = "{{topic}} {{lane}}"

_LANES = Row(
    "Lanes",
    (
        Panel(
            "Published by lane",
            "Messages a second. Normal: few critical ones; priorities mean little where all is"
            " critical.",
            (
                Query(
                    "sum by (topic, priority)"
                    " (rate(goqueue_broker_priority_messages_published_total{@all,@topic}[@rate]))",
                    "{{topic}} {{priority}}",
                ),
            ),
            Unit.messages_per_second,
            stacked=True,
        ),
        Panel(
            "Ready by lane",
            "To be delivered, over all groups. Normal: near 0 in high lanes; low ones may hold"
            " what comes in bursts.",
            (Query("sum by (topic, lane) (goqueue_ready_messages{@all,@topic})", _SHOWN),),
            Unit.number,
            stacked=True,
        ),
        Panel(
            "Oldest ready message",
            "For how long it has been waiting, in the group that is furthest behind. Normal: short"
            " in high lanes; bounded in low ones while anything is delivered (lane_max_wait, 30 s,"
            " and what stands before it).",
            (Query("max by (topic, lane) (goqueue_lane_head_wait_seconds{@all,@topic})", _SHOWN),),
            Unit.seconds,
            warn=30,
            bad=120,
            alerts=("GoQueueLaneStarved",),
        ),
        Panel(
            "Wait before delivery",
            "Of the first message of each delivery, on average. Normal: milliseconds for groups"
            " that keep up.",
            (
                Query(
                    "sum by (topic, lane)"
                    " (rate(goqueue_lane_wait_seconds_total{@all,@topic}[@rate]))"
                    " / sum by (topic, lane) (rate(goqueue_lane_waits_total{@all,@topic}[@rate]))",
                    _SHOWN,
                ),
            ),
            Unit.seconds,
            warn=30,
        ),
        Panel(
            "Deliveries by lane",
            "A second. Normal: high lanes first; low ones have their share (lane_share, one in"
            " five) once they have waited too long.",
            (
                Query(
                    "sum by (topic, lane) (rate(goqueue_lane_waits_total{@all,@topic}[@rate]))",
                    _SHOWN,
                ),
            ),
            Unit.per_second,
            stacked=True,
        ),
        Panel(
            "Longest wait so far",
            "Since the partition's leader knows. Normal: it only grows; a step is worth a look.",
            (
                Query(
                    "max by (topic, lane) (goqueue_lane_longest_wait_seconds{@all,@topic})", _SHOWN
                ),
            ),
            Unit.seconds,
        ),
    ),
)

_DELAYS = Row(
    "Delays",
    (
        Panel(
            "Delayed and not due",
            "Normal: what you schedule; at a topic's delayed_max (100,000 a partition) publishes"
            " with a delay are refused.",
            (
                Query(
                    "sum by (topic) (goqueue_broker_delayed_messages_pending{@all,@topic})",
                    "{{topic}}",
                ),
            ),
            Unit.number,
        ),
        Panel(
            "Scheduled and due",
            "Messages stored with a delay, and those that became ready. Normal: as many of each,"
            " over time.",
            (
                Query(
                    "sum by (topic)"
                    " (rate(goqueue_broker_delayed_messages_scheduled_total{@all,@topic}[@rate]))",
                    "{{topic}} scheduled",
                ),
                Query(
                    "sum by (topic)"
                    " (rate(goqueue_broker_delayed_messages_fired_total{@all,@topic}[@rate]))",
                    "{{topic}} due",
                ),
            ),
            Unit.messages_per_second,
        ),
        Panel(
            "Lateness",
            "Of the first message that becomes ready at a time. Normal: p99 below 50 ms where"
            " somebody waits for it, below a second elsewhere.",
            quantiles("goqueue_delay_lateness_seconds", "@all"),
            Unit.seconds,
            warn=1,
            alerts=("GoQueueDelayedLate",),
        ),
        Panel(
            "Receives that wait",
            "Long polls held by nodes. Normal: idle consumers; it falls as messages come.",
            (Query("sum(goqueue_waiting_receives{@all})", "waiting"),),
            Unit.number,
        ),
    ),
)

DASHBOARD = Dashboard(
    "lanes",
    "goqueue-lanes",
    "GoQueue Lanes and delays",
    "What waits, in which lane, for how long, and what is not due yet.",
    (_LANES, _DELAYS),
    (TOPIC,),
)
