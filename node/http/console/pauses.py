"""Rebalances as a picture: each a row, on one scale of milliseconds from its beginning.

The bar is how long the rebalance took, each mark a partition that moved, where its pause ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from node.api.members import RebalanceView

WIDTH = 880.0
LABELS = 150.0
ROW = 30.0
TOP = 26.0
MARKS_MAX = 64
"""Of one rebalance; those that paused longest."""
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Mark:
    """A partition's pause."""

    x: float
    fenced: bool
    title: str


@dataclass(frozen=True, slots=True)
class Row:
    """One rebalance; `width` is the bar's, of one that has ended."""

    y: float
    label: str
    width: float
    running: bool
    marks: Sequence[Mark]
    title: str


@dataclass(frozen=True, slots=True)
class Pauses:
    """The picture: `ticks` are (x, milliseconds)."""

    width: float
    height: float
    left: float
    top: float
    rows: Sequence[Row]
    ticks: Sequence[tuple[float, int]]


def draw_pauses(rebalances: Sequence[RebalanceView]) -> Pauses | None:
    """The newest on top; None of nothing."""
    if not rebalances:
        return None
    longest = max(
        1,
        *(one.ended_ms - one.started_ms for one in rebalances),
        *(move.pause_ms for one in rebalances for move in one.moves),
        1,
    )
    step = _step(longest)
    end = -(-longest // step) * step
    per_ms = (WIDTH - LABELS - 32) / end
    rows = [_row(one, TOP + ROW * at, per_ms) for at, one in enumerate(reversed(rebalances))]
    ticks = [(LABELS + at * per_ms, at) for at in range(0, end + 1, step)]
    return Pauses(WIDTH, TOP + ROW * len(rows) + 8, LABELS, TOP, rows, ticks)


def _row(one: RebalanceView, y: float, per_ms: float) -> Row:
    took_ms = max(0, one.ended_ms - one.started_ms) if one.ended_ms else 0
    moves = sorted(one.moves, key=lambda move: -move.pause_ms)[:MARKS_MAX]
    marks = [
        Mark(
            LABELS + move.pause_ms * per_ms,
            move.fenced,
            f"{move.topic}:{move.partition} paused {move.pause_ms} ms"
            + (", its owner was fenced" if move.fenced else ""),
        )
        for move in moves
    ]
    moved = f"{one.moved} moved" if one.moved else "nothing moved"
    title = f"generation {one.id}, {one.cause}: {moved}, " + (
        f"over in {took_ms} ms" if one.ended_ms else "still running"
    )
    return Row(
        y, f"{one.id} · {one.cause}", max(2.0, took_ms * per_ms), not one.ended_ms, marks, title
    )


def _step(longest: int) -> int:
    """So that there are four to eight ticks or so."""
    scale = 1
    while True:
        for step in _STEPS:
            if longest / (step * scale) <= 6:
                return step * scale
        scale *= 10
