"""Metric families: named figures with labels, bounded in number, set on the loop's thread only.

Like those of `prometheus_client`, without its locks (six times what counting itself costs), with a
bound on the series of each family, and with gauges that are told anew at each look: what nobody
tells of any more is gone, with no clearing in between.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from node.metrics.meaning import Meaning

OTHER = "_other"
"""The label of all that has no series of its own; no topic or group can be called so."""
SERIES_MAX = 10_000
CHILDREN_A_PIECE = 64
FREE_LABELS = frozenset({"topic", "partition", "consumer_group", "group"})
"""Labels with as many values as users make."""

Labels = tuple[str, ...]


class Value:
    """One series of a counter or a gauge."""

    __slots__ = ("head", "is_shared", "look", "value")

    def __init__(self, head: str, *, is_shared: bool = False) -> None:
        self.head = head
        self.is_shared = is_shared
        """Whether it is of all those that have no series of their own."""
        self.value = 0.0
        self.look = 0
        """The look at which it was told last."""

    def inc(self, amount: float = 1.0) -> None:
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        self.value -= amount

    def set(self, value: float) -> None:
        self.value = float(value)


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One observation, and the trace that it was part of."""

    trace_id: str
    value: float
    at_s: float


class Distribution:
    """One series of a histogram: how many observations fell into each bucket, and their sum."""

    __slots__ = ("buckets", "counts", "exemplars", "head", "sum")

    def __init__(self, head: str, buckets: tuple[float, ...]) -> None:
        self.head = head
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.sum = 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float, trace_id: str = "") -> None:
        """The trace is shown as the example of its bucket."""
        bucket = bisect_left(self.buckets, value)
        self.counts[bucket] += 1
        self.sum += value
        if trace_id:
            self.exemplars[bucket] = Exemplar(trace_id, value, time.time())

    @property
    def count(self) -> int:
        return sum(self.counts)


Child = TypeVar("Child", Value, Distribution)


@dataclass(slots=True)
class Bounds:
    """What the families of one node share."""

    series_max: int = SERIES_MAX
    look: int = 1
    """The number of the present look; what was told at an earlier one is not shown."""
    seen: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Topics, and groups, that have series."""
    folded: dict[str, int] = field(default_factory=dict[str, int])
    """By family: how often something had no series of its own."""


class Family(Generic[Child]):
    """All series of one name. `labels` values are in the order of `label_names`."""

    kind = "untyped"
    _series_a_child = 1

    def __init__(
        self, name: str, text: str, label_names: Labels, meaning: Meaning, bounds: Bounds
    ) -> None:
        self.name = name
        self.text = text
        self.label_names = label_names
        self.meaning = meaning
        self._bounds = bounds
        self._is_free = [label in FREE_LABELS for label in label_names]
        self._children_max = max(1, bounds.series_max // self._series_a_child)
        self._children: dict[Labels, Child] = {}
        self._alone: Child | None = None if label_names else self.labels()

    def labels(self, *values: str) -> Child:
        """The series with these labels; beyond the bound, the one that all others share."""
        child = self._children.get(values)
        if child is None:
            child = self._new(values)
        return child

    def remove(self, label: str, gone: set[str]) -> None:
        """Forget all series of topics, or groups, that are no more."""
        if label not in self.label_names:
            return
        at = self.label_names.index(label)
        for values in [known for known in self._children if known[at] in gone]:
            del self._children[values]

    @property
    def size(self) -> int:
        """Series shown."""
        return len(self._children) * self._series_a_child

    def text_pieces(self, *, openmetrics: bool) -> Iterator[str]:
        """All series as text, some at a time."""
        children = list(self._children.values())
        for at in range(0, len(children), CHILDREN_A_PIECE):
            piece = children[at : at + CHILDREN_A_PIECE]
            yield "".join([self._lines(child, openmetrics=openmetrics) for child in piece])

    # private

    def _lines(self, child: Child, *, openmetrics: bool) -> str:
        raise NotImplementedError

    def _make(self, head: str, *, is_shared: bool) -> Child:
        raise NotImplementedError

    def _new(self, values: Labels) -> Child:
        assert len(values) == len(self.label_names), f"{self.name} has labels {self.label_names}"
        bounds, is_free = self._bounds, self._is_free
        is_shared = len(self._children) >= self._children_max and any(is_free)
        if is_shared:
            bounds.folded[self.name] = bounds.folded.get(self.name, 0) + 1
            values = tuple(OTHER if f else v for v, f in zip(values, is_free, strict=True))
            known = self._children.get(values)
            if known is not None:
                return known
        child = self._children[values] = self._make(self._head(values), is_shared=is_shared)
        for label, value in zip(self.label_names, values, strict=True):
            if label in FREE_LABELS and value != OTHER:
                bounds.seen.setdefault(label, set()).add(value)
        return child

    def _head(self, values: Labels) -> str:
        labels = sorted(zip(self.label_names, values, strict=True))
        return ",".join(f'{label}="{_escaped(value)}"' for label, value in labels)

    def _single(self) -> Child:
        alone: Child | None = self._alone
        assert alone is not None, f"{self.name} has labels {self.label_names}"
        return alone


class Counter(Family[Value]):
    """Only grows, while the process runs."""

    kind = "counter"

    def inc(self, amount: float = 1.0) -> None:
        self._single().inc(amount)

    def put(self, total: float, *values: str) -> None:
        """Set what is counted elsewhere; shared series can't be set, and are not."""
        child = self.labels(*values)
        if not child.is_shared:
            child.set(total)

    def _lines(self, child: Value, *, openmetrics: bool) -> str:
        return f"{child.head} {child.value!r}\n"

    def _make(self, head: str, *, is_shared: bool) -> Value:
        return Value(_named(self.name, head), is_shared=is_shared)


