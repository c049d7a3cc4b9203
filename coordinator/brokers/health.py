"""Who is up, who is down and who was wiped, from what is known of each node."""

from __future__ import annotations

from enum import Enum

from goqueue.wire.types import Incarnation


class Standing(Enum):
    """A broker as the cluster sees it."""

    UP = "up"
    DOWN = "down"
    WIPED = "wiped"
    """There, with another data directory than the cluster knows."""


def standing(known: Incarnation | None, present: Incarnation | None) -> Standing:
    """One broker: `known` to the cluster, `present` as it tells now; None where there is none."""
    if present is None:
        return Standing.DOWN
    return Standing.UP if known is None or known == present else Standing.WIPED
