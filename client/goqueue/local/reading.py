"""The channel to a directory that is only read: it writes nothing, locks nothing and asks nobody.

Each request sees the directory as it is then, or was at most `FRESH_S` before: where somebody has
written to it, it is opened anew. So no request waits for messages for longer than that.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from goqueue.local.engine import ReadingEngine, answer_of, find_reader
from goqueue.models.failures import Closed, DirectoryUnusable
from goqueue.transport.channel import Answer, Request, Socket, Streamed
from goqueue.wire.errors import BadRequest, ReadOnlyDirectory

FRESH_S = 0.25
"""How long what was read goes on to be shown while others write."""
FRESH = "250ms"
"""The same as a query field has it."""
WAITS = ("wait", "timeout")
"""Query fields by which a request waits for messages."""
TRIES = 3
"""A writer may take files away that an answer needs; the directory is opened anew then."""
_FAILED = 500


class ReadingChannel:
    """Implements `Channel` over a directory that others may be writing to. Of the process that
    first used it: a forked child's calls are refused."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        open_reader: Callable[[str], ReadingEngine] | None = None,
    ) -> None:
        """Opens nothing; later by `open_reader`, or else by what is installed. Raises EngineMissing
        where nothing is."""
        self.directory = os.path.realpath(directory)
        self.servers = [f"directory {self.directory}"]
        self._open_reader = open_reader or find_reader()
        self._process = 0
        self._reader: ReadingEngine | None = None
        self._looked_s = 0.0
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Future[None]] = set()
        self._asking: dict[ReadingEngine, int] = {}
        self._closed = False

    async def connect(self) -> None:
        """Raises what `goqueue.open` does."""
        await self._current()

    async def ask(self, server: str, request: Request, timeout_s: float) -> Answer:
        until_s = time.monotonic() + timeout_s
        for tried in range(1, TRIES + 1):
            reader = await self._current()
            self._asking[reader] = self._asking.get(reader, 0) + 1
            try:
                answer = await self._ask(reader, request, until_s)
            finally:
                self._leave(reader)
            if answer.status < _FAILED or tried == TRIES or reader.is_current:
                return answer
        raise AssertionError("unreachable")

    def stream(
        self, server: str, request: Request, quiet_s: float
    ) -> AbstractAsyncContextManager[Streamed]:
        """Nobody tells this process what others write: raises ReadOnlyDirectory."""
        raise ReadOnlyDirectory(
            f'{self.directory} is open for reading only (mode="r"), where nothing is followed:'
            " read it again instead"
        )

    def socket(
        self, server: str, request: Request, answer_s: float, quiet_s: float
    ) -> AbstractAsyncContextManager[Socket | Answer]:
        """Raises BadRequest: whoever reads takes nothing."""
        raise BadRequest("a directory that is open for reading has no streams")

    async def close(self) -> None:
        self._closed = True
        if self._process != os.getpid():
            return
        async with self._opening:
            reader, self._reader = self._reader, None
        if reader is not None:
            await asyncio.to_thread(reader.close)
        await asyncio.gather(*self._closing)

    # private

    async def _ask(self, reader: ReadingEngine, request: Request, until_s: float) -> Answer:
        if request.params:
            request = replace(request, params=_shortened(request.params))
        left_s, late = until_s - time.monotonic(), f"no answer from {self.directory} in time"
        return await answer_of(reader.ask, request, max(0.0, left_s), late)

    async def _current(self) -> ReadingEngine:
        """The directory as it is. Raises what `goqueue.open` does."""
        if self._process != os.getpid():
            if self._process:
                raise Closed("the directory is open in the process that this one forked from")
            self._process = os.getpid()
        async with self._opening:
            if self._closed:
                raise Closed("the client is closed")
            reader = self._reader
            if reader is not None:
                now_s = time.monotonic()
                if now_s - self._looked_s < FRESH_S:
                    return reader
                if reader.failure is None and reader.is_current:
                    self._looked_s = now_s
                    return reader
            self._looked_s = time.monotonic()
            self._reader = await self._opened()
            if reader is not None:
                self._asking.setdefault(reader, 0)
                self._retire(reader)
            return self._reader

    async def _opened(self) -> ReadingEngine:
        opening = asyncio.get_running_loop().run_in_executor(
            None, self._open_reader, self.directory
        )
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close)
            raise
        except OSError as error:
            raise DirectoryUnusable(f"{self.directory} can't be read: {error}") from error

    def _leave(self, reader: ReadingEngine) -> None:
        self._asking[reader] -= 1
        if reader is not self._reader:
            self._retire(reader)

    def _retire(self, reader: ReadingEngine) -> None:
        """It is closed once the last request that asked it is answered."""
        if self._asking.get(reader) == 0:
            del self._asking[reader]
            closing = asyncio.get_running_loop().run_in_executor(None, reader.close)
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


def _close(opening: asyncio.Future[ReadingEngine]) -> None:
    """Nobody waits for it any more."""
    if not opening.cancelled() and opening.exception() is None:
        asyncio.get_running_loop().run_in_executor(None, opening.result().close)


def _shortened(params: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Waits that end soon: nothing new comes to what was opened, and whoever asks again sees what
    is there then."""
    given = params.items() if isinstance(params, Mapping) else params
    return [(name, FRESH if name in WAITS else value) for name, value in given]
