"""How metrics are declared: once, with what is to be known of each."""

from __future__ import annotations

from typing import Any, TypeVar

from node.metrics.family import Bounds, Counter, Family, Gauge, Histogram, Labels, Sampled
from node.metrics.meaning import Meaning, Moves, Teller

LATENCY_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""GoQueue's."""
PAUSE_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
COUNT_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


One = TypeVar("One", Counter, Gauge, Sampled, Histogram)


class Declarations:
    """The families of one node, by name."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.families: dict[str, Family[Any]] = {}

    def counter(
        self, name: str, text: str, labels: Labels = (), *, told: Teller, moves: Moves
    ) -> Counter:
        meaning = Meaning(told, moves)
        return self._put(Counter(name, text, labels, meaning, self.bounds))

    def gauge(
        self, name: str, text: str, labels: Labels = (), *, told: Teller, moves: Moves
    ) -> Gauge:
        """One that is set when it changes."""
        return self._put(Gauge(name, text, labels, Meaning(told, moves), self.bounds))

    def sampled(
        self, name: str, text: str, labels: Labels, *, told: Teller, moves: Moves, alias: str = ""
    ) -> Sampled:
        """One that is told anew at each look."""
        meaning = Meaning(told, moves, alias)
        return self._put(Sampled(name, text, labels, meaning, self.bounds))

    def histogram(
        self,
        name: str,
        text: str,
        labels: Labels = (),
        *,
        told: Teller,
        moves: Moves,
        buckets: tuple[float, ...] = LATENCY_BUCKETS_S,
    ) -> Histogram:
        meaning = Meaning(told, moves)
        return self._put(Histogram(name, text, labels, meaning, self.bounds, buckets))

    def _put(self, family: One) -> One:
        assert family.name not in self.families, f"{family.name} is declared twice"
        self.families[family.name] = family
        return family