class Gauge(Family[Value]):
    """Goes up and down."""

    kind = "gauge"

    def inc(self, amount: float = 1.0) -> None:
        self._single().inc(amount)

    def dec(self, amount: float = 1.0) -> None:
        self._single().dec(amount)

    def set(self, value: float) -> None:
        self._single().set(value)

    def _lines(self, child: Value, *, openmetrics: bool) -> str:
        return f"{child.head} {child.value!r}\n"

    def _make(self, head: str, *, is_shared: bool) -> Value:
        return Value(_named(self.name, head), is_shared=is_shared)


class Sampled(Family[Value]):
    """A gauge that is told anew at each look, by `add`, `most` or `put`. What was not told at the
    present look is not shown, and forgotten."""

    kind = "gauge"

    def add(self, amount: float, *values: str) -> None:
        """Add to what was told at this look."""
        child = self.labels(*values)
        if child.look != self._bounds.look:
            child.look, child.value = self._bounds.look, float(amount)
        else:
            child.value += amount

    def most(self, value: float, *values: str) -> None:
        """The greatest of what is told at this look."""
        child = self.labels(*values)
        if child.look != self._bounds.look:
            child.look, child.value = self._bounds.look, float(value)
        elif value > child.value:
            child.value = float(value)

    def put(self, value: float, *values: str) -> None:
        """Of what can't be added up: beyond the bound it has no series, and is only counted."""
        child = self.labels(*values)
        if not child.is_shared:
            child.look, child.value = self._bounds.look, float(value)

    def text_pieces(self, *, openmetrics: bool) -> Iterator[str]:
        look, known = self._bounds.look, self._children
        labels = list(known)
        for at in range(0, len(labels), CHILDREN_A_PIECE):
            lines: list[str] = []
            for values in labels[at : at + CHILDREN_A_PIECE]:
                child = known.get(values)
                if child is not None and child.look == look:
                    lines.append(f"{child.head} {child.value!r}\n")
                elif child is not None:
                    del known[values]
            yield "".join(lines)

    def _make(self, head: str, *, is_shared: bool) -> Value:
        return Value(_named(self.name, head), is_shared=is_shared)


class Histogram(Family[Distribution]):
    """Observations, counted in buckets."""

    kind = "histogram"

    def __init__(
        self,
        name: str,
        text: str,
        label_names: Labels,
        meaning: Meaning,
        bounds: Bounds,
        buckets: tuple[float, ...],
    ) -> None:
        self.buckets = buckets
        self._series_a_child = len(buckets) + 3
        self._les = [f'le="{edge!r}"' for edge in map(float, buckets)] + ['le="+Inf"']
        super().__init__(name, text, label_names, meaning, bounds)

    def observe(self, value: float) -> None:
        self._single().observe(value)

    def _lines(self, child: Distribution, *, openmetrics: bool) -> str:
        return "".join(self._each(child, openmetrics=openmetrics))

    def _each(self, child: Distribution, *, openmetrics: bool) -> Iterator[str]:
        name, head = self.name, child.head
        prefix = f"{name}_bucket{{{head}," if head else f"{name}_bucket{{"
        total = 0
        for bucket, (edge, count) in enumerate(zip(self._les, child.counts, strict=True)):
            total += count
            known = child.exemplars.get(bucket) if openmetrics and child.exemplars else None
            tail = "" if known is None else _example(known)
            yield f"{prefix}{edge}}} {float(total)!r}{tail}\n"
        yield f"{_named(f'{name}_count', head)} {float(total)!r}\n"
        yield f"{_named(f'{name}_sum', head)} {child.sum!r}\n"

    def _make(self, head: str, *, is_shared: bool) -> Distribution:
        return Distribution(head, self.buckets)


def _named(name: str, head: str) -> str:
    return f"{name}{{{head}}}" if head else name


def _example(known: Exemplar) -> str:
    return f' # {{trace_id="{_escaped(known.trace_id)}"}} {known.value!r} {known.at_s:.3f}'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
