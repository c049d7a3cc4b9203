"""Lines of those who ask for room in a budget that is used up: each waits for a moment.

A holder's requests wait for one another: what they ask for is in use for milliseconds. Whoever
still finds no room at the end of the wait is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from goqueue.wire.errors import OverBudget
from node.http.budget.memory import Kind

LOOK_S = 0.005
"""How often the first in a line looks for room."""
LINE_MAX = 4096
"""Requests in one line: as many as one address may have connections. One more is refused at
once."""

T = TypeVar("T")


class _Line:
    def __init__(self) -> None:
        self.count = 0
        self.turn = asyncio.Lock()


class Lines:
    """Those of one front, by what room is asked for and by whom. Loop thread only."""

    def __init__(self) -> None:
        self._lines: dict[tuple[Kind, str], _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    async def wait(self, kind: Kind, holder: str, wait_s: float, get: Callable[[], T]) -> T:
        """What `get` returns, once it finds room, in the order in which requests came. Raises
        OverBudget, and at once where this request alone is too large for its connection."""
        line = self._lines.get((kind, holder))
        waiting = 0 if line is None else line.count
        if not waiting or waiting >= LINE_MAX:
            try:
                return get()
            except OverBudget as error:
                if waiting >= LINE_MAX or not _may_end(error):
                    raise
        if line is None:
            line = self._lines[kind, holder] = _Line()
        line.count += 1
        try:
            async with asyncio.timeout(wait_s), line.turn:
                while True:
                    try:
                        return get()
                    except OverBudget as error:
                        if not _may_end(error):
                            raise
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            return get()
        finally:
            line.count -= 1
            if not line.count:
                del self._lines[kind, holder]


def _may_end(error: OverBudget) -> bool:
    """Whether others may give back what is in the way."""
    return error.data["bound"] != "connection"
