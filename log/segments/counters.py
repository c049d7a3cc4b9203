"""What a log does to its disk, counted since it was opened, for statistics."""

from __future__ import annotations

from collections import defaultdict, deque

LOOKUPS_KEPT_MAX = 1000
"""Searches in indexes that are remembered until they are taken, the newest."""


def _remembered() -> deque[float]:
    return deque(maxlen=LOOKUPS_KEPT_MAX)


class LogCounters:
    """Counted on whichever thread does the work: a count may be lost where two do so at once."""

    __slots__ = (
        "_lookups",
        "index_rebuilds",
        "read_bytes",
        "segments_created",
        "segments_deleted",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.written_bytes = 0
        self.read_bytes = 0
        self.segments_created = 0
        self.segments_deleted = 0
        self.index_rebuilds = 0
        self._lookups = defaultdict[str, deque[float]](_remembered)

    def looked_up(self, kind: str, took_s: float) -> None:
        """A search by `offset` or `time` in segments has ended."""
        self._lookups[kind].append(took_s)

    def take_lookups(self) -> list[tuple[str, list[float]]]:
        """What searches took, in seconds, since this was asked last."""
        found: list[tuple[str, list[float]]] = []
        for kind, waiting in list(self._lookups.items()):
            took = [waiting.popleft() for _ in range(len(waiting))]
            if took:
                found.append((kind, took))
        return found
