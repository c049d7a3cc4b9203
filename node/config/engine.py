"""The options of topics, storage, replication, and of what waits in memory."""

from __future__ import annotations

from dataclasses import dataclass

from node.config.option import duration_ms, flag, integer, option, size_bytes, text

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a topic gets when its creator doesn't say."""

    partitions: int = option(
        6,
        key="defaults.topic.partitions",
        parse=integer,
        low=1,
        high=10_000,
        why="divides by 2 and 3: spreads evenly over few consumers",
    )
    replication_factor: int = option(
        3,
        key="defaults.topic.replicationFactor",
        parse=integer,
        low=1,
        high=7,
        why="survives one death; capped at the number of nodes",
    )
    retention_hours: int = option(
        168,
        key="defaults.topic.retention.hours",
        parse=integer,
        unit="hours",
        low=-1,
        why="7 days; -1 keeps for ever",
    )
    retention_bytes: int = option(
        10 * GIB,
        key="defaults.topic.retention.bytes",
        parse=size_bytes,
        unit="bytes a partition",
        low=-1,
        why="10 GiB; -1 is no limit",
    )
    durability: str = option(
        "majority",
        key="defaults.topic.durability",
        parse=text,
        choices=("majority", "relaxed"),
        why="an ack means fsynced on a majority; relaxed acks after write(2)",
    )
    flush_interval_ms: int = option(
        50,
        key="defaults.topic.flushInterval",
        parse=duration_ms,
        unit="ms",
        low=1,
        high=10_000,
        why="what a relaxed topic may lose when power fails everywhere",
    )
    max_message_bytes: int = option(
        1 * MIB,
        key="defaults.topic.maxMessageBytes",
        parse=size_bytes,
        unit="bytes",
        low=1,
        high=15 * MIB,
        why="key, value and headers of one message",
    )


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """The write-ahead log, segments and snapshots."""

    segment_bytes: int = option(
        64 * MIB,
        key="storage.segmentBytes",
        parse=size_bytes,
        unit="bytes",
        low=64 << 10,
        high=2 * GIB,
        why="retention frees whole segments; same on every node, so that replicas' files agree",
    )
    segment_ms: int = option(
        24 * 3_600_000,
        key="storage.segmentAge",
        parse=duration_ms,
        unit="ms of log time",
        low=1000,
        why="an idle partition's old messages leave a day late at most",
    )
    wal_file_bytes: int = option(
        64 * MIB,
        key="storage.walFileBytes",
        parse=size_bytes,
        unit="bytes",
        low=1 * MIB,
        high=1 * GIB,
        why="bounds what a restart replays, with a few files at most",
    )
    snapshot_interval_ms: int = option(
        60_000,
        key="storage.snapshotInterval",
        parse=duration_ms,
        unit="ms",
        low=100,
        why="bounds what a restart applies again",
    )
    snapshot_entries: int = option(
        20_000,
        key="storage.snapshotEntries",
        parse=integer,
        unit="entries",
        low=1,
        why="a busy partition is snapshotted sooner than its interval",
    )
    checkpoint_interval_ms: int = option(
        5_000,
        key="storage.checkpointInterval",
        parse=duration_ms,
        unit="ms",
        low=50,
        why="segments are synced this often, so that write-ahead files can go",
    )
    space_reserve_bytes: int = option(
        256 * MIB,
        key="storage.reserveBytes",
        parse=size_bytes,
        unit="bytes free",
        low=0,
        why="publishes are refused below it, so that recovery always has room",
    )
    space_reserve_percent: int = option(
        2,
        key="storage.reservePercent",
        parse=integer,
        unit="% free",
        low=0,
        high=90,
        why="the same for large disks; the larger of the two counts",
    )
    accept_loss: bool = option(
        False,
        key="storage.acceptLoss",
        parse=flag,
        why="a node that holds the only copy refuses to start on damage, until told",
    )
    scrub_interval_ms: int = option(
        24 * 3_600_000,
        key="storage.scrubInterval",
        parse=duration_ms,
        unit="ms",
        low=0,
        why="everything stored is read again this often, while others have sound copies; 0: never",
    )
    scrub_bytes_per_s: int = option(
        16 * MIB,
        key="storage.scrubRate",
        parse=size_bytes,
        unit="bytes a second",
        low=0,
        why="1.4 TB a day, at a tenth of a core; 0 is no limit",
    )
    retention_check_ms: int = option(
        10_000,
        key="storage.retentionCheck",
        parse=duration_ms,
        unit="ms",
        low=50,
        why="how late retention may be",
    )


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """Elections and replication."""

    heartbeat_ms: int = option(
        150,
        key="raft.heartbeat",
        parse=duration_ms,
        unit="ms",
        low=5,
        why="one frame a peer for all groups; several fit in an election timeout",
    )
    election_min_ms: int = option(
        1000,
        key="raft.electionMin",
        parse=duration_ms,
        unit="ms",
        low=20,
        why="silence is believed after this; a closed link is believed at once",
    )
    election_max_ms: int = option(
        1500,
        key="raft.electionMax",
        parse=duration_ms,
        unit="ms",
        low=21,
        why="the spread keeps two candidates apart",
    )
    leader_balance_ms: int = option(
        5_000,
        key="raft.leaderBalance",
        parse=duration_ms,
        unit="ms",
        low=100,
        why="how often leadership drifts back to a partition's first replica; one step a time",
    )
    copy_bytes_per_s: int = option(
        100 * MIB,
        key="raft.copyRate",
        parse=size_bytes,
        unit="bytes a second",
        low=0,
        why="what a node copies of whole replicas, so that publishes go on; 0 is no limit",
    )


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Bounds on what waits in memory."""

    partition_pending_bytes: int = option(
        32 * MIB,
        key="limits.partitionPendingBytes",
        parse=size_bytes,
        unit="bytes",
        low=1024,
        why="appends in flight of one partition; beyond it publishes are 429",
    )
    node_pending_bytes: int = option(
        128 * MIB,
        key="limits.nodePendingBytes",
        parse=size_bytes,
        unit="bytes",
        low=1024,
        why="the same for the whole node",
    )
    entry_bytes: int = option(
        1 * MIB,
        key="limits.entryBytes",
        parse=size_bytes,
        unit="bytes",
        low=1024,
        high=16 * MIB,
        why="requests of one loop turn share an entry up to this size",
    )
    read_bytes: int = option(
        4 * MIB,
        key="limits.readBytes",
        parse=size_bytes,
        unit="bytes",
        low=1024,
        why="stored bytes that one read answers with, at least one batch",
    )
    read_waiters: int = option(
        10_000,
        key="limits.readWaiters",
        parse=integer,
        low=1,
        why="long polls a node holds; beyond it they answer at once",
    )
    metric_series: int = option(
        10_000,
        key="limits.metricSeries",
        parse=integer,
        low=100,
        high=1_000_000,
        why="series of one metric; topics, partitions and groups beyond it share one, `_other`",
    )
