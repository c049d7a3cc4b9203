"""Consumer groups: how far behind they are, and whether their partitions stay where they are."""

from __future__ import annotations

from monitoring.alerts.model import Alert, Condition, Group, Severity, alert

_LAG = "sum by (@in, group, topic) (goqueue_consumergroup_group_lag)"


def _in_ten_minutes(change: str, metric: str) -> str:
    """Under the labels of lag."""
    changed = f'label_replace({change}({metric}[10m]), "group", "$1", "consumer_group", "(.*)")'
    return f"sum by (@in, group, topic) ({changed})"


GROUP = Group(
    "goqueue.consumer",
    (
        alert(
            "GoQueueHighConsumerLag",
            Severity.warning,
            "5m",
            _LAG,
            "> 10000",
            "{{ $labels.group }} is behind in {{ $labels.topic }}",
            "{{ $value | humanize }} messages are due and not settled; 10,000 is the bound.",
        ),
        alert(
            "GoQueueCriticalConsumerLag",
            Severity.critical,
            "2m",
            _LAG,
            "> 100000",
            "{{ $labels.group }} is far behind in {{ $labels.topic }}",
            "{{ $value | humanize }} messages are due and not settled; 100,000 is the bound.",
        ),
        alert(
            "GoQueueConsumerLagSeconds",
            Severity.warning,
            "5m",
            "max by (@in, group, topic) (goqueue_consumergroup_group_lag_seconds)",
            "> 300",
            "{{ $labels.group }} is minutes behind in {{ $labels.topic }}",
            "Its oldest message could have been delivered {{ $value | humanizeDuration }} ago; 5"
            " minutes is the bound.",
        ),
        Alert(
            "GoQueueNoOffsetCommits",
            Severity.critical,
            "10m",
            (
                Condition(_LAG, "> 0"),
                Condition(_in_ten_minutes("changes", "goqueue_consumer_committed_offset"), "== 0"),
                Condition(
                    _in_ten_minutes("increase", "goqueue_broker_messages_acked_total"), "== 0"
                ),
                Condition(_in_ten_minutes("increase", "goqueue_died_messages_total"), "== 0"),
            ),
            "{{ $labels.group }} settles nothing in {{ $labels.topic }}",
            "{{ $value | humanize }} messages are due; for 10 minutes its position has not moved,"
            " nothing was acked and nothing died.",
        ),
        alert(
            "GoQueueGroupHalted",
            Severity.critical,
            "1m",
            "sum by (@in, consumer_group, topic) (goqueue_halted_partitions)",
            "> 0",
            "{{ $labels.consumer_group }} has halted in {{ $labels.topic }}",
            "Most of what it does fails; in {{ $value }} partitions it is given nothing until"
            " somebody lets it go on.",
        ),
        alert(
            "GoQueueFrequentRebalances",
            Severity.warning,
            "5m",
            "sum by (@in, consumer_group) (increase(goqueue_consumer_rebalances_total[5m]))",
            "> 5",
            "{{ $labels.consumer_group }} is rebalanced again and again",
            "{{ $value | humanize }} rebalances in 5 minutes; members come and go.",
        ),
        alert(
            "GoQueueRebalanceStuck",
            Severity.warning,
            "5m",
            "max by (@in, consumer_group) (goqueue_consumer_moving_partitions)",
            "> 0",
            "A rebalance of {{ $labels.consumer_group }} does not end",
            "{{ $value }} partitions have been on their way from one member to another for 5"
            " minutes. Nobody is given their messages.",
        ),
        alert(
            "GoQueueMembersLost",
            Severity.warning,
            "5m",
            "sum by (@in, consumer_group) (increase(goqueue_consumer_session_timeouts_total[10m]))",
            "> 3",
            "Members of {{ $labels.consumer_group }} fall silent",
            "{{ $value | humanize }} sessions ended by silence in 10 minutes, not by leaving.",
        ),
    ),
)
