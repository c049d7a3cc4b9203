"""Topics: what goes in and out, how large they are, and who has their partitions."""

from __future__ import annotations

from monitoring.dashboards.model import TOPIC, Dashboard, Panel, Query, Row, Unit, quantiles

_OFFENCE = "it takes a client that makes the mistake"

_PUBLISHING = Row(
    "Publishing",
    (
        Panel(
            "Messages published",
            "Acked to publishers a second. Normal: the topic's own daily shape.",
            (
                Query(
                    "sum by (topic)"
                    " (rate(goqueue_broker_messages_published_total{@all,@topic}[@rate]))",
                    "{{topic}}",
                ),
            ),
            Unit.messages_per_second,
        ),
        Panel(
            "Bytes published",
            "As stored, compressed where that saves. Normal: messages times their size.",
            (
                Query(
                    "sum by (topic)"
                    " (rate(goqueue_broker_bytes_published_total{@all,@topic}[@rate]))",
                    "{{topic}}",
                ),
            ),
            Unit.bytes_per_second,
        ),
        Panel(
            "Publish latency",
            "Replicated and synced. Normal: p99 below 100 ms, and alike for all topics.",
            quantiles(
                "goqueue_broker_publish_latency_seconds", "@all,@topic", "topic", of=(0.5, 0.99)
            ),
            Unit.seconds,
            warn=0.1,
            alerts=("GoQueueHighPublishLatency",),
        ),
        Panel(
            "Messages refused",
            "By the error's code. Normal: 0. Codes of 5xx are the cluster's, all others the"
            " clients'.",
            (
                Query(
                    "sum by (topic, error_type)"
                    " (rate(goqueue_broker_messages_failed_total{@all,@topic}[@rate]))",
                    "{{topic}} {{error_type}}",
                ),
            ),
            Unit.messages_per_second,
            alerts=("GoQueueHighErrorRate",),
        ),
        Panel(
            "Duplicates recognised",
            "Messages that were stored already, and answered with their original's offset. Normal:"
            " few; more after failovers, when clients repeat.",
            (
                Query(
                    "sum by (topic) (rate(goqueue_duplicate_messages_total{@all,@topic}[@rate]))",
                    "{{topic}}",
                ),
            ),
            Unit.messages_per_second,
        ),
        Panel(
            "Appends refused by leaders",
            "By the error's code; nodes repeat many of them elsewhere. Normal: 0, a few"
            " not_leader while leaders change.",
            (
                Query(
                    "sum by (code) (rate(goqueue_refused_requests_total{@all}[@rate]))", "{{code}}"
                ),
            ),
            Unit.requests_per_second,
            still=_OFFENCE,
        ),
    ),
)

_READING = Row(
    "Reading",
    (
        Panel(
            "Messages delivered",
            "Leased to groups a second, each time. Normal: what is published, once for each group.",
            (
                Query(
                    "sum by (topic, consumer_group)"
                    " (rate(goqueue_broker_messages_consumed_total{@all,@topic}[@rate]))",
                    "{{topic}} {{consumer_group}}",
                ),
            ),
            Unit.messages_per_second,
        ),
        Panel(
            "Messages read by offset",
            "Without a group: replays, Spark, tools. Normal: whatever these do; it holds nobody"
            " up.",
            (
                Query(
                    "sum by (topic) (rate(goqueue_read_messages_total{@all,@topic}[@rate]))",
                    "{{topic}}",
                ),
            ),
            Unit.messages_per_second,
        ),
    ),
)

_STORED = Row(
    "What is stored",
    (
        Panel(
            "Messages stored",
            "From the log's start to its end, over the topic's partitions. Normal: what retention"
            " lets stand.",
            (
                Query(
                    "sum by (topic) (goqueue_storage_log_end_offset{@all,@topic})"
                    " - sum by (topic) (goqueue_storage_log_start_offset{@all,@topic})",
                    "{{topic}}",
                ),
            ),
            Unit.number,
        ),
        Panel(
            "Size on disk",
            "Of all replicas together. Normal: levels off at the retention's size times replicas.",
            (
                Query(
                    "sum by (topic) (goqueue_storage_log_size_bytes{@all,@topic})",
                    "{{topic}}",
                ),
            ),
            Unit.bytes,
        ),
        Panel(
            "Segments",
            "Files of all replicas. Normal: grows and shrinks with size.",
            (Query("sum by (topic) (goqueue_storage_segments_total{@all,@topic})", "{{topic}}"),),
            Unit.number,
        ),
        Panel(
            "Segments removed",
            "By retention and compaction. Normal: in steps, as segments grow old; none on a topic"
            " that is full is a sign.",
            (
                Query(
                    "sum by (topic)"
                    " (rate(goqueue_storage_segments_deleted_total{@all,@topic}[@rate]))",
                    "{{topic}}",
                ),
            ),
            Unit.per_second,
        ),
        Panel(
            "Not compacted",
            "Of compacted topics: how much of what a run would look at. Normal: up to the topic's"
            " min_cleanable_ratio (0.5), then it falls.",
            (
                Query(
                    "max by (topic) (goqueue_storage_compaction_dirty_ratio{@all,@topic})",
                    "{{topic}}",
                ),
            ),
            Unit.ratio,
            most=1,
        ),
        Panel(
            "Superseded messages dropped",
            "By compaction. Normal: in steps, a run at a time.",
            (
                Query(
                    "sum by (topic)"
                    " (rate(goqueue_compaction_dropped_messages_total{@all,@topic}[@rate]))",
                    "{{topic}}",
                ),
            ),
            Unit.messages_per_second,
        ),
        Panel(
            "Not archived for",
            "Of topics that have an archive, or wait for one: how long ago the oldest message that"
            " is not in it was stored. Normal: up to the time between two runs of the archive.",
            (
                Query(
                    "max by (topic) (goqueue_archive_lag_seconds{@all,@topic})",
                    "{{topic}}",
                ),
            ),
            Unit.seconds,
            alerts=("GoQueueArchiveLags",),
        ),
        Panel(
            "Messages not archived",
            "Of the same topics. Where their messages wait for the archive, none of these goes,"
            " whatever their age. Normal: grows and falls with each run.",
            (
                Query(
                    "sum by (topic) (goqueue_archive_lag_messages{@all,@topic})",
                    "{{topic}}",
                ),
            ),
            Unit.number,
        ),
    ),
)

_PARTITIONS = Row(
    "Partitions",
    (
        Panel(
            "Share of the busiest partition",
            "Of a topic's messages of the last minutes. Normal: near 1 divided by the number of"
            " partitions; near 1 is one hot key.",
            (
                Query(
                    "max by (topic) (rate(goqueue_cluster_high_watermark{@all,@topic}[@rate]))"
                    " / sum by (topic) (max by (topic, partition)"
                    " (rate(goqueue_cluster_high_watermark{@all,@topic}[@rate])))",
                    "{{topic}}",
                ),
            ),
            Unit.ratio,
            most=1,
        ),
        Panel(
            "Replicas in sync",
            "The fewest of any partition, its leader among them. Normal: the replication factor.",
            (Query("min by (topic) (goqueue_cluster_isr_size{@all,@topic})", "{{topic}}"),),
            Unit.number,
            alerts=("GoQueueUnderReplicatedPartitions",),
        ),
    ),
)

DASHBOARD = Dashboard(
    "topics",
    "goqueue-topics",
    "GoQueue Topics",
    "What goes through topics, and what they hold.",
    (_PUBLISHING, _READING, _STORED, _PARTITIONS),
    (TOPIC,),
)
