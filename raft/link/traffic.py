"""What went over the link to one peer, counted since this node began, for statistics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Of all connections to the peer, one after another; handshakes are not in it."""

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_frames: int = 0
    received_frames: int = 0
    connects: int = 0
    """Links that came up."""
    losses: int = 0
    """Links that went down while this node ran."""
    heartbeats: int = 0
    """Statuses received."""
    heartbeats_missed: int = 0
    """Times for a status at which the last two had not come."""
