"""How far something is that the cluster does by itself: a bar, lines, or JSON, until it is over.

On a terminal it is a bar; elsewhere a line, or a JSON object, whenever it has come on. The answers
come from the cluster again and again, so that whoever is asked may die meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from rich.console import RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from cli.output.formats import bytes_text
from cli.output.terminal import note, plain_console, visible
from cli.run.session import Json, Session
from goqueue.errors import GoQueueError

LOOK_S = 0.5
PATIENCE_S = 60.0
"""For how long nobody may answer."""
WAITING_SHOWN_MAX = 3
SILENCE_S = 10.0
"""A line is printed so often, also where nothing has come on."""


@dataclass(frozen=True, slots=True)
class Look:
    """How far it is: `text` in words, `waiting` what it waits for, `record` what programs read."""

    done: int
    total: int
    text: str
    record: Json
    is_over: bool = False
    waiting: list[str] = field(default_factory=list[str])


async def follow(
    session: Session, title: str, look: Callable[[], Awaitable[Look]], goes_on: str
) -> Look:
    """Show it until it is over, and return the last look. `goes_on` is told to whoever presses
    Ctrl-C, which stops nothing but the looking."""
    shown = _shown(session, title)
    try:
        with shown:
            while True:
                found = await _patiently(look)
                shown.show(found)
                if found.is_over:
                    return found
                await asyncio.sleep(LOOK_S)
    except asyncio.CancelledError:
        note(goes_on)
        raise


def left_text(bytes_left: int | None, bytes_s: int) -> str:
    """`, 1.5 MiB to copy at 20.0 MiB/s`; nothing where nothing is known."""
    if not bytes_left:
        return ""
    rate = f" at {bytes_text(bytes_s)}/s" if bytes_s else ""
    return f", {bytes_text(bytes_left)} to copy{rate}"


def waiting_text(waiting: list[str]) -> str:
    """The first few reasons, and how many more there are."""
    more = len(waiting) - WAITING_SHOWN_MAX
    told = "; ".join(waiting[:WAITING_SHOWN_MAX])
    return f"{told}; and {more} more" if more > 0 else told


async def _patiently(look: Callable[[], Awaitable[Look]]) -> Look:
    """A look, once somebody answers. Raises what it is told at last."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + PATIENCE_S
    while True:
        try:
            return await look()
        except GoQueueError as error:
            if not error.retriable or loop.time() > ends_s:
                raise
        await asyncio.sleep(LOOK_S)


def _shown(session: Session, title: str) -> _Lines:
    if not session.output.is_table:
        return _Records(session, title)
    return _Bar(session, title) if sys.stderr.isatty() else _Lines(session, title)


class _Lines:
    """A line whenever it has come on."""

    def __init__(self, session: Session, title: str) -> None:
        self._output = session.output
        self._title = title
        self._last: object = None
        self._told_s = 0.0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, look: Look) -> None:
        now_s, is_news = time.monotonic(), (look.done, look.total) != self._last
        if look.is_over or not (is_news or now_s - self._told_s > SILENCE_S):
            return
        self._last, self._told_s = (look.done, look.total), now_s
        waiting = f"; {waiting_text(look.waiting)}" if look.waiting else ""
        self._output.line(f"{self._title}: {look.text}{waiting}")


class _Records(_Lines):
    """An object whenever it is another one, the last one too."""

    def show(self, look: Look) -> None:
        if look.record != self._last:
            self._last = look.record
            self._output.record_line(look.record)


class _Bar(_Lines):
    """A bar on the terminal, gone when it is over."""

    def __init__(self, session: Session, title: str) -> None:
        super().__init__(session, title)
        self._bar = _BarAndReasons(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            TimeElapsedColumn(),
            console=plain_console(sys.stderr),
            transient=True,
        )
        self._task = self._bar.add_task(visible(title), total=None, text="")

    def __enter__(self) -> None:
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, look: Look) -> None:
        self._bar.waiting = visible(waiting_text(look.waiting))
        total, text = max(look.total, 1), visible(look.text)
        self._bar.update(self._task, completed=look.done, total=total, text=text)


class _BarAndReasons(Progress):
    """A bar, and beneath it what is waited for."""

    waiting = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        if self.waiting:
            yield Text(self.waiting, style="dim", no_wrap=True, overflow="ellipsis")
