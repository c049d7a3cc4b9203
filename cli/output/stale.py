"""Telling people which figures no leader has confirmed in time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cli.output.formats import Row, cell_text
from cli.output.terminal import warn

STALE = " (stale)"


def or_stale(field: str) -> Callable[[Row], str]:
    """A cell that says so where its row is stale."""

    def text(row: Row) -> str:
        return cell_text(row.get(field)) + (STALE if row.get("stale") else "")

    return text


def warn_of_stale(names: Sequence[str]) -> None:
    """On standard error, where there are any."""
    if names:
        warn(
            f"{', '.join(names)}: stale. Leaders did not confirm these figures in time, and there "
            "may be more; ask again"
        )
