"""Who guesses secrets has to wait: failed authentications, counted by address."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar

from goqueue.wire.errors import GoQueueError
from node.api.auth.hosts import bucket
from node.api.auth.key_verifier import Origin

FAILURES_MAX = 10
"""Of one address within a window: a person errs less often, and a rollout with an old secret is
slowed down, not locked out."""
WINDOW_S = 60.0
ADDRESSES_MAX = 4096
"""Remembered at once; beyond it the one that failed longest ago is forgotten."""


class TooManyFailures(GoQueueError):
    """This address has sent too many keys that do not hold."""

    code, http_status, retriable = "too_many_failures", 429, True
    text: ClassVar[str] = "too many API keys from this address do not hold"


class Failures:
    """Ten in a minute, then none is tried until the minute is over. Keys that were proved before go
    on to work: they are not tried. `clock_s` is monotonic."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._known: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """Since when, and how many."""

    def check(self, address: str) -> None:
        """Raises TooManyFailures."""
        count, left_s = self._recent(address)
        if count >= FAILURES_MAX:
            raise TooManyFailures(
                f"too many API keys from {address} do not hold: try again in {math.ceil(left_s)} s",
                retry_after_s=math.ceil(left_s),
            )

    def origin(self, address: str) -> Origin:
        """By which those that wait to be proved are told apart."""
        return Origin(bucket(address), self._recent(address)[0])

    def add(self, address: str) -> None:
        name, now_s = bucket(address), self._clock_s()
        since_s, count = self._known.pop(name, (now_s, 0))
        if now_s - since_s >= WINDOW_S:
            since_s, count = now_s, 0
        self._known[name] = (since_s, count + 1)
        if len(self._known) > ADDRESSES_MAX:
            self._known.popitem(last=False)

    def _recent(self, address: str) -> tuple[int, float]:
        """How many in the window that lasts, and how long it still does."""
        since_s, count = self._known.get(bucket(address), (-math.inf, 0))
        left_s = since_s + WINDOW_S - self._clock_s()
        return (count, left_s) if left_s > 0 else (0, 0.0)
