"""A directory that is open for reading: nothing in it is written, locked, repaired or trimmed.

A node runs over it as over one that it may write to, but on an `OverlayDisk`: its election, what it
replays and what has fallen due meanwhile are in memory alone. So reads, peeks, figures and
timelines are those of the node that opens the directory next. Another process may write meanwhile:
what is seen is the directory as it was found, until `is_current` says that it has gone on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from goqueue.wire.errors import GoQueueError, NotFound, ReadOnlyDirectory
from log.disk.files import Disk, OsDisk
from log.disk.overlay import OverlayDisk
from log.store.opening import GROUPS, WAL
from node.embedded.check import Damage, damage_of
from node.embedded.engine import Engine
from node.embedded.repair import repair
from node.http.server.local import LocalAnswer
from node.http.server.routes import ROUTER, Route

TRIES = 20
TRY_AGAIN_S = 0.01
"""A writer may delete and replace files while they are read: then all is read anew, so often."""
SETTLED_NS = 50_000_000
"""Files that were written to so lately may be written to again without showing a later time."""

LEASING = frozenset({"consume", "poll"})
"""GET requests that take messages out."""
LOOKING = frozenset({"peek"})
"""POST requests that change nothing."""


class NoDirectory(NotFound):
    """There is nothing to read at this path."""

    code = "no_directory"


def changes(route: Route) -> bool:
    """Whether a request may change something."""
    if route.method == "GET":
        return route.operation in LEASING
    return route.operation not in LOOKING


class Reader:
    """A directory as it was when it was opened; its methods may be called from any thread."""

    def __init__(
        self,
        directory: str,
        disk: Disk | None = None,
        prepare: Callable[[Disk], None] = lambda _disk: None,
    ) -> None:
        """Opens nothing. `disk` is the machine's file system if not given; it is only read.
        `prepare` may change what is read, in memory alone."""
        self.directory = os.path.abspath(directory)
        self._base = disk or OsDisk()
        self._prepare = prepare
        self._disk: OverlayDisk | None = None
        self._engine: Engine | None = None
        self._seen: object = None

    def open(self) -> None:
        """Read the directory; usable when this returns. Once only.

        Raises NoDirectory, and what `Engine.open` does, but nothing because of a lock. Nothing is
        left open then.
        """
        for tried in range(1, TRIES + 1):
            self._seen = _state_of(self.directory)
            try:
                self._open()
            except NoDirectory:
                raise
            except (GoQueueError, OSError):
                if tried == TRIES or (tried > 1 and self.is_current):
                    raise
                time.sleep(TRY_AGAIN_S)
            else:
                return

    @property
    def failure(self) -> GoQueueError | None:
        """Why nothing can be read any more."""
        return None if self._engine is None else self._engine.failure

    @property
    def is_current(self) -> bool:
        """Whether nobody has written to the directory since it was opened."""
        return self._seen is not None and _state_of(self.directory) == self._seen

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Future[LocalAnswer]:
        """As `Engine.ask`. Raises ReadOnlyDirectory for a request that may change something."""
        assert self._engine is not None, "it is not open"
        route, _ = ROUTER.match(method, target.partition("?")[0])
        if changes(route):
            raise ReadOnlyDirectory(
                f'{self.directory} is open for reading only (mode="r"): no {route.operation}'
            )
        return self._engine.ask(method, target, headers, body)

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        engine, disk = self._engine, self._disk
        if engine is not None:
            engine.close()
        if disk is not None:
            disk.close_all()

    # private

    def _open(self) -> None:
        base = self._base
        if not any(base.exists(f"{self.directory}/{name}") for name in (WAL, GROUPS)):
            raise NoDirectory(f"there is no queue in {self.directory}", path=self.directory)
        disk = OverlayDisk(base, f"{self.directory}/{GROUPS}")
        engine = Engine(self.directory, disk)
        try:
            self._prepare(disk)
            engine.open()
        except BaseException:
            engine.close()
            disk.close_all()
            raise
        self._engine, self._disk = engine, disk


def open_reader(directory: str) -> Reader:
    """The directory, open for reading. See `Reader.open`."""
    reader = Reader(directory)
    reader.open()
    return reader


def open_what_is_left(directory: str) -> Reader:
    """As `open_reader`, of a damaged directory: as if it had been repaired, with what that loses.
    Nothing is written. Raises NotRepairable."""
    root = os.path.abspath(directory)

    def prepare(disk: Disk) -> None:
        repair(root, lose=True, disk=disk)

    reader = Reader(root, prepare=prepare)
    reader.open()
    return reader


def checked(directory: str) -> list[Damage]:
    """All damage of a directory, also of one that is written to meanwhile. Raises as
    `damage_of`."""
    root = os.path.abspath(directory)
    for tried in range(1, TRIES + 1):
        seen = _state_of(root)
        try:
            found = damage_of(root)
        except (GoQueueError, OSError):
            if tried == TRIES or (tried > 1 and _state_of(root) == seen):
                raise
            found = []
        else:
            if tried == TRIES or not any(damage.loses for damage in found):
                return found
            if tried > 1 and _state_of(root) == seen:
                return found
        time.sleep(TRY_AGAIN_S)
    raise AssertionError("unreachable")


def _state_of(directory: str) -> object:
    """Another one, with a writer's every write; None where that can't be told."""
    found: list[tuple[str, int, int, int]] = []
    try:
        with os.scandir(f"{directory}/{WAL}") as entries:
            for entry in entries:
                state = entry.stat()
                found.append((entry.name, state.st_ino, state.st_size, state.st_mtime_ns))
    except OSError:
        return None
    newest = max((when for *_, when in found), default=0)
    if abs(time.time_ns() - newest) < SETTLED_NS:
        return (time.monotonic_ns(), found)
    return tuple(sorted(found))
