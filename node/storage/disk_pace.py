"""Whether this node's disk has been slow for so long that others should lead."""

from __future__ import annotations

from collections.abc import Callable

SLOW_S = 0.5
"""A sync that takes this long is slow: a healthy disk needs milliseconds, a busy one tens."""
SLOW_FOR_S = 5.0
"""Only slow syncs for this long make the disk slow: one pause is over before leaders have moved."""
QUICK_FOR_S = 10.0
"""Only quick ones for this long make it quick again, so that leaders don't move to and fro."""
FORGOTTEN_AFTER_S = 30.0
"""What nothing was written for is not known to be slow any more."""
STOOD_STILL_S = 1.0
"""Where the loop was not seen for so long, this process stood still, and the disk may be quick."""


class DiskPace:
    """Told of each flush by `begun` and `ended`, and that the loop runs by `ticked`; loop thread
    only."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._began_s: float | None = None
        self._ended_s = now_s()
        self._slow_since_s: float | None = None
        self._quick_since_s: float | None = None
        self._was_slow = False
        self._ticked_s: float | None = None

    def ticked(self) -> None:
        """The loop runs: to be called several times a second. A flush that was out while it stood
        still is timed from now on."""
        if self._stood_still and self._began_s is not None:
            self._began_s = self._now_s()
        self._ticked_s = self._now_s()

    def begun(self) -> None:
        """A flush was handed to the disk."""
        self._began_s = self._now_s()

    def dropped(self) -> None:
        """It tells nothing: it waited for something else than the disk's work."""
        self._began_s = None

    def ended(self) -> None:
        """It is done."""
        now, began = self._now_s(), self._began_s
        if began is None:
            return
        self._began_s, self._ended_s = None, now
        if self._stood_still:
            return
        if now - began >= SLOW_S:
            self._quick_since_s = None
            if self._slow_since_s is None:
                self._slow_since_s = began
            self._was_slow = self._was_slow or now - self._slow_since_s >= SLOW_FOR_S
            return
        self._slow_since_s = None
        if self._quick_since_s is None:
            self._quick_since_s = now
        self._was_slow = self._was_slow and now - self._quick_since_s < QUICK_FOR_S

    @property
    def waiting_s(self) -> float:
        """How long the flush that is out has been waiting; 0 for none, or where nobody can say."""
        if self._began_s is None or self._stood_still:
            return 0.0
        return self._now_s() - self._began_s

    @property
    def is_slow(self) -> bool:
        """Whether the disk has been slow for long, and is still."""
        if self._began_s is None and self._now_s() - self._ended_s >= FORGOTTEN_AFTER_S:
            self._was_slow = False
        return self._was_slow or self.waiting_s >= SLOW_FOR_S

    @property
    def _stood_still(self) -> bool:
        return self._ticked_s is not None and self._now_s() - self._ticked_s >= STOOD_STILL_S
