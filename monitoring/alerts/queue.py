"""Queues: what dies, what comes again and again, what waits too long, what is lost to retention."""

from __future__ import annotations

from monitoring.alerts.model import Alert, Condition, Group, Severity, alert

GROUP = Group(
    "goqueue.queue",
    (
        alert(
            "GoQueueDeadLettersGrowing",
            Severity.warning,
            "10m",
            "sum by (@in, topic, consumer_group) (increase(goqueue_died_messages_total[15m]))",
            "> 10",
            "Messages of {{ $labels.topic }} die for {{ $labels.consumer_group }}",
            "{{ $value | humanize }} became dead letters in 15 minutes.",
        ),
        Alert(
            "GoQueueRedeliveryStorm",
            Severity.warning,
            "10m",
            (
                Condition(
                    "sum by (@in, topic, consumer_group)"
                    " (rate(goqueue_redelivered_messages_total[5m]))\n/\n"
                    "sum by (@in, topic, consumer_group)"
                    " (rate(goqueue_broker_messages_consumed_total[5m]))",
                    "> 0.5",
                ),
                Condition(
                    "sum by (@in, topic, consumer_group)"
                    " (rate(goqueue_redelivered_messages_total[5m]))",
                    "> 1",
                ),
            ),
            "{{ $labels.consumer_group }} is given the same messages of {{ $labels.topic }} again",
            "{{ $value | humanizePercentage }} of its deliveries are of messages that failed"
            " before.",
        ),
        Alert(
            "GoQueueLaneStarved",
            Severity.warning,
            "5m",
            (
                Condition(
                    "max by (@in, topic, lane) (goqueue_lane_head_wait_seconds)",
                    "> 120",
                ),
                Condition(
                    "sum by (@in, topic) (rate(goqueue_lane_waits_total[5m]))",
                    "> 0",
                ),
            ),
            "Lane {{ $labels.lane }} of {{ $labels.topic }} waits too long",
            "Its oldest ready message waits for {{ $value | humanizeDuration }}, while others are"
            " delivered.",
            on="@in, topic",
        ),
        alert(
            "GoQueueDelayedLate",
            Severity.warning,
            "5m",
            "histogram_quantile(0.99, sum by (@in, le)"
            " (rate(goqueue_delay_lateness_seconds_bucket[5m])))",
            "> 1",
            "Delayed messages become ready late",
            "99 % are at most {{ $value | humanizeDuration }} late; 1 s is the bound.",
        ),
        alert(
            "GoQueueMessagesLostToRetention",
            Severity.critical,
            "0m",
            "sum by (@in, topic, consumer_group) (increase(goqueue_fallen_messages_total[15m]))",
            "> 0",
            "Retention took messages of {{ $labels.topic }} from {{ $labels.consumer_group }}",
            "{{ $value | humanize }} in 15 minutes, before the group had settled them.",
        ),
    ),
)
