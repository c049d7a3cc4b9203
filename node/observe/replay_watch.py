"""Whether requests would wait here for what the logs held when the node started."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

STALLED_S = 10.0
"""Replicas that apply nothing for so long wait for something else than their turn of the loop: for
a copy, where what comes next was trimmed, or for a version that can read the next entry."""


class Replaying(Protocol):
    """The replicas of a node, as far as they apply their logs again."""

    @property
    def not_caught_up(self) -> str | None: ...

    @property
    def replayed(self) -> int | None:
        """Up to where those that are not done have applied their logs, added up; None while the
        replicas are being started."""
        ...


class ReplayWatch:
    """Looked at by each probe: what gets on is waited for, what stands still is not, so that one
    replica that can't go on does not keep a node from serving all others."""

    def __init__(self, replicas: Replaying, now_s: Callable[[], float] = time.monotonic) -> None:
        self._replicas = replicas
        self._now_s = now_s
        self._seen: tuple[str, int] | None = None
        self._since_s = 0.0

    def not_ready(self) -> str | None:
        """Why requests would wait here."""
        why, replayed = self._replicas.not_caught_up, self._replicas.replayed
        if why is None or replayed is None:
            return why
        now_s = self._now_s()
        if (why, replayed) != self._seen:
            self._seen, self._since_s = (why, replayed), now_s
        return why if now_s - self._since_s < STALLED_S else None
