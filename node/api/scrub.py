"""What the HTTP front asks of the node about reading everything again: `Scrubs`."""

from __future__ import annotations

from typing import Protocol

import msgspec

from node.api.rules.rule import everywhere, scoped


class ScrubView(msgspec.Struct, frozen=True):
    """One node's scrub. The figures are of the round that runs, or of the last one; `found` tells
    of the newest findings, `diverged` of replicas that differ from others of their partition though
    their checksums are right, `damaged` of groups that wait for repair. Times are Unix
    milliseconds, 0 for never."""

    running: bool
    rounds: int
    started_ms: int = 0
    ended_ms: int = 0
    bytes_total: int = 0
    bytes_done: int = 0
    damaged_entries: int = 0
    mended_files: int = 0
    ranges_compared: int = 0
    found: list[str] = []
    diverged: list[str] = []
    damaged: list[str] = []


class Scrubs(Protocol):
    """The scrubs of all nodes, from any node."""

    @scoped(everywhere)
    async def scrub(self, *, begin: bool) -> dict[str, ScrubView | None]:
        """How each node's scrub is, None where it does not answer; with `begin` after each was told
        to read everything now."""
        ...
