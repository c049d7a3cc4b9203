"""A topic's settings: their defaults, their bounds, and what is said about risky ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordinator.bounds import PARTITIONS_MAX
from coordinator.errors import BadConfig

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
REPLICAS_DEFAULT = 3
REPLICAS_MAX = 7
MESSAGE_BYTES_MAX = 16 << 20
TIME_MS_MAX = 1 << 53
LABELS_MAX = 64
LABEL_CHARACTERS_MAX = 256
DURABILITIES = ("majority", "relaxed")
UNLIMITED = -1
CLEANUPS = ("delete", "compact", "compact,delete")
LANES = (3, 5)
DELAY_MS_MAX = 366 * DAY_MS
"""Stored delays are relative below 2**38 ms, and no request asks for more."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of one topic; every partition has the same."""

    partitions: int = 6
    replication_factor: int = REPLICAS_DEFAULT
    """By default 3, or the number of brokers where there are fewer."""
    retention_ms: int = 168 * HOUR_MS
    """Age by log time at which messages may go; -1 keeps them."""
    retention_bytes: int = 10 << 30
    """Per partition; -1 for no bound."""
    durability: str = "majority"
    """`majority`: acked when a majority has it on disk, synced. `relaxed`: when written there."""
    flush_interval_ms: int = 50
    """For `relaxed`: how soon what was acked is synced."""
    lanes: int = 5
    """5, or 3: critical counts as high, background as low."""
    max_message_bytes: int = 1 << 20
    """Key, value and headers of one message."""
    ttl_ms: int = 0
    """Expiry of messages that state none, from their log time; 0 for never."""
    delay_ms_max: int = 168 * HOUR_MS
    """The longest delay that a publisher may ask for."""
    delayed_max: int = 100_000
    """Messages of one partition that are delayed and not due; 0 allows none."""
    dedup_window_ms: int = 300_000
    """How long a message id is remembered, by log time; 0 forgets at once."""
    dedup_max: int = 1_000_000
    """Message ids remembered for one partition; beyond it the oldest go early."""
    dedup_producers_bytes: int = 32 << 20
    """Memory of one partition for what idempotent producers have stored."""
    dedup_requests_bytes: int = 24 << 20
    """Memory of one partition for the ids of requests without an identity."""
    dead_retention_ms: int = 14 * DAY_MS
    """How long dead letters stay, from their death, also beyond the retention; -1 for ever."""
    cleanup: str = "delete"
    """`delete`: by age and size; `compact`: all but the last value of each key goes; or both."""
    delete_retention_ms: int = DAY_MS
    """How long compaction keeps a null value, from the run that met it first."""
    min_compaction_lag_ms: int = 0
    """Messages younger than this, by log time, are not compacted."""
    min_cleanable_ratio: float = 0.5
    """Compaction begins when so much of what it would look at is not compacted yet."""
    require_archive: bool = False
    """Messages go by age, size or compaction only once they are archived."""
    labels: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def is_compacted(self) -> bool:
        return self.cleanup != "delete"

    @property
    def is_deleted(self) -> bool:
        """Whether messages go for their age, or for want of room."""
        return self.cleanup != "compact"


_FIXED = frozenset({"partitions", "replication_factor", "lanes"})
_QUEUE_SETTINGS = (
    "lanes",
    "retention_ms",
    "ttl_ms",
    "delay_ms_max",
    "delayed_max",
    "dedup_window_ms",
    "dedup_max",
    "dead_retention_ms",
    "dedup_producers_bytes",
    "dedup_requests_bytes",
)
_BOUNDS = {
    "partitions": (1, PARTITIONS_MAX),
    "replication_factor": (1, REPLICAS_MAX),
    "retention_ms": (UNLIMITED, TIME_MS_MAX),
    "retention_bytes": (UNLIMITED, 1 << 60),
    "flush_interval_ms": (1, 60_000),
    "max_message_bytes": (1, MESSAGE_BYTES_MAX),
    "ttl_ms": (0, TIME_MS_MAX),
    "delay_ms_max": (0, DELAY_MS_MAX),
    "delayed_max": (0, 10_000_000),
    "dedup_window_ms": (0, 7 * DAY_MS),
    "dedup_max": (0, 10_000_000),
    "dedup_producers_bytes": (1 << 20, 1 << 30),
    "dedup_requests_bytes": (1 << 20, 1 << 30),
    "dead_retention_ms": (UNLIMITED, TIME_MS_MAX),
    "delete_retention_ms": (0, TIME_MS_MAX),
    "min_compaction_lag_ms": (0, TIME_MS_MAX),
}
_NEVER_ZERO = frozenset({"retention_ms", "retention_bytes", "dead_retention_ms"})


