"""How a node stores its log: sizes, intervals, watermarks, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Settings of one data directory. Segment settings must be the same on every node."""

    node: str = ""
    """The broker's name, told to whoever finds the directory locked."""
    wal_file_bytes: int = 64 << 20
    """One write-ahead file: rolled rarely enough, and replayed within a second."""
    wal_files_max: int = 4
    """Undropped files at which appends should be held back: replay stays bounded."""
    seal_after_ms: int = 20
    """Idle time before the last block is sealed: a later bit flip in it is damage, not a tear."""
    relaxed_sync_ms: int = 50
    """Longest time that appends of relaxed groups stay unsynced which don't say it themselves."""
    relaxed_sync_bytes: int = 8 << 20
    """Most of the write-ahead log that may be unsynced: a write that goes beyond is synced at once.
    What a power cut can take is bounded by bytes, too."""
    segment_bytes: int = 64 << 20
    """A segment is rolled before an entry would take it past this size."""
    segment_time_ms: int = 24 * 3600 * 1000
    """A segment is rolled when log time has moved this far since its first entry: retention."""
    checkpoint_bytes: int = 16 << 20
    """Bytes spilled since the last checkpoint at which another is due: what a restart replays."""
    index_interval_bytes: int = 16 << 10
    """Entry bytes per item of the offset and time index: one read finds any entry."""
    ram_tail_bytes: int = 32 << 20
    """RAM for entries that segments hold too, shared by all groups."""
    descriptors_max: int = 256
    """Open segment and index files of the whole store, those with unsynced writes left out."""
    descriptors_unsynced_max: int = 4096
    """As many more that were written to since they were synced: a failed write-back is told for
    sure only to who had the file open then. Beyond it, files are synced one by one."""
    watermark_bytes: int = 256 << 20
    """Free space below which publishes are refused."""
    watermark_percent: int = 2
    """The same in percent of the file system; the larger of both counts."""
    reserve_bytes: int = 64 << 20
    """A preallocated file given up when the disk is full, so that recovery and reads go on."""
    snapshots_kept: int = 2
    """Local state snapshots: the newest, and one to fall back to."""
