"""The options that travel on as keywords: their names and types, what holds where one is not
given, and what is said of others."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from goqueue.models.times import Duration

Priority = Literal["critical", "high", "normal", "low", "background"]
Compression = Literal["none", "zstd", "lz4", "gzip"]
Durability = Literal["majority", "relaxed"]
Cleanup = Literal["delete", "compact", "compact,delete"]
GroupMode = Literal["exclusive", "shared"]
Assignor = Literal["sticky", "range", "roundrobin"]
Ordering = Literal["none", "key"]
Start = Literal["earliest", "latest"]
OnPoison = Literal["dead", "park"]
Missed = Literal["skip", "once", "all"]
Action = Literal["ack", "nack", "reject", "extend", "release"]
Position = Literal["front", "back"]


class ProducerOptions(TypedDict, total=False):
    """What `Producer` takes."""

    linger_ms: float
    batch_records_max: int
    batch_bytes_max: int
    request_bytes_max: int
    buffer_bytes_max: int
    compression: Compression
    compression_level: int
    idempotent: bool
    delivery_timeout_s: float
    create_topics: bool


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The options as one producer has them."""

    linger_ms: float = 5.0
    batch_records_max: int = 1000
    batch_bytes_max: int = 1024 * 1024
    request_bytes_max: int = 8 * 1024 * 1024
    buffer_bytes_max: int = 32 * 1024 * 1024
    compression: Compression = "none"
    compression_level: int = 1
    idempotent: bool = True
    delivery_timeout_s: float = 120.0
    create_topics: bool = False


class ConsumerOptions(TypedDict, total=False):
    """What `AsyncConsumer` takes, but for its callbacks."""

    patterns: str | Sequence[str]
    client_id: str
    instance_id: str | None
    mode: GroupMode | None
    assignor: Assignor | None
    session_timeout: Duration | None
    rebalance_timeout: Duration | None
    prefetch: int
    max_messages: int
    visibility: Duration | None
    work_max: Duration
    auto_ack: bool
    stream: bool


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The options as one consumer has them."""

    patterns: str | Sequence[str] = ()
    client_id: str = "consumer"
    instance_id: str | None = None
    mode: GroupMode | None = None
    assignor: Assignor | None = None
    session_timeout: Duration | None = None
    rebalance_timeout: Duration | None = None
    prefetch: int = 100
    max_messages: int = 100
    visibility: Duration | None = None
    work_max: Duration = 3600.0
    auto_ack: bool = False
    stream: bool = True


class GroupSettings(TypedDict, total=False):
    """What `put_group` takes, but for the name."""

    visibility_timeout: Duration | None
    max_attempts: int | None
    ordering: Ordering | None
    start: Start | None
    backoff: Duration | None
    backoff_max: Duration | None
    on_poison: OnPoison | None
    lane_max_wait: Duration | None
    lane_share: int | None
    halt_percent: int | None
    halt_window: int | None
    redrives_max: int | None
    in_flight_max: int | None
    dead_max: int | None
    mode: GroupMode | None
    assignor: Assignor | None
    session_timeout: Duration | None
    rebalance_timeout: Duration | None


class TopicSettings(TypedDict, total=False):
    """What `create_topic` and `alter_topic` take, but for the name."""

    partitions: int | None
    replication_factor: int | None
    retention_ms: int | None
    retention_bytes: int | None
    durability: Durability | None
    flush_interval_ms: int | None
    lanes: int | None
    max_message_bytes: int | None
    ttl: Duration | None
    delay_max: Duration | None
    delayed_max: int | None
    dedup_window: Duration | None
    dedup_max: int | None
    dedup_producers_bytes: int | None
    dedup_requests_bytes: int | None
    dead_retention: Duration | None
    cleanup: Cleanup | None
    delete_retention: Duration | None
    min_compaction_lag: Duration | None
    min_cleanable_ratio: float | None
    require_archive: bool | None
    compression: str | None
    labels: Mapping[str, str] | None


def check_options(what: str, given: Mapping[str, object], known: type) -> None:
    """Raises TypeError, as Python does for an argument that a function does not have, and names
    the nearest option that there is. `known` is a TypedDict."""
    names = known.__annotations__
    for name in given:
        if name not in names:
            raise TypeError(f"{what} has no option {name!r}{did_you_mean(name, names)}")


def did_you_mean(name: str, known: Collection[str]) -> str:
    """`: did you mean 'linger_ms'?`, or nothing where no name is near."""
    close = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {close[0]!r}?" if close else ""
