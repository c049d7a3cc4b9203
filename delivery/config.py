"""The settings that a partition's queue obeys: they travel in its log, so all replicas agree."""

from __future__ import annotations

import msgspec

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
VISIBILITY_MS_MAX = 12 * HOUR_MS
LANES_COUNT = 5
HALT_WINDOW_MAX = 1000
FAR_MS = 1 << 42
"""Longer than any duration that means anything: with it, times stay far from overflowing."""


class QueueConfig(msgspec.Struct, array_like=True, frozen=True):
    """Of a partition, from its topic's settings."""

    lanes: int = LANES_COUNT
    """5, or 3: critical counts as high, background as low."""
    retention_ms: int = 168 * HOUR_MS
    """How long a delayed message is still there once it is due; -1 for ever."""
    ttl_ms: int = 0
    """Expiry of messages that state none, from their log time; 0 for never."""
    delay_ms_max: int = 168 * HOUR_MS
    delayed_max: int = 100_000
    """Messages of one partition that are delayed and not due."""
    dedup_window_ms: int = 300_000
    dedup_max: int = 1_000_000
    """Message ids remembered for one partition; beyond it the oldest go early."""
    dead_retention_ms: int = 14 * DAY_MS
    """Dead letters outlive the topic's retention up to this, from their death; -1 for ever."""
    dedup_producers_bytes: int = 32 << 20
    """Of one partition's memory for what idempotent producers have stored; beyond it the one that
    was silent longest is forgotten early."""
    dedup_requests_bytes: int = 24 << 20
    """... and for the ids of requests without an identity; beyond it the oldest go early."""


class GroupConfig(msgspec.Struct, array_like=True, frozen=True):
    """Of a group, from the cluster group."""

    visibility_ms: int = 30_000
    """0 to 12 hours; a receive may ask for another one."""
    max_attempts: int = 3
    """Failed attempts after which a message is dead; 0 for never."""
    ordering: str = "none"
    """`key`: a key's next message waits until its previous one is settled."""
    start: str = "earliest"
    """Where a group begins in a partition it has not seen: `earliest` or `latest`."""
    lane_max_wait_ms: int = 30_000
    """A ready message that has waited longer is served ahead of higher lanes, within a share."""
    lane_share: int = 5
    """One in so many deliveries may go to a message that has waited too long."""
    backoff_ms: int = 0
    """Wait before the first retry, doubled with each attempt; 0 for none."""
    backoff_ms_max: int = 60_000
    on_poison: str = "dead"
    """What becomes of a message that has failed too often: `dead`, or `park`: its key is parked."""
    halt_percent: int = 0
    """The group halts when more of the last `halt_window` final outcomes were deaths; 0: never."""
    halt_window: int = 100
    redrives_max: int = 5
    """A message that died again after so many redrives is redriven only by force."""
    in_flight_max: int = 10_000
    """Leases of the group in one partition."""
    dead_max: int = 100_000
    """Dead letters of the group in one partition; at the bound it halts."""


def bounded(number: int, least: int, most: int) -> int:
    """The number, or the bound that it is beyond."""
    return min(max(number, least), most)


def sound_queue(config: QueueConfig) -> QueueConfig:
    """The settings, each within what a replica can obey: an entry never fails on one."""
    return msgspec.structs.replace(
        config,
        retention_ms=bounded(config.retention_ms, -1, FAR_MS),
        ttl_ms=bounded(config.ttl_ms, 0, FAR_MS),
        dead_retention_ms=bounded(config.dead_retention_ms, -1, FAR_MS),
    )


def sound_group(config: GroupConfig) -> GroupConfig:
    """The same of a group."""
    return msgspec.structs.replace(
        config,
        visibility_ms=bounded(config.visibility_ms, 0, VISIBILITY_MS_MAX),
        lane_max_wait_ms=bounded(config.lane_max_wait_ms, 0, FAR_MS),
        lane_share=max(config.lane_share, 1),
        backoff_ms=bounded(config.backoff_ms, 0, FAR_MS),
        backoff_ms_max=bounded(config.backoff_ms_max, 0, FAR_MS),
        halt_window=bounded(config.halt_window, 1, HALT_WINDOW_MAX),
    )
