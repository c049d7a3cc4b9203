"""Times and bounds of Raft groups, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """Defaults fit brokers in one data center; all nodes of a cluster should agree on the times."""

    heartbeat_s: float = 0.2
    """One frame per peer for all groups led here; five are lost before silence is believed."""
    quiet_beats: int = 2
    """A group rests after so many heartbeats in which its leader had nothing to do; after one where
    all replicas that are there have acknowledged what was appended meanwhile."""
    election_min_s: float = 1.0
    election_max_s: float = 1.5
    """Silence of a leader is believed after a random time between these."""
    quorum_s: float = 1.0
    """A leader that no majority has answered for this long steps down."""
    evidence_spread_s: float = 0.1
    """A closed link to the leader starts a pre-vote within a random part of this."""
    retry_min_s: float = 0.15
    retry_max_s: float = 0.35
    """A pre-vote or election without result is repeated after this, doubled up to election_max."""
    append_bytes: int = 960 * KIB
    """Entry bytes per frame, if one entry is not larger: below the link's frame of 1 MiB."""
    append_entries: int = 4096
    window_bytes: int = 8 * MIB
    """Unacknowledged bytes per follower and group."""
    peer_window_bytes: int = 32 * MIB
    """The same over all groups: half of what the link holds before it calls a peer stuck."""
    relaxed_alone: bool = False
    """A replica that is its group's only one counts entries that were proposed as relaxed once they
    are written: only where a power cut ends all who were told of them, as in one process."""
    apply_slice_s: float = 0.002
    """Applying yields to the loop after this."""
    apply_entries: int = 256
    """Entries read at once to be applied."""
    apply_bytes: int = 64 * KIB
    """Their bytes, if one entry is not larger: each replica keeps them in RAM until all of them are
    applied, and reading them takes less than a slice of time."""
    outcome_grace_s: float = 0.5
    """After leadership is lost, how long proposals wait to learn what became of them."""
    transfer_s: float = 1.0
    """A leadership transfer without result is given up after this, and proposals resume."""
    read_s: float = 2.0
    """A read index that no majority confirms fails after this."""
    reads_max: int = 65_536
    """Reads waiting for confirmation; one more fails at once."""
    snapshot_entries: int = 100_000
    """Applied entries between two state snapshots, so that a restart replays no more."""
