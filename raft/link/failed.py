"""Handshakes of peers that failed: counted by what was wrong, and logged without filling the log.

Whoever reaches the port can fail as often as it likes, so of each kind one line a minute is
written, which says how many there were since the last one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

import structlog

LINE_S = 60.0
"""Between two lines of one kind."""
REASON_CHARACTERS_MAX = 200
"""Part of it is the other side's own words."""
_log = structlog.get_logger("link")


class Failure(StrEnum):
    """What was wrong; the label of the metric."""

    TLS = "tls"
    """No certificate of the authorities, or no TLS at all."""
    PROOF = "proof"
    """Another cluster secret."""
    MALFORMED = "malformed"
    """Not a peer's handshake, or one that is meant for another node."""
    REFUSED = "refused"
    """Proven, and not let in: by the certificate's name, the table of peers, or the level."""
    UNFINISHED = "unfinished"
    """Closed, too slow, or displaced by others before anything was proven."""


class FailedHandshakes:
    """Of one node since it began. `now_s` is a clock that never goes back."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self.counts: dict[str, int] = {failure.value: 0 for failure in Failure}
        self._told: dict[Failure, tuple[float, int]] = {}
        """When the last line was written, and how many there had been."""

    def add(self, failure: Failure, reason: str, address: object, peer: str = "") -> None:
        """`address` as sockets have it; `peer` who the other side says it is."""
        self.counts[failure] += 1
        now_s, count = self._now_s(), self.counts[failure]
        told_s, told = self._told.get(failure, (-LINE_S, 0))
        if now_s - told_s < LINE_S:
            return
        self._told[failure] = now_s, count
        # Crossing dials and restarts of peers leave some unfinished.
        tell = _log.info if failure is Failure.UNFINISHED else _log.warning
        tell(
            "peer_handshake_failed",
            failure=failure.value,
            reason=reason[:REASON_CHARACTERS_MAX],
            address=str(address[0]) if isinstance(address, tuple) and address else "",
            claims=peer,
            count=count - told,
        )
