"""The channel to a directory: this process opens it, or asks the one that has it open.

Whoever has the directory's lock is its owner, and serves the others. When an owner is gone, whoever
asks next takes the lock and is the owner: nothing that was acknowledged is lost, as it is synced.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress

from goqueue.local import unix_socket
from goqueue.local.engine import LOCKED, Engine, answer_of, find_engine
from goqueue.local.unix_socket import SocketPath
from goqueue.models.failures import Closed, DirectoryInUse, DirectoryUnusable
from goqueue.transport.channel import Answer, Request, Socket, Streamed
from goqueue.transport.servers import HttpChannel
from goqueue.wire.errors import BadRequest, ConnectionFailed, GoQueueError

OPEN_S = 5.0
"""How long `connect` waits for an owner that has the lock and does not answer yet."""
LOOK_S = 0.01
"""How often the lock and the socket are tried meanwhile."""
URL = "http://localhost"
CONNECTIONS_MAX = 128
"""Of one process to the owner, which takes four times as many: more requests wait for one."""

_log = logging.getLogger(__name__)


class DirectoryChannel:
    """Implements `Channel` over one directory. Of the process that first used it: a forked
    child's calls are refused."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        open_engine: Callable[[str], Engine] | None = None,
    ) -> None:
        """Opens nothing; later by `open_engine`, or else by what is installed. Raises EngineMissing
        where nothing is."""
        self.directory = os.path.realpath(directory)
        self.servers = [f"directory {self.directory}"]
        self._open_engine = open_engine or find_engine()
        self._process = 0
        self._place: _Own | _Others | None = None
        self._placing = asyncio.Lock()
        self._finding: asyncio.Future[_Own | _Others] | None = None
        """On its way, also where who began it has given up."""
        self._failure: GoQueueError | None = None

    @property
    def engine(self) -> Engine | None:
        """What has the directory open in this process, for who may ask it without a request; None
        where that is another process, or nothing does any more. Any thread."""
        place = self._place
        if place is None or place.is_over or self._process != os.getpid():
            return None
        return place.engine

    async def connect(self) -> None:
        """Raises what `goqueue.open` does."""
        await self._placed(time.monotonic() + OPEN_S)

    async def ask(self, server: str, request: Request, timeout_s: float) -> Answer:
        until_s = time.monotonic() + timeout_s
        while True:
            place = await self._placed(until_s)
            try:
                return await place.ask(request, max(LOOK_S, until_s - time.monotonic()))
            except ConnectionFailed:  # nothing was sent: the next owner may have it
                await self._leave(place)
                if time.monotonic() >= until_s:
                    raise
                await asyncio.sleep(LOOK_S)

    @asynccontextmanager
    async def stream(
        self, server: str, request: Request, quiet_s: float
    ) -> AsyncGenerator[Streamed, None]:
        """Over the directory's socket, also where this process has it open. Raises
        DirectoryUnusable where there is none."""
        place = await self._placed(time.monotonic() + OPEN_S)
        try:
            async with place.stream(request, quiet_s) as answer:
                yield answer
        except ConnectionFailed:  # as in `ask`, for whoever asks again
            await self._leave(place)
            raise

    def socket(
        self, server: str, request: Request, answer_s: float, quiet_s: float
    ) -> AbstractAsyncContextManager[Socket | Answer]:
        """Raises BadRequest: a process asks its own engine faster."""
        raise BadRequest("a directory has no streams")

    async def close(self) -> None:
        self._failure = self._failure or Closed("the client is closed")
        if self._process != os.getpid():
            return
        async with self._placing:
            if self._finding is not None:
                with suppress(GoQueueError, OSError):
                    await self._found()
            place, self._place = self._place, None
        if place is not None:
            await place.close()

    async def _placed(self, until_s: float) -> _Own | _Others:
        if self._process != os.getpid():
            if self._process:
                raise Closed("the directory is open in the process that this one forked from")
            self._process = os.getpid()
        self._check_open()
        place = self._place
        if place is not None and not place.is_over:
            return place
        async with self._placing:
            self._check_open()
            if self._place is not None and self._place.is_over:
                raise self._failed(self._place)
            if self._place is None:
                if self._finding is None:
                    loop = asyncio.get_running_loop()
                    self._finding = loop.run_in_executor(None, self._find, until_s)
                await self._found()
            assert self._place is not None
            return self._place

    def _check_open(self) -> None:
        if self._failure is not None:
            raise Closed(self._failure.message)

    async def _found(self) -> None:
        """What is being found is the place; also that of who asks next, if this one gives up."""
        finding = self._finding
        assert finding is not None
        try:
            self._place = await asyncio.shield(finding)
        finally:
            if finding.done():
                self._finding = None

    def _failed(self, place: _Own | _Others) -> GoQueueError:
        """Closed for good: whoever opens the directory again finds what was acknowledged."""
        reason = getattr(place.failure, "message", "")
        self._failure = Closed(f"closed, as {reason}")
        return self._failure

    async def _leave(self, place: _Own | _Others) -> None:
        """It does not answer any more."""
        if self._place is place:
            self._place = None
            await place.close()

    def _find(self, until_s: float) -> _Own | _Others:
        try:
            return self._search(until_s)
        except OSError as error:
            raise DirectoryUnusable(f"{self.directory} can't be opened: {error}") from error

    def _search(self, until_s: float) -> _Own | _Others:
        while True:
            try:
                return _Own(self._open_engine(self.directory), self.directory)
            except GoQueueError as error:
                if error.code != LOCKED:
                    raise
                locked = error
            with ExitStack() as undo:
                path = SocketPath(self.directory)
                undo.callback(path.close)
                if unix_socket.is_served(path):
                    undo.pop_all()
                    return _Others(path)
            if time.monotonic() >= until_s:
                text = (
                    f"{locked.message}, which does not answer here. A server's directory is"
                    " asked at the server's address (http://…), or once it has stopped"
                )
                raise DirectoryInUse(text, directory=self.directory) from locked
            time.sleep(LOOK_S)


