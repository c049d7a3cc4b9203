"""Rare paths: how often a run walked them. A simulation that never does proves nothing of them.

To count another one: name it in `FLOORS`, and call `world.rare.count` where it happens, or wrap
what walks it in `counted`. Counting changes nothing of what the program does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Protocol

from goqueue.wire.types import NodeId
from raft import frames
from raft.group import RaftGroup

FLOORS = {
    "campaigns of learners": 0,
    "campaigns of suspects": 100,
    "elections that count everyone": 100,
    "leaders that everyone elected": 50,
    "sliced applies": 10_000,
    "power cuts of relaxed groups": 300,
    "losses of relaxed groups": 0,
    "copies of replicas": 25,
    "copies that went on": 8,
    "leases recalled": 200,
    "leaders at rest": 1_000,
    "followers at rest": 2_000,
    "requests forgotten early": 2_000,
    "requests stored again": 25,
}
"""How often each is walked at least in `FLOOR_SEEDS` seeds of all kinds, with all faults; 0 for
what is only counted."""
FLOOR_SEEDS = 2000


class Counts(Protocol):
    """Who counts."""

    def count(self, path: str, times: int = 1) -> None: ...


class Rare:
    """Of one run."""

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()

    def count(self, path: str, times: int = 1) -> None:
        assert path in FLOORS, path
        self.paths[path] += times


def counted(base: type[RaftGroup], counts: Counts) -> type[RaftGroup]:
    """`base`, which counts what is rare."""

    parts = base.parts

    class Voting(parts.voting):  # type: ignore[name-defined,misc]
        def _campaign(self, flags: int = 0) -> None:
            if not self._state.self_peer.voter:
                counts.count("campaigns of learners")
            if self._state.log.suspect:
                counts.count("campaigns of suspects")
            if flags & frames.EVERYONE:
                counts.count("elections that count everyone")
            super()._campaign(flags)

    class Leadership(parts.leadership):  # type: ignore[name-defined,misc]
        def _begin(self) -> None:
            if self._state.campaign_flags & frames.EVERYONE:
                counts.count("leaders that everyone elected")
            super()._begin()

    class Apply(parts.apply):  # type: ignore[name-defined,misc]
        def apply_committed(self) -> bool:
            applied = super().apply_committed()
            left = self._state.applied_index < self._state.commit_index
            if left and not self._applying and not self._state.halted:
                counts.count("sliced applies")
            return applied

    class Rest(parts.rest):  # type: ignore[name-defined,misc]
        def begin(self) -> None:
            counts.count("leaders at rest")
            super().begin()

        def accept(self, node: NodeId, term: int, last_index: int) -> bool:
            accepted = super().accept(node, term, last_index)
            counts.count("followers at rest", accepted)
            return accepted

    class Counted(base):  # type: ignore[valid-type,misc]
        pass

    Counted.parts = replace(parts, voting=Voting, leadership=Leadership, apply=Apply, rest=Rest)

    return Counted


def missing(found: Counter[str], seeds: int) -> list[str]:
    """What was walked too rarely in so many seeds, in words; nothing is said of few seeds."""
    if seeds < FLOOR_SEEDS:
        return []
    wanted = {path: floor * seeds // FLOOR_SEEDS for path, floor in FLOORS.items()}
    return [
        f"{path}: {found[path]} times in {seeds} seeds, at least {floor} are wanted"
        for path, floor in wanted.items()
        if found[path] < floor
    ]
