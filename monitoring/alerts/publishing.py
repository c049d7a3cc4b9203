"""Publishing and receiving: how long they take, and how many fail."""

from __future__ import annotations

from monitoring.alerts.model import Group, Severity, alert
from monitoring.alerts.objectives import NO_FAILURES, SERVER_FAULTS

_FAILED = (
    "sum by (@in) (rate(goqueue_broker_messages_failed_total"
    f'{{error_type=~"{"|".join(SERVER_FAULTS)}"}}[5m]))'
)
_PUBLISHED = "sum by (@in) (rate(goqueue_broker_messages_published_total[5m]))"

GROUP = Group(
    "goqueue.publishing",
    (
        alert(
            "GoQueueHighPublishLatency",
            Severity.warning,
            "5m",
            "histogram_quantile(0.99, sum by (@in, topic, le)"
            " (rate(goqueue_broker_publish_latency_seconds_bucket[5m])))",
            "> 0.1",
            "Publishing to {{ $labels.topic }} is slow",
            "99 % of the batches are acked within {{ $value | humanizeDuration }}; 0.1 s is the"
            " bound.",
        ),
        alert(
            "GoQueueHighFetchLatency",
            Severity.warning,
            "5m",
            "histogram_quantile(0.99, sum by (@in, consumer_group, le)"
            " (rate(goqueue_broker_fetch_latency_seconds_bucket[5m])))",
            "> 0.1",
            "Receives of {{ $labels.consumer_group }} are slow",
            "99 % are answered within {{ $value | humanizeDuration }} of there being a message;"
            " 0.1 s is the bound.",
        ),
        alert(
            "GoQueueHighErrorRate",
            Severity.warning,
            "5m",
            f"({_FAILED} or 0 * {_PUBLISHED})\n/\n(({_FAILED} or 0 * {_PUBLISHED}) + {_PUBLISHED})",
            "> 0.01",
            "More than 1 % of publishes fail",
            "{{ $value | humanizePercentage }} of the messages that publishers sent were not"
            " acked, for reasons that are not theirs; 1 % is the bound.",
            still=NO_FAILURES,
        ),
    ),
)
