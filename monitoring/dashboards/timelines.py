"""What became of messages: failures, redeliveries, dead letters, and who asks for timelines."""

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


def _rate(metric: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (rate({metric}{{@all,@topic,@group}}[@rate]))"


_BY = ("topic", "consumer_group")
_SHOWN = "{{topic}} {{consumer_group}}"
_LOOKED = '@all,route=~"/messages|.*(timeline|traces|why).*"'
_ALL_LOOKED = f"sum(rate(goqueue_http_requests_total{{{_LOOKED}}}[@rate]))"

_OUTCOMES = Row(
    "What became of deliveries",
    (
        Panel(
            "Ends of deliveries",
            "Acked, failed, rejected, run out, prolonged. Normal: nearly all are acked.",
            (
                Query(
                    _rate("goqueue_broker_messages_acked_total", "consumer_group"),
                    "acked {{consumer_group}}",
                ),
                Query(
                    _rate("goqueue_broker_messages_nacked_total", "consumer_group"),
                    "nacked {{consumer_group}}",
                ),
                Query(
                    _rate("goqueue_broker_messages_rejected_total", "consumer_group"),
                    "rejected {{consumer_group}}",
                ),
                Query(
                    _rate("goqueue_expired_leases_total", "consumer_group"),
                    "run out {{consumer_group}}",
                ),
                Query(
                    _rate("goqueue_extended_leases_total", "consumer_group"),
                    "prolonged {{consumer_group}}",
                ),
            ),
            Unit.messages_per_second,
        ),
        Panel(
            "Share of redeliveries",
            "Deliveries of messages that had failed before. Normal: below a few percent.",
            (
                Query(
                    _rate("goqueue_redelivered_messages_total", *_BY)
                    + " / "
                    + _rate("goqueue_broker_messages_consumed_total", *_BY),
                    _SHOWN,
                ),
            ),
            Unit.ratio,
            warn=0.1,
            bad=0.5,
            most=1,
            alerts=("GoQueueRedeliveryStorm",),
        ),
        Panel(
            "Leases that ended without their holder",
            "Run out, or taken with the partition from a consumer that was lost. Normal: few;"
            " many mean a visibility timeout that is too short, or consumers that die.",
            (
                Query(_rate("goqueue_expired_leases_total", *_BY), "run out " + _SHOWN),
                Query(
                    _rate("goqueue_fenced_leases_total", *_BY),
                    "fenced " + _SHOWN,
                    still="members that fall silent hold nothing in most runs",
                ),
            ),
            Unit.per_second,
        ),
        Panel(
            "Settle latency",
            "By what was done. Normal: as publishing.",
            quantiles("goqueue_broker_ack_latency_seconds", "@all,@topic", "ack_type", of=(0.99,)),
            Unit.seconds,
            warn=0.1,
        ),
    ),
)

_DEAD = Row(
    "Dead letters",
    (
        Panel(
            "Dead letters",
            "That wait for somebody to look. Normal: 0, or what you know of.",
            (
                Query(
                    "sum by (topic, consumer_group) (goqueue_dead_letters{@all,@topic,@group})",
                    _SHOWN,
                ),
            ),
            Unit.number,
            warn=1,
            alerts=("GoQueueDeadLettersGrowing",),
        ),
        Panel(
            "Deaths",
            "Messages that became dead letters a second. Normal: 0.",
            (Query(_rate("goqueue_died_messages_total", *_BY), _SHOWN),),
            Unit.messages_per_second,
            alerts=("GoQueueDeadLettersGrowing",),
        ),
        Panel(
            "Halted partitions",
            "Where a group is given nothing, because most of its work failed. Normal: 0.",
            (
                Query(
                    "sum by (topic, consumer_group)"
                    " (goqueue_halted_partitions{@all,@topic,@group})",
                    _SHOWN,
                ),
            ),
            Unit.number,
            bad=1,
            alerts=("GoQueueGroupHalted",),
        ),
        Panel(
            "Never settled",
            "Taken from groups by retention, by expiry or by a cancel. Normal: what you let expire"
            " or cancel; retention takes nothing from a group that keeps up.",
            (
                Query(_rate("goqueue_withdrawn_messages_total", *_BY), "withdrawn " + _SHOWN),
                Query(_rate("goqueue_fallen_messages_total", *_BY), "retention " + _SHOWN),
            ),
            Unit.messages_per_second,
            alerts=("GoQueueMessagesLostToRetention",),
        ),
    ),
)

_LOOKUPS = Row(
    "Timelines",
    (
        Panel(
            "Look-ups",
            "Searches, timelines, traces and reasons asked for, by route. Normal: people and"
            " tools that look; they cost nothing while nobody does.",
            (
                Query(
                    f"sum by (route) (rate(goqueue_http_requests_total{{{_LOOKED}}}[@rate]))",
                    "{{route}}",
                ),
            ),
            Unit.requests_per_second,
        ),
        Panel(
            "Latency of look-ups",
            "Normal: below 50 ms, with a million messages in the partition, too.",
            quantiles("goqueue_http_request_seconds", _LOOKED, "route", of=(0.5, 0.99)),
            Unit.seconds,
            warn=0.05,
        ),
        Panel(
            "Share of failed look-ups",
            "Answers of 4xx and 5xx. Normal: what retention has taken is 404.",
            (
                Query(
                    f'(sum(rate(goqueue_http_requests_total{{{_LOOKED},status=~"[45].."}}[@rate]))'
                    f" or 0 * {_ALL_LOOKED}) / {_ALL_LOOKED}",
                    "failed",
                ),
            ),
            Unit.ratio,
            Kind.figure,
            width=12,
            height=5,
        ),
    ),
)

DASHBOARD = Dashboard(
    "timelines",
    "goqueue-timelines",
    "GoQueue Timelines and dead letters",
    "What became of messages, and what died.",
    (_OUTCOMES, _DEAD, _LOOKUPS),
    (TOPIC, GROUP),
)
