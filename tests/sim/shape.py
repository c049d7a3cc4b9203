"""What differs between seeds besides faults: what is done, sizes, times, windows, disks."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from log.config import StorageConfig
from raft.config import RaftConfig

SHARES = {
    "core": 60,
    "log": 7,
    "topics": 9,
    "queue": 6,
    "members": 7,
    "moving": 8,
    "compact": 3,
}
"""How many runs of a hundred are of each kind: the cheaper, the more.

core      one partition on three nodes, for half the time: the log, Raft, publishing, trims
log       the same on three or five nodes, some with two partitions, with up to four clients
topics    topics are made by the cluster group, and come and go
queue     groups consume: leases, retries, delays, lanes, keys, dead letters, ids
members   groups have members, who come and go
moving    replicas come and go: brokers are added, drained, wiped, removed; topics grow
compact   one partition's messages have keys, and its leader compacts it
"""
KINDS = tuple(SHARES)
FAULTY_S = {
    "core": 2.5,
    "log": 6.0,
    "topics": 7.0,
    "queue": 6.0,
    "members": 8.0,
    "moving": 8.0,
    "compact": 5.0,
}
"""Faults strike in this time."""
RELAXED = {
    "core": 0.1,
    "log": 0.1,
    "topics": 0.25,
    "queue": 0.1,
    "members": 0.1,
    "moving": 0.25,
    "compact": 0.0,
}
"""How many runs have relaxed partitions."""
FORGETFUL = 0.2
"""How many runs of `core` and `log`, unless they are relaxed, have partitions that remember so few
requests that some are forgotten before their repeats come."""
CORE_FAULTS = 8
"""Of a dozen; as many in `compact`, where runs bring faults of their own."""
READ_S = {
    "core": 0.2,
    "log": 0.2,
    "topics": 0.25,
    "queue": 0.5,
    "members": 0.5,
    "moving": 0.5,
    "compact": 0.5,
}
"""The time between two reads of every leader's end, and of somebody's messages."""
SLOWER = {
    "core": 2.0,
    "log": 2.0,
    "topics": 2.0,
    "queue": 3.0,
    "members": 3.0,
    "moving": 2.0,
    "compact": 1.0,
}
"""Pauses of clients that publish are longer by this, where others make work, too, or faults come
so fast that less is enough."""


QUIET_BEATS = (1, 2, 5, 1 << 30)
"""After how many a group rests; in some runs never, as below feature level 2."""


@dataclass(frozen=True)
class Shape:
    """One cluster to simulate."""

    nodes: int
    groups: int
    """Partitions, where the cluster group makes no topics."""
    clients: int
    relaxed: bool
    """Partitions are acked when written; what a power cut may take then: `tests.sim.relaxed`."""
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
    open_fails: float
    """The chance that a starting process dies while it recovers."""
    kind: str = "log"
    copies: bool = False
    """Whether learners that hold nothing begin with a copy of another replica."""
    founders: int = 5
    """Nodes that found the cluster, if there are so many; the others come to it."""
    requests_kept: int = 0
    """How many requests without an identity a partition remembers; 0 for as many as in production.
    A topic's least bound, of 1 MiB, is never reached in a run."""

    @property
    def managed(self) -> bool:
        """Whether topics are made by the cluster group, instead of `groups`."""
        return self.kind in ("topics", "members", "moving")

    @property
    def queue(self) -> bool:
        """Whether groups without members consume what is published."""
        return self.kind == "queue"

    @property
    def members(self) -> bool:
        """Whether groups have members."""
        return self.kind == "members"

    @property
    def moving(self) -> bool:
        """Whether replicas come and go."""
        return self.kind == "moving"

    @property
    def compacts(self) -> bool:
        """Whether the partition is compacted."""
        return self.kind == "compact"

    @property
    def slower(self) -> float:
        return SLOWER[self.kind]

    @property
    def faulty_s(self) -> float:
        return FAULTY_S[self.kind]

    def faults(self, count: int) -> int:
        """How many of so many strike in its time."""
        return -(-count * CORE_FAULTS // 12) if self.kind in ("core", "compact") else count

    @property
    def read_s(self) -> float:
        return READ_S[self.kind]


def make_shape(rng: random.Random, *, kind: str | None = None) -> Shape:
    """Mostly three nodes and one group, small files, and times that let much happen. The seed says
    of which kind, where none is given."""
    shape = _drawn(rng, kind)
    return replace(shape, raft=replace(shape.raft, quiet_beats=rng.choice(QUIET_BEATS)))


def _drawn(rng: random.Random, kind: str | None) -> Shape:
    drawn = rng.choices(KINDS, list(SHARES.values()))[0]
    shape = _relaxed(rng, replace(_make_shape(rng), kind=kind or drawn))
    if shape.kind == "moving":
        return _moving(rng, shape)
    if shape.kind == "compact":
        return _compact(rng, shape)
    if shape.kind in ("core", "log") and not shape.relaxed and rng.random() < FORGETFUL:
        shape = replace(shape, requests_kept=rng.choice((2, 6)))
    return _fast(shape) if shape.kind == "core" else shape


def _relaxed(rng: random.Random, shape: Shape) -> Shape:
    """Some are; what they have written is synced sooner or later."""
    if rng.random() >= RELAXED[shape.kind]:
        return shape
    sync_ms = rng.choice((50, 50, 400))
    return replace(shape, relaxed=True, storage=replace(shape.storage, relaxed_sync_ms=sync_ms))


def _fast(shape: Shape) -> Shape:
    raft = replace(shape.raft, heartbeat_s=0.1, election_min_s=0.5, election_max_s=0.75)
    raft = replace(raft, quorum_s=0.5)
    return replace(shape, nodes=3, groups=1, clients=3, raft=raft)


def _compact(rng: random.Random, shape: Shape) -> Shape:
    """Segments of a few messages, so that much is sealed; snapshots, so that it can go."""
    shape = _fast(shape)
    return replace(
        shape,
        trim_keep=0,
        raft=replace(shape.raft, snapshot_entries=rng.choice((8, 25))),
        storage=replace(
            shape.storage,
            segment_bytes=rng.choice((1 << 9, 1 << 10)),
            checkpoint_bytes=1 << 10,
            wal_file_bytes=1 << 13,
        ),
    )


def _moving(rng: random.Random, shape: Shape) -> Shape:
    """Three nodes found the cluster, the others come; logs are trimmed so that copies are made."""
    return replace(
        shape,
        nodes=rng.choice((4, 5)),
        founders=3,
        clients=3,
        trim_keep=rng.choice((0, 3, 10)),
        copies=rng.random() < 0.5,
        raft=replace(shape.raft, snapshot_entries=rng.choice((8, 25))),
        storage=replace(
            shape.storage, segment_bytes=1 << 10, checkpoint_bytes=1 << 9, wal_file_bytes=1 << 13
        ),
    )


def _make_shape(rng: random.Random) -> Shape:
    snapshots = rng.choice((15, 40, 1_000_000))
    return Shape(
        nodes=rng.choice((3, 3, 3, 5)),
        groups=rng.choice((1, 1, 2)),
        clients=rng.choice((3, 4)),
        relaxed=False,
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
        apply_slice_s=rng.choice((0.002, 0.002, 0.002, 0.0)),
    )
