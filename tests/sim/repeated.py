"""A request that is sent again, to another node, until it is answered or given up."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from goqueue.wire.types import NodeId
from tests.sim.loop import Timer
from tests.sim.queue_requests import NotDone
from tests.sim.requests import Refused

PATIENCE_S = (0.3, 1.5)
PAUSE_S = 0.08


class Clock(Protocol):
    """Time as the client has it."""

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> Timer: ...


class Surroundings(Protocol):
    """Where a client runs; nothing is sent again once it `is_over`."""

    @property
    def nodes(self) -> list[NodeId]: ...

    @property
    def loop(self) -> Clock: ...

    @property
    def is_over(self) -> bool: ...


class Repeated:
    """`send(node, reply)` sends it once; `ended(answer, in_doubt)` is called at its end, with None
    where it was given up after `tries`; 0 for never."""

    def __init__(
        self,
        world: Surroundings,
        rng: random.Random,
        send: Callable[[NodeId, Callable[[object], None]], None],
        ended: Callable[[object | None, bool], None],
        *,
        tries: int = 0,
        wait_s: float = 0.0,
    ) -> None:
        self.node: NodeId | None = None
        """Whom it was sent to last."""
        self._world = world
        self._rng = rng
        self._send = send
        self._ended = ended
        self._tries = tries
        self._wait_s = wait_s
        self._tried = 0
        self._over = False
        self._in_doubt = False
        self._timer: Timer | None = None

    def give_up(self) -> None:
        """It is not waited for any longer."""
        if not self._over:
            self._end(None)

    def go(self) -> None:
        """Send it, now and for the first time or again."""
        if self._over or self._world.is_over:
            return
        self._tried += 1
        tried = self._tried
        self.node = self._rng.choice(self._world.nodes)

        def replied(answer: object) -> None:
            self._replied(tried, answer)

        self._send(self.node, replied)
        patience_s = self._wait_s + self._rng.uniform(*PATIENCE_S)
        self._timer = self._world.loop.call_later(patience_s, self._unanswered, tried)

    def _replied(self, tried: int, answer: object) -> None:
        if self._over:
            return
        if not isinstance(answer, Refused | NotDone):
            self._end(answer)
            return
        self._in_doubt = self._in_doubt or answer.unknown
        if tried == self._tried:
            self._again(PAUSE_S)

    def _unanswered(self, tried: int) -> None:
        if tried == self._tried and not self._over:
            self._in_doubt = True
            self._again(0.0)

    def _again(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._tries and self._tried >= self._tries:
            self._end(None)
        else:
            self._world.loop.call_later(delay_s, self.go)

    def _end(self, answer: object | None) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._ended(answer, self._in_doubt)
