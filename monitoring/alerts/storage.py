"""Disks: whether they sync, in what time, how full they are, and whether data stay as they were."""

from __future__ import annotations

from monitoring.alerts.model import Alert, Condition, Group, Severity, alert

_WELL = "the disk of a test does not fail"
_FREE = "max by (@in, instance) (goqueue_disk_free_bytes)"
_USED = "max by (@in, instance) (goqueue_disk_used_bytes)"
_MARK = "max by (@in, instance) (goqueue_disk_watermark_bytes)"

GROUP = Group(
    "goqueue.storage",
    (
        alert(
            "GoQueueFsyncErrors",
            Severity.critical,
            "0m",
            "max by (@in, instance) (increase(goqueue_storage_fsync_errors_total[5m]))",
            "> 0",
            "The disk of {{ $labels.instance }} failed a write or a sync",
            "The node ends itself, rather than to acknowledge what may not be stored.",
            still=_WELL,
        ),
        alert(
            "GoQueueHighFsyncLatency",
            Severity.warning,
            "5m",
            "histogram_quantile(0.99, sum by (@in, instance, le)"
            " (rate(goqueue_storage_fsync_latency_seconds_bucket[5m])))",
            "> 0.1",
            "Syncs of {{ $labels.instance }} are slow",
            "99 % take up to {{ $value | humanizeDuration }}; 0.1 s is the bound. Every ack waits"
            " for one.",
        ),
        alert(
            "GoQueueDiskSlow",
            Severity.warning,
            "1m",
            "max by (@in, instance) (goqueue_disk_slow)",
            "> 0",
            "{{ $labels.instance }} has given up leading: its disk is slow",
            "No sync took less than half a second for 5 s, or one does not return.",
            still=_WELL,
        ),
        alert(
            "GoQueueHighDiskUsage",
            Severity.warning,
            "10m",
            f"{_USED}\n/\n({_USED} + {_FREE})",
            "> 0.8",
            "The disk of {{ $labels.instance }} fills up",
            "{{ $value | humanizePercentage }} of it is used; 80 % is the bound.",
        ),
        alert(
            "GoQueueCriticalDiskUsage",
            Severity.critical,
            "1m",
            f"{_FREE}\n/\n{_MARK}",
            "< 1.2",
            "{{ $labels.instance }} is about to refuse publishes, or does",
            "Free space is {{ $value | humanizePercentage }} of the watermark, below which"
            " publishes are refused.",
        ),
        alert(
            "GoQueueDiskFull",
            Severity.critical,
            "0m",
            "max by (@in, instance) (goqueue_disk_stuck)",
            "> 0",
            "The disk of {{ $labels.instance }} is full: it confirms nothing",
            "The reserved room is used up, too. It goes on by itself once there is room.",
            still=_WELL,
        ),
        alert(
            "GoQueueDamagedReplicas",
            Severity.critical,
            "5m",
            "max by (@in, instance) (goqueue_damaged_replicas)",
            "> 0",
            "Replicas on {{ $labels.instance }} are damaged, or have stopped",
            "{{ $value }} neither vote nor lead until they are repaired from another replica.",
            still=_WELL,
        ),
        alert(
            "GoQueueDamageFound",
            Severity.warning,
            "0m",
            "max by (@in, instance) (increase(goqueue_scrub_damaged_entries_total[1h]))",
            "> 0",
            "Stored data of {{ $labels.instance }} were damaged",
            "{{ $value | humanize }} entries in an hour. They are repaired from other replicas;"
            " the disk is suspect.",
            still=_WELL,
        ),
        alert(
            "GoQueueReplicasDiffer",
            Severity.critical,
            "0m",
            "sum by (@in) (increase(goqueue_scrub_diverged_total[1h]))",
            "> 0",
            "Replicas hold different entries at the same place",
            "{{ $value | humanize }} ranges differ though each is sound by itself.",
            still=_WELL,
        ),
        Alert(
            "GoQueueArchiveLags",
            Severity.warning,
            "15m",
            (
                Condition(
                    "max by (@in, topic) (goqueue_archive_lag_seconds)",
                    "> 21600",
                ),
                Condition(
                    "max by (@in, topic) (goqueue_archive_required)",
                    "> 0",
                ),
            ),
            "The archive of {{ $labels.topic }} lags, and its messages wait for it",
            "The oldest that is not archived was stored {{ $value | humanizeDuration }} ago. None"
            " goes before it is; a topic that was never archived keeps everything.",
            on="@in, topic",
        ),
    ),
)
