"""Who should vote in the cluster group itself: 1, 3 or 5 brokers, spread over zones.

All other brokers follow it as learners with the full state. Whoever votes goes on doing so while it
can: a voter that is drained, was wiped, or has been away for ten minutes is replaced by another
broker, where there is one that is there. Two that vote stay two where there is no third: one more
disk has what was decided, and no vote is gained by taking one away.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from goqueue.wire.types import NodeId, Voter

VOTERS_MAX = 5
AWAY_MS = 600_000
"""A voter that was away for so long is replaced."""


@dataclass(frozen=True, slots=True)
class Elector:
    """A broker that could vote; `away_ms` is for how long it has not been seen."""

    voter: Voter
    zone: str = ""
    takes: bool = True
    away_ms: int = 0


def electorate(
    brokers: Mapping[NodeId, Elector], now: Collection[Voter], voters_max: int = 3
) -> tuple[Voter, ...]:
    """Those that should vote, of whom as many as can be vote `now`; the same from the same.

    Where too few brokers are there, voters that are away stay: nobody is gained by taking away a
    vote that nobody else gets.
    """
    assert voters_max % 2 == 1, "an even number of voters survives no more deaths"
    able = [one for one in brokers.values() if one.takes]
    here = [one for one in able if one.away_ms < AWAY_MS]
    votes = {one.voter.node for one in here if _votes(one, now)}
    count = min(voters_max, VOTERS_MAX, len(able))
    if not count == len(votes) == 2:
        count -= 1 - count % 2
    chosen: list[Elector] = []
    for pool in (here, able):
        while len(chosen) < count and (best := _best(pool, chosen, votes)) is not None:
            chosen.append(best)
    return tuple(sorted(one.voter for one in chosen))


def _votes(one: Elector, now: Collection[Voter]) -> bool:
    """Also with another data directory: it takes its own place again."""
    return any(voter.node == one.voter.node for voter in now)


def _best(
    pool: Sequence[Elector], chosen: Sequence[Elector], votes: Collection[NodeId]
) -> Elector | None:
    """Of the zone that has fewest, there one that votes already."""
    zones = Counter(one.zone for one in chosen)
    free = [one for one in pool if one not in chosen]
    if not free:
        return None
    return min(
        free,
        key=lambda one: (zones[one.zone], one.voter.node not in votes, one.away_ms, one.voter),
    )
