"""What is promised to publishers, and how fast the room for failure is used up.

Two objectives over 30 days: 99.9 % of the messages that publishers sent are acked, leaving out what
was the client's own mistake; 99 % of the batches are acked within 100 ms. Burn rates are looked at
over a long window and a short one at once (Google's SRE workbook, chapter 5): the long one says
that it matters, the short one that it still goes on.
"""

from __future__ import annotations

from monitoring.alerts.model import Alert, Condition, Group, Record, Severity

ACKED_SHARE, QUICK_SHARE = 0.999, 0.99
QUICK_S = "0.1"
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
SERVER_FAULTS = (
    "busy",
    "connection_failed",
    "corrupt",
    "disk_full",
    "internal",
    "no_quorum",
    "not_leader",
    "outcome_unknown",
    "timeout",
    "unavailable",
)
"""Codes of errors that are not the client's mistake."""
NO_FAILURES = "a healthy cluster fails no publish"
IN_TIME = "a healthy cluster acks nearly all within 100 ms"
FAST, SLOW = ("1h", "5m", 14.4), ("1d", "2h", 3.0)
"""Long window, short window, and how many times faster than even: 2 % of a month's room in an hour,
10 % in a day."""


def _ratios() -> tuple[Record, ...]:
    found: list[Record] = []
    failed = "goqueue_broker_messages_failed_total"
    published = "goqueue_broker_messages_published_total"
    latency = "goqueue_broker_publish_latency_seconds"
    codes = "|".join(SERVER_FAULTS)
    for window in WINDOWS:
        errors = f'sum by (@in) (rate({failed}{{error_type=~"{codes}"}}[{window}]))'
        good = f"sum by (@in) (rate({published}[{window}]))"
        found += [
            Record(
                f"goqueue:publish_errors:rate{window}",
                f"{errors}\nor\n0 * {good}",
                NO_FAILURES,
            ),
            Record(
                f"goqueue:publish_errors:ratio_rate{window}",
                f"goqueue:publish_errors:rate{window}\n/\n"
                f"(goqueue:publish_errors:rate{window} + {good})",
                NO_FAILURES,
            ),
            Record(
                f"goqueue:publish_slow:ratio_rate{window}",
                f'1 - sum by (@in) (rate({latency}_bucket{{le="{QUICK_S}"}}[{window}]))\n/\n'
                f"sum by (@in) (rate({latency}_count[{window}]))",
                IN_TIME,
            ),
        ]
    return tuple(found)


RECORDS = Group(
    "goqueue.records",
    (
        *_ratios(),
        Record(
            "goqueue:messages_published:rate5m",
            "sum by (@in, topic) (rate(goqueue_broker_messages_published_total[5m]))",
        ),
        Record(
            "goqueue:messages_consumed:rate5m",
            "sum by (@in, topic, consumer_group)"
            " (rate(goqueue_broker_messages_consumed_total[5m]))",
        ),
        Record(
            "goqueue:publish_latency:p99_5m",
            "histogram_quantile(0.99, sum by (@in, topic, le)"
            " (rate(goqueue_broker_publish_latency_seconds_bucket[5m])))",
        ),
        Record(
            "goqueue:group_lag:sum",
            "sum by (@in, group, topic) (goqueue_consumergroup_group_lag)",
        ),
        Record(
            "goqueue:group_lag_seconds:max",
            "max by (@in, group, topic) (goqueue_consumergroup_group_lag_seconds)",
        ),
    ),
)


def _burn(
    name: str,
    severity: Severity,
    windows: tuple[str, str, float],
    ratio: str,
    share: float,
    what: str,
    still: str,
) -> Alert:
    long, short, times = windows
    bad = f"> {round(times * (1 - share), 6)}"
    return Alert(
        name,
        severity,
        "2m" if severity is Severity.critical else "15m",
        (
            Condition(f"goqueue:{ratio}:ratio_rate{long}", bad, still),
            Condition(f"goqueue:{ratio}:ratio_rate{short}", bad, still),
        ),
        f"{what} too often: the month's room goes {times:g} times too fast",
        f"{{{{ $value | humanizePercentage }}}} of the last {long}, and of the last {short} as"
        f" well; {100 * (1 - share):g} % are allowed over a month.",
    )


GROUP = Group(
    "goqueue.objectives",
    (
        _burn(
            "GoQueueErrorBudgetBurn",
            Severity.critical,
            FAST,
            "publish_errors",
            ACKED_SHARE,
            "Publishes fail",
            NO_FAILURES,
        ),
        _burn(
            "GoQueueErrorBudgetBurnSlow",
            Severity.warning,
            SLOW,
            "publish_errors",
            ACKED_SHARE,
            "Publishes fail",
            NO_FAILURES,
        ),
        _burn(
            "GoQueueLatencyBudgetBurn",
            Severity.critical,
            FAST,
            "publish_slow",
            QUICK_SHARE,
            "Publishes take longer than 100 ms",
            IN_TIME,
        ),
        _burn(
            "GoQueueLatencyBudgetBurnSlow",
            Severity.warning,
            SLOW,
            "publish_slow",
            QUICK_SHARE,
            "Publishes take longer than 100 ms",
            IN_TIME,
        ),
    ),
)
