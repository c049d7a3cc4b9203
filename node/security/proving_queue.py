"""The line of secrets that wait to be tried: bounded, and whoever guesses stands behind others.

One secret is tried at a time. Where there is no place, a newcomer from where fewer wrong keys came
takes that of who came from where more did: guesses from many addresses keep out neither the keys of
other ids nor, as far as can be told, the one who holds the key that is guessed at.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from coordinator.commands.keys import SecretDigest
from goqueue.wire.errors import Busy
from node.api.auth.key_verifier import Origin

PLACES_MAX = 64
"""Secrets that wait to be tried, a second's work; more are told to come again."""
PLACES_OF_ID_MAX = 16
"""Of one key id: whoever guesses at it leaves room for the other ids."""

Trial = Callable[[], SecretDigest | None]


@dataclass(slots=True, eq=False)
class _Waiting:
    id: str
    address: str
    rank: int
    """Wrong keys from there of late, and those that waited when this one came: lowest first."""
    trial: Trial
    end: asyncio.Future[SecretDigest | None]


class ProvingLine:
    """Loop thread only; trials run on the workers."""

    def __init__(self, workers: ThreadPoolExecutor) -> None:
        self._workers = workers
        self._waiting: list[_Waiting] = []
        self._is_trying = False

    def join(self, id: str, origin: Origin, trial: Trial) -> asyncio.Future[SecretDigest | None]:
        """What the trial will end in. Raises Busy, here or from the future: it lost its place."""
        before = sum(one.address == origin.address for one in self._waiting)
        rank = origin.failures + before
        self._make_room(id, rank)
        end: asyncio.Future[SecretDigest | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(id, origin.address, rank, trial, end))
        self._next()
        return end

    def _make_room(self, id: str, rank: int) -> None:
        """Raises Busy where nobody came from a worse place."""
        of_ids = Counter(one.id for one in self._waiting)
        rivals = self._waiting
        if of_ids[id] >= PLACES_OF_ID_MAX:
            rivals = [one for one in self._waiting if one.id == id]
        elif len(self._waiting) < PLACES_MAX:
            return
        worst = max(reversed(rivals), key=lambda one: (one.rank, of_ids[one.id]))
        if (worst.rank, of_ids[worst.id]) <= (rank, of_ids[id]):
            raise _busy()
        self._waiting.remove(worst)
        if not worst.end.done():
            worst.end.set_exception(_busy())

    def _next(self) -> None:
        if self._is_trying or not self._waiting:
            return
        following = min(self._waiting, key=lambda one: one.rank)
        self._waiting.remove(following)
        loop = asyncio.get_running_loop()
        try:
            running = loop.run_in_executor(self._workers, following.trial)
        except RuntimeError:  # the node stops
            for one in (following, *self._waiting):
                one.end.cancel()
            self._waiting.clear()
            return
        self._is_trying = True
        running.add_done_callback(lambda done: self._tried(following, done))

    def _tried(self, one: _Waiting, done: asyncio.Future[SecretDigest | None]) -> None:
        self._is_trying = False
        if one.end.done():
            pass
        elif done.cancelled():
            one.end.cancel()
        elif (error := done.exception()) is not None:
            one.end.set_exception(error)
        else:
            one.end.set_result(done.result())
        self._next()


def _busy() -> Busy:
    return Busy("too many API keys wait to be proved")