def create_config(settings: Mapping[str, object], broker_count: int) -> TopicConfig:
    """The settings of a new topic. Raises BadConfig with every problem, not just the first."""
    factor = max(1, min(REPLICAS_DEFAULT, broker_count))
    given = {name: value for name, value in settings.items() if value is not None}
    return _build(TopicConfig(replication_factor=factor), given)


def alter_config(config: TopicConfig, changes: Mapping[str, object]) -> TopicConfig:
    """The settings after a change. Raises BadConfig with every problem.

    What can't be changed may be named with the value it has.
    """
    fixed = [
        f"{name}: can't be changed, it is {getattr(config, name)}"
        for name in sorted(changes)
        if name in _FIXED and changes[name] != getattr(config, name)
    ]
    return _build(config, changes, fixed)


def config_warnings(config: TopicConfig) -> list[str]:
    """What whoever chose these settings should know; empty for safe ones."""
    found = []
    if config.replication_factor == 1:
        found.append("replication factor 1: a lost disk loses the topic's messages")
    elif config.replication_factor == 2:
        found.append(
            "replication factor 2: the death of either node stops publishing, as neither is a"
            " majority; 3 survives one death"
        )
    if config.durability == "relaxed":
        found.append(
            f"relaxed durability: a power loss may lose what was acked in the last"
            f" {config.flush_interval_ms} ms"
        )
    return found


def queue_config(config: TopicConfig) -> dict[str, int]:
    """What a partition's queue obeys: the fields of `delivery.config.QueueConfig`."""
    return {name: getattr(config, name) for name in _QUEUE_SETTINGS}


def _build(
    base: TopicConfig, changes: Mapping[str, object], found: list[str] | None = None
) -> TopicConfig:
    problems = found or []
    for name in sorted(changes):
        check = _FIELDS.get(name)
        problem = "unknown setting" if check is None else check(name, changes[name])
        if problem is not None:
            problems.append(f"{name[:80]}: {problem}")
    if problems:
        raise BadConfig(problems)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def _check_number(name: str, value: object) -> str | None:
    low, high = _BOUNDS[name]
    if not isinstance(value, int) or isinstance(value, bool):
        return f"not a whole number: {str(value)[:40]!r}"
    if not low <= value <= high or (value == 0 and name in _NEVER_ZERO):
        span = f"-1 or 1 to {high}" if name in _NEVER_ZERO else f"{low} to {high}"
        return f"{value} is out of range, which is {span}"
    return None


def _check_lanes(_name: str, value: object) -> str | None:
    return (
        None if type(value) is int and value in LANES else f"{str(value)[:40]} is neither 3 nor 5"
    )


def _check_durability(_name: str, value: object) -> str | None:
    return None if value in DURABILITIES else f"{str(value)[:40]!r} is neither majority nor relaxed"


def _check_cleanup(_name: str, value: object) -> str | None:
    return None if value in CLEANUPS else f"{str(value)[:40]!r} is none of {' | '.join(CLEANUPS)}"


def _check_ratio(_name: str, value: object) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if is_number and 0 <= value <= 1 else f"{str(value)[:40]!r} is not from 0 to 1"  # type: ignore[operator]


def _check_flag(_name: str, value: object) -> str | None:
    return None if isinstance(value, bool) else f"{str(value)[:40]!r} is neither true nor false"


def _check_labels(_name: str, value: object) -> str | None:
    if not isinstance(value, dict) or len(value) > LABELS_MAX:
        return f"not a mapping of at most {LABELS_MAX} labels"
    for text in (*value.keys(), *value.values()):
        if not isinstance(text, str) or len(text) > LABEL_CHARACTERS_MAX:
            return f"labels and their values are texts of at most {LABEL_CHARACTERS_MAX} characters"
    return None if "" not in value else "a label without a name"


_FIELDS: dict[str, Callable[[str, object], str | None]] = {
    **dict.fromkeys(_BOUNDS, _check_number),
    "lanes": _check_lanes,
    "durability": _check_durability,
    "cleanup": _check_cleanup,
    "min_cleanable_ratio": _check_ratio,
    "require_archive": _check_flag,
    "labels": _check_labels,
}
