"""What differs between seeds besides faults: sizes, times, windows, disks."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from log.config import StorageConfig
from raft.config import RaftConfig

MEMBERS_SHARE = 0.15
"""How many runs have groups with members."""


@dataclass(frozen=True)
class Shape:
    """One cluster to simulate."""

    nodes: int
    groups: int
    managed: bool
    """Whether topics are made by the cluster group, and come and go, instead of `groups`."""
    clients: int
    relaxed: bool
    """Partitions are acked when written: processes die, and machines never lose power."""
    raft: RaftConfig
    storage: StorageConfig
    delay_s: tuple[float, float]
    repeats: float
    """The chance that a frame of a closed link comes again on the next."""
    sync_s: float
    keep: float
    """The chance that an unsynced write outlives a power cut."""
    trim_keep: int
    """Entries that trims leave; 0 for no trims."""
    queue: bool
    """Whether groups consume what is published; not where topics come and go."""
    open_fails: float
    """The chance that a starting process dies while it recovers."""
    members: bool = False
    """Whether groups have members; their topics are made by the cluster group."""


def make_shape(rng: random.Random, *, members: bool | None = None) -> Shape:
    """Mostly three nodes and one group, small files, and times that let much happen."""
    shape = _make_shape(rng)
    drawn = rng.random() < MEMBERS_SHARE and not (shape.queue and not shape.managed)
    if not (drawn if members is None else members):
        return shape
    return replace(shape, managed=True, members=True, queue=False)


def _make_shape(rng: random.Random) -> Shape:
    snapshots = rng.choice((15, 40, 1_000_000))
    return Shape(
        nodes=rng.choice((3, 3, 3, 5)),
        groups=rng.choice((1, 1, 2)),
        managed=rng.random() < 0.25,
        clients=rng.choice((3, 4)),
        relaxed=rng.random() < 0.1,
        raft=_raft(rng, snapshots),
        storage=StorageConfig(
            wal_file_bytes=rng.choice((1 << 13, 1 << 15)),
            segment_bytes=rng.choice((1 << 11, 1 << 13)),
            checkpoint_bytes=rng.choice((1 << 11, 1 << 13)),
            index_interval_bytes=512,
            ram_tail_bytes=rng.choice((1, 1 << 11, 1 << 20)),
            descriptors_max=8,
            watermark_bytes=0,
            watermark_percent=0,
            reserve_bytes=0,
        ),
        delay_s=rng.choice(((0.0002, 0.001), (0.001, 0.003), (0.001, 0.05))),
        repeats=rng.choice((0.0, 0.1, 0.4)),
        sync_s=rng.choice((0.0005, 0.002, 0.008, 0.03)),
        keep=rng.choice((0.0, 0.3, 0.7)),
        trim_keep=rng.choice((0, 5, 30)) if snapshots < 1000 else 0,
        open_fails=rng.choice((0.0, 0.1)),
        queue=rng.random() < 0.15,
    )


def _raft(rng: random.Random, snapshots: int) -> RaftConfig:
    one_entry = rng.random() < 0.4
    pace = rng.choice((0.5, 1.0))
    return RaftConfig(
        heartbeat_s=0.2 * pace,
        election_min_s=1.0 * pace,
        election_max_s=1.5 * pace,
        quorum_s=1.0 * pace,
        evidence_spread_s=rng.choice((0.1, 0.02)),
        append_entries=1 if one_entry else 4096,
        window_bytes=rng.choice((600, 4096)) if one_entry else 8 << 20,
        snapshot_entries=snapshots,
    )
