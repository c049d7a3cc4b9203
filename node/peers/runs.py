"""Which run of each peer is on: what a node draws when it starts, and tells in its status."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from goqueue.wire.types import NodeId

RUN = "run"
"""The name under which a node tells its run."""
LOST_LOOKS = 10
"""A run is lost that was silent for so many looks, of a second each."""
FORMER_MAX = 1000
"""Runs that are remembered as over, the newest."""


class Runs:
    """By statuses of peers and by looks, each a step of the caller's time. Nothing is counted while
    this node stands still: what peers sent meanwhile may not have been read yet."""

    def __init__(self, own: int, lost_looks: int = LOST_LOOKS) -> None:
        """A run is lost that was silent for so many looks in a row."""
        self.own = own
        self._lost_looks = lost_looks
        self._of: dict[NodeId, int] = {}
        self._former: dict[int, None] = {}
        """Runs after which their node has begun another one, the newest last."""
        self._heard: set[int] = set()
        """Since the last look."""
        self._silent: dict[int, int] = {}
        """Looks in a row at which runs that were asked for had not been heard of."""

    def told(self, node: NodeId, status: Mapping[str, Any]) -> None:
        """A peer's status arrived just now."""
        run = status.get(RUN)
        if not isinstance(run, int):
            return  # it is of a version without streams
        former = self._of.get(node, run)
        self._of[node] = run
        self._former.pop(run, None)
        if former != run:
            self._former[former] = None
            if len(self._former) > FORMER_MAX:
                del self._former[next(iter(self._former))]
        self._heard.add(run)

    def look(self, runs: Collection[int]) -> set[int]:
        """Those of these runs that are lost: there is a later one of their node, or they were
        silent. One that was not asked for at the last look is given all its time."""
        heard, self._heard = self._heard, set()
        heard.add(self.own)
        self._silent = {
            run: self._silent.get(run, 0) + 1
            for run in runs
            if run not in heard or run in self._former
        }
        return {
            run
            for run, looks in self._silent.items()
            if run in self._former or looks >= self._lost_looks
        }
