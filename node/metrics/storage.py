"""The disk: `goqueue_storage_*` as in GoQueue, the write-ahead log, scrubbing, copied replicas."""

from __future__ import annotations

from node.metrics.declare import Declarations
from node.metrics.meaning import Moves, Teller

TOPIC = ("topic",)
PARTITION = ("topic", "partition")
INDEX = ("topic", "index_type")
SNAPSHOT = ("snapshot_type",)


class StorageMetrics:
    """Each node tells of its own disk; where a log ends is told by its leader alone."""

    def __init__(self, of: Declarations) -> None:
        self._declare_logs(of)
        self._declare_indexes(of)
        self._declare_offsets(of)
        self._declare_syncs(of)
        self._declare_compaction(of)
        self._declare_snapshots(of)
        self._declare_disk(of)
        self._declare_scrub(of)
        self._declare_copies(of)

    def _declare_logs(self, of: Declarations) -> None:
        replica, publish = Teller.REPLICA, Moves.PUBLISH
        self.bytes_written = of.counter(
            "goqueue_storage_bytes_written_total",
            "Bytes of entries appended to a replica's log",
            PARTITION,
            told=replica,
            moves=publish,
        )
        self.bytes_read = of.counter(
            "goqueue_storage_bytes_read_total",
            "Bytes of entries read from a replica's segments; what is in memory is not read",
            PARTITION,
            told=replica,
            moves=Moves.UPKEEP,
        )
        self.log_size_bytes = of.sampled(
            "goqueue_storage_log_size_bytes",
            "Bytes of a replica's log",
            PARTITION,
            told=replica,
            moves=publish,
        )
        self.segments_active = of.sampled(
            "goqueue_storage_segments_active",
            "Segments that are written to: 1, or 0 where nothing was written yet",
            PARTITION,
            told=replica,
            moves=publish,
        )
        self.segments_total = of.sampled(
            "goqueue_storage_segments_total",
            "Segments of a replica",
            PARTITION,
            told=replica,
            moves=publish,
        )
        self.segments_created = of.counter(
            "goqueue_storage_segments_created_total",
            "Segments begun",
            TOPIC,
            told=replica,
            moves=publish,
        )
        self.segments_deleted = of.counter(
            "goqueue_storage_segments_deleted_total",
            "Segments deleted",
            TOPIC,
            told=replica,
            moves=Moves.UPKEEP,
        )
        self.stored_bytes = of.gauge(
            "goqueue_stored_bytes",
            "Bytes of all replicas' logs on this node",
            told=Teller.NODE,
            moves=publish,
        )

    def _declare_indexes(self, of: Declarations) -> None:
        replica = Teller.REPLICA
        self.index_lookups = of.counter(
            "goqueue_storage_index_lookups_total",
            "Searches in segments' indexes, by offset or time; what is in memory is not searched",
            INDEX,
            told=replica,
            moves=Moves.UPKEEP,
        )
        self.index_lookup_latency = of.histogram(
            "goqueue_storage_index_lookup_latency_seconds",
            "One such search, with the reading it takes",
            INDEX,
            told=replica,
            moves=Moves.UPKEEP,
        )
        self.index_rebuilds = of.counter(
            "goqueue_storage_index_rebuilds_total",
            "Indexes of segments made anew from their entries",
            TOPIC,
            told=replica,
            moves=Moves.FAILURE,
        )

    def _declare_offsets(self, of: Declarations) -> None:
        leader, publish = Teller.LEADER, Moves.PUBLISH
        self.log_end_offset = of.sampled(
            "goqueue_storage_log_end_offset",
            "The offset that the next message gets",
            PARTITION,
            told=leader,
            moves=publish,
        )
        self.log_start_offset = of.sampled(
            "goqueue_storage_log_start_offset",
            "The first offset that retention has left",
            PARTITION,
            told=leader,
            moves=Moves.UPKEEP,
        )
        self.latest_offset = of.sampled(
            "goqueue_partition_latest_offset",
            "The offset that the next message gets",
            PARTITION,
            told=leader,
            moves=publish,
            alias="goqueue_storage_log_end_offset",
        )
        self.earliest_offset = of.sampled(
            "goqueue_partition_earliest_offset",
            "The first offset that retention has left",
            PARTITION,
            told=leader,
            moves=Moves.UPKEEP,
            alias="goqueue_storage_log_start_offset",
        )

    def _declare_syncs(self, of: Declarations) -> None:
        node, publish = Teller.NODE, Moves.PUBLISH
        self.fsyncs = of.counter(
            "goqueue_storage_fsync_total",
            "Syncs of the write-ahead log, which all partitions of a node share",
            told=node,
            moves=publish,
        )
        self.fsync_latency = of.histogram(
            "goqueue_storage_fsync_latency_seconds",
            "One write and fdatasync of the write-ahead log",
            told=node,
            moves=publish,
        )
        self.fsync_errors = of.counter(
            "goqueue_storage_fsync_errors_total",
            "Writes or syncs that failed: the first ends the node, but for a full disk",
            told=node,
            moves=Moves.FAILURE,
        )
        self.wal_durable_lsn = of.gauge(
            "goqueue_wal_durable_lsn",
            "Position in the write-ahead log up to which it is on disk: its rate is bytes written",
            told=node,
            moves=publish,
        )
        self.wal_files = of.gauge(
            "goqueue_wal_files",
            "Files of the write-ahead log that are kept; at four, publishes are held back",
            told=node,
            moves=Moves.ALWAYS,
        )
        self.wal_bytes = of.gauge(
            "goqueue_wal_bytes",
            "Bytes of these files",
            told=node,
            moves=Moves.ALWAYS,
        )
        self.flush_waiting = of.gauge(
            "goqueue_flush_waiting_seconds",
            "For how long the flush that is out has been waiting for the disk",
            told=node,
            moves=Moves.LOADED,
        )

    def _declare_compaction(self, of: Declarations) -> None:
        leader, maintenance = Teller.LEADER, Moves.UPKEEP
        self.compaction_runs = of.counter(
            "goqueue_storage_compaction_runs_total",
            "Runs that dropped or moved anything",
            TOPIC,
            told=leader,
            moves=maintenance,
        )
        self.compaction_latency = of.histogram(
            "goqueue_storage_compaction_latency_seconds",
            "Such a run, from its beginning to its last entry",
            TOPIC,
            told=leader,
            moves=maintenance,
        )
        self.compaction_bytes_reclaimed = of.counter(
            "goqueue_storage_compaction_bytes_reclaimed_total",
            "Bytes that runs took less than before",
            TOPIC,
            told=leader,
            moves=maintenance,
        )
        self.compaction_dropped_messages = of.counter(
            "goqueue_compaction_dropped_messages_total",
            "Messages superseded, and dropped",
            TOPIC,
            told=leader,
            moves=maintenance,
        )
        self.compaction_dirty_ratio = of.gauge(
            "goqueue_storage_compaction_dirty_ratio",
            "Of what a run would look at, how much is not compacted: the most of any partition",
            TOPIC,
            told=leader,
            moves=maintenance,
        )

    def _declare_snapshots(self, of: Declarations) -> None:
        node, maintenance = Teller.NODE, Moves.UPKEEP
        self.snapshots_created = of.counter(
            "goqueue_storage_snapshots_created_total",
            "Snapshots of applied state written, of a partition or of the cluster",
            SNAPSHOT,
            told=node,
            moves=maintenance,
        )
        self.snapshot_size_bytes = of.gauge(
            "goqueue_storage_snapshot_size_bytes",
            "Bytes of the last one",
            SNAPSHOT,
            told=node,
            moves=maintenance,
        )
        self.snapshot_latency = of.histogram(
            "goqueue_storage_snapshot_latency_seconds",
            "Writing one, with its syncs",
            SNAPSHOT,
            told=node,
            moves=maintenance,
        )

    def _declare_disk(self, of: Declarations) -> None:
        node, always = Teller.NODE, Moves.ALWAYS
        self.disk_free_bytes = of.gauge(
            "goqueue_disk_free_bytes",
            "Free space where the data directory is",
            told=node,
            moves=always,
        )
        self.disk_used_bytes = of.gauge(
            "goqueue_disk_used_bytes",
            "What is not free there, by whomever it is taken",
            told=node,
            moves=always,
        )
        self.disk_watermark_bytes = of.gauge(
            "goqueue_disk_watermark_bytes",
            "The free space below which publishes are refused",
            told=node,
            moves=always,
        )
        self.disk_stuck = of.gauge(
            "goqueue_disk_stuck",
            "1 while the disk is full and confirms nothing",
            told=node,
            moves=Moves.FAILURE,
        )
        self.disk_slow = of.gauge(
            "goqueue_disk_slow",
            "1 while the disk is slow and other nodes lead",
            told=node,
            moves=Moves.FAILURE,
        )

    def _declare_scrub(self, of: Declarations) -> None:
        node = Teller.NODE
        self.damaged_replicas = of.gauge(
            "goqueue_damaged_replicas",
            "Replicas here that neither vote nor lead: stopped, not opened, or with damage",
            told=node,
            moves=Moves.FAILURE,
        )
        self.scrub_rounds = of.counter(
            "goqueue_scrub_rounds_total",
            "Rounds in which everything here was read again",
            told=node,
            moves=Moves.UPKEEP,
        )
        self.scrub_bytes = of.counter(
            "goqueue_scrub_bytes_total", "Bytes read again", told=node, moves=Moves.UPKEEP
        )
        self.scrub_damaged_entries = of.counter(
            "goqueue_scrub_damaged_entries_total",
            "Entries found damaged",
            told=node,
            moves=Moves.FAILURE,
        )
        self.scrub_mended_files = of.counter(
            "goqueue_scrub_mended_files_total",
            "Files written again because they disagreed with sound entries",
            told=node,
            moves=Moves.FAILURE,
        )
        self.scrub_diverged = of.counter(
            "goqueue_scrub_diverged_total",
            "Ranges of entries that differ between replicas, though all are sound",
            told=Teller.LEADER,
            moves=Moves.FAILURE,
        )

    def _declare_copies(self, of: Declarations) -> None:
        node = Teller.NODE
        self.transferred_bytes = of.counter(
            "goqueue_transferred_bytes_total",
            "Bytes of whole replicas copied to or from here",
            ("direction",),
            told=node,
            moves=Moves.CHANGE,
        )
        self.transfers = of.gauge(
            "goqueue_transfers",
            "Replicas being copied to this node",
            told=node,
            moves=Moves.CHANGE,
        )
        self.damaged_chunks = of.counter(
            "goqueue_damaged_chunks_total",
            "Chunks of copied replicas that did not arrive as they were sent",
            told=node,
            moves=Moves.FAILURE,
        )
