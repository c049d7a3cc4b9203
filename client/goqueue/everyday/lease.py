"""The lease of the item that a stream's handler has in hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from goqueue.models.times import Duration
from goqueue.wire.errors import GoQueueError

SHARE = 3
"""A lease is extended this often in its time: two extensions may fail."""


class Extended(Protocol):
    """A message that was received."""

    def extend(self, visibility: Duration) -> object: ...


class LeaseKeeper:
    """Extends the lease of one message at a time, by a thread of its own, however long a handler
    takes. Use as `with`. Where an extension fails for good, the message comes again."""

    def __init__(self, visibility_s: float) -> None:
        self._visibility_s = visibility_s
        self._message: Extended | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="goqueue-lease", daemon=True)

    def __enter__(self) -> LeaseKeeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def kept(self, message: Extended) -> Iterator[None]:
        """Within, the message stays its taker's; no extension is under way once it is left."""
        with self._lock:
            self._message = message
        try:
            yield
        finally:
            with self._lock:
                self._message = None

    def _run(self) -> None:
        while not self._ended.wait(self._visibility_s / SHARE):
            with self._lock, suppress(GoQueueError):
                if self._message is not None:
                    self._message.extend(self._visibility_s)
