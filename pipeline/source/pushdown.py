"""Filters that narrow what is read: on topic, partition, offset and timestamp.

Times become offsets: log time never goes back within a partition, so messages from a moment on
are those from an offset on. All filters hold together, so each only narrows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from pipeline.broker import Broker

PUSHING: Final = "pyspark.sql.worker.data_source_pushdown_filters"
NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
OFFSET_MAX: Final = 2**63 - 1


def is_pushing() -> bool:
    """Whether this process of Spark's is the one that pushes filters down.

    Spark refuses a reader that takes filters where spark.sql.python.filterPushdown.enabled is off,
    as it is by default; then it plans reads in processes of another kind.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return PUSHING in sys.modules or (spec is not None and spec.name == PUSHING)


@dataclass(slots=True)
class Between:
    """Whole numbers from `low` up to, not including, `high`."""

    low: int = 0
    high: int = OFFSET_MAX

    def narrow(self, low: int, high: int) -> None:
        self.low, self.high = max(self.low, low), min(self.high, high)


@dataclass(slots=True)
class Bounds:
    """What pushed filters leave of a read."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    numbers: Between = field(default_factory=Between)
    """Of partitions."""
    offsets: Between = field(default_factory=Between)
    times_ms: Between = field(default_factory=Between)

    def push(self, told: Filter) -> bool:
        """Whether Spark need not apply this filter any more, because nothing else is read."""
        if isinstance(told, IsNotNull):
            return told.attribute[0] in NEVER_NULL and len(told.attribute) == 1
        if not isinstance(told, _KINDS) or len(told.attribute) != 1:
            return False
        (column,) = told.attribute
        pushers: dict[str, Callable[[Filter], bool]] = {
            "topic": self._topic,
            "partition": self._partition,
            "offset": self._offset,
            "timestamp": self._timestamp,
        }
        return column in pushers and pushers[column](told)

    def within(
        self, broker: Broker, topic: str, partition: int, start: int, end: int
    ) -> tuple[int, int]:
        """The part of a partition's offsets that the filters leave; the end is not below the
        start."""
        allowed = (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )
        if not allowed or not self.numbers.low <= partition < self.numbers.high:
            return start, start
        low, high = max(start, self.offsets.low), min(end, self.offsets.high)
        times = self.times_ms
        if low < high and times.low > 0:
            found = broker.offset_at(topic, partition, times.low)
            low = high if found is None else max(low, found)
        if low < high and times.high < OFFSET_MAX:
            found = broker.offset_at(topic, partition, max(0, times.high))
            high = high if found is None else min(high, found)
        return low, max(low, high)

    def _topic(self, told: Any) -> bool:
        if not isinstance(told, EqualTo | EqualNullSafe | In):
            return False
        names = frozenset(_values(told))
        self.topics = names if self.topics is None else self.topics & names
        return True

    def _partition(self, told: Any) -> bool:
        if isinstance(told, In):
            numbers = frozenset(_values(told))
            self.partitions = numbers if self.partitions is None else self.partitions & numbers
            return True
        return _narrow(self.numbers, told)

    def _offset(self, told: Any) -> bool:
        if isinstance(told, In):
            values = [value for value in _values(told) if value is not None]
            if values:
                self.offsets.narrow(min(values), max(values) + 1)
            return False  # only those in between are left out
        return _narrow(self.offsets, told)

    def _timestamp(self, told: Any) -> bool:
        if isinstance(told, In) or not isinstance(told.value, datetime):
            return False
        micros = _micros(told.value)
        at_least, above = -(-micros // 1000), micros // 1000 + 1
        if isinstance(told, GreaterThan):
            self.times_ms.narrow(above, OFFSET_MAX)
        elif isinstance(told, GreaterThanOrEqual):
            self.times_ms.narrow(at_least, OFFSET_MAX)
        elif isinstance(told, LessThan):
            self.times_ms.narrow(0, at_least)
        elif isinstance(told, LessThanOrEqual):
            self.times_ms.narrow(0, above)
        else:
            self.times_ms.narrow(at_least, above)
        return True


_KINDS: Final = (
    EqualTo,
    EqualNullSafe,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    In,
)


def _values(told: Any) -> tuple[Any, ...]:
    return tuple(told.value) if isinstance(told, In) else (told.value,)


def _narrow(between: Between, told: Any) -> bool:
    value = told.value
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    if isinstance(told, GreaterThan):
        between.narrow(value + 1, OFFSET_MAX)
    elif isinstance(told, GreaterThanOrEqual):
        between.narrow(value, OFFSET_MAX)
    elif isinstance(told, LessThan):
        between.narrow(0, value)
    elif isinstance(told, LessThanOrEqual):
        between.narrow(0, value + 1)
    else:
        between.narrow(value, value + 1)
    return True


def _micros(moment: datetime) -> int:
    """Microseconds since 1970; Spark hands moments over with their zone, or as UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND
