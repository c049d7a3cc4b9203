"""Transcripts: commands after `> `, and what each one prints beneath; comments and blank lines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

from tests.one_node import TimedLoop


async def played(text: str, run: Callable[[str], Awaitable[list[str]]]) -> str:
    """The transcript as its commands come out now; comments and blank lines stay."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *await run(line[2:])]
        elif line.startswith("#") or not line.strip():
            lines.append(line)
    return "\n".join(lines) + "\n"


def write_anew(play: Callable[[str], Coroutine[None, None, str]]) -> None:
    """The files that the command line names, with what is true now."""
    for name in sys.argv[1:]:
        with asyncio.Runner(loop_factory=TimedLoop) as runner:
            Path(name).write_text(runner.run(play(Path(name).read_text())))
