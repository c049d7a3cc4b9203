"""Sizes and times of copying whole replicas, in bytes and seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CopyLimits:
    """Of both ends."""

    chunk_bytes: int = 256 << 10
    window_chunks: int = 8
    """Chunks asked for at a time."""
    sync_bytes: int = 2 << 20
    """A file is synced each time that so much of it was written. A whole segment at once keeps the
    disk busy for tens of ms, and every publish of this disk waits for it."""
    chunk_timeout_s: float = 10.0
    open_timeout_s: float = 60.0
    """The source reads its newest snapshot in full before it answers."""
    close_timeout_s: float = 5.0
    pause_first_s: float = 0.2
    """Before sources that failed are asked again; twice as long each time."""
    pause_max_s: float = 5.0
    watch_s: float = 2.0
    """Between two looks at what is damaged, and at files of copies that nobody goes on with."""
    damaged_patience_s: float = 10.0
    """How long single entries are asked of other replicas before the whole log is copied."""
    leftovers_s: float = 600.0
    """After the start, how long files of an interrupted copy wait for somebody to go on with it."""
    rest_s: float = 5.0
    """After a copy, made or not, before another one of the group is begun."""
    install_pause_s: float = 0.25
    """Between two tries to install a copy: a checkpoint may be deleting files of the log."""
    silence_s: float = 30.0
    """A session that nothing was read in for this long is over."""
    linger_s: float = 30.0
    """How long after a copy its log's beginning is kept: until the entries behind it are on their
    way."""
    offer_s: float = 1.0
    """Between two looks at who needs a copy."""
    offer_timeout_s: float = 5.0