class _Own:
    """The directory is open in this process, and others are served."""

    def __init__(self, engine: Engine, directory: str) -> None:
        self.engine = engine
        self._directory = directory
        self._served: _Others | None = None
        """This process as one of the others: what has no end is asked for over the socket."""
        try:
            engine.serve(unix_socket.listen(directory), unix_socket.is_own_user)
        except OSError as error:  # a file system without sockets, or a path that is too long
            _log.warning("%s is not shared with other processes: %s", directory, error)

    @property
    def is_over(self) -> bool:
        return self.engine.failure is not None

    @property
    def failure(self) -> GoQueueError | None:
        return self.engine.failure

    async def ask(self, request: Request, timeout_s: float) -> Answer:
        late = f"no answer from {self._directory} in time"
        return await answer_of(self.engine.ask, request, timeout_s, late)

    @asynccontextmanager
    async def stream(self, request: Request, quiet_s: float) -> AsyncGenerator[Streamed, None]:
        if self._served is None:
            try:
                self._served = _Others(SocketPath(self._directory))
            except OSError as error:
                text = f"{self._directory} has no socket to be followed by: {error}"
                raise DirectoryUnusable(text) from error
        async with self._served.stream(request, quiet_s) as answer:
            yield answer

    async def close(self) -> None:
        if self._served is not None:
            await self._served.close()
        if not self.is_over:  # else another process may be the owner by now
            unix_socket.remove(self._directory)
        await asyncio.to_thread(self.engine.close)


class _Others:
    """Another process has the directory open: it is asked over its socket."""

    engine = None
    is_over = False
    failure = None

    def __init__(self, path: SocketPath) -> None:
        self._path = path
        self._channel = HttpChannel(
            [URL], connector=lambda: unix_socket.OwnUserConnector(path.text, limit=CONNECTIONS_MAX)
        )

    async def ask(self, request: Request, timeout_s: float) -> Answer:
        return await self._channel.ask(URL, request, timeout_s)

    def stream(self, request: Request, quiet_s: float) -> AbstractAsyncContextManager[Streamed]:
        return self._channel.stream(URL, request, quiet_s)

    async def close(self) -> None:
        await self._channel.close()
        self._path.close()
