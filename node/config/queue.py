"""The options of the queue: what topics and groups get when their creators don't say."""

from __future__ import annotations

from dataclasses import dataclass

from node.config.option import duration_ms, flag, integer, option

DAY_MS = 24 * 3_600_000


def _lanes(raw: object) -> int:
    lanes = integer(raw)
    if lanes not in (3, 5):
        raise ValueError(f"must be 3 or 5, got {raw!r}")
    return lanes


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """Of new topics and groups only: those that are there keep what they have."""

    visibility_timeout_ms: int = option(
        30_000,
        key="defaults.delivery.visibilityTimeout",
        parse=duration_ms,
        unit="ms",
        low=0,
        high=12 * 3_600_000,
        why="how long a received message is hidden from others; GoQueue's default",
    )
    max_retries: int = option(
        3,
        key="defaults.delivery.maxRetries",
        parse=integer,
        low=0,
        high=1000,
        why="failed attempts after which a message is dead; 0 for never",
    )
    dlq_enabled: bool = option(
        True,
        key="defaults.delivery.dlqEnabled",
        parse=flag,
        why="false: no number of failures makes a message dead; only a reject does",
    )
    delay_enabled: bool = option(
        True,
        key="defaults.delay.enabled",
        parse=flag,
        why="false: topics take no delayed messages, as with maxDelay 0s",
    )
    max_delay_ms: int = option(
        7 * DAY_MS,
        key="defaults.delay.maxDelay",
        parse=duration_ms,
        unit="ms",
        low=0,
        high=366 * DAY_MS,
        why="168 h, GoQueue's default: a publish with a longer delay is 400",
    )
    lanes: int = option(
        5,
        key="defaults.priority.lanes",
        parse=_lanes,
        why="critical, high, normal, low, background; with 3 the outer two fold into the next",
    )

    def group_settings(self) -> dict[str, object]:
        """Of groups, by the names of `coordinator.groups.settings.GroupSettings`."""
        return {
            "visibility_ms": self.visibility_timeout_ms,
            "max_attempts": self.max_retries if self.dlq_enabled else 0,
        }

    def topic_settings(self) -> dict[str, object]:
        """Of topics, by the names of `coordinator.topics.settings.TopicConfig`."""
        return {
            "lanes": self.lanes,
            "delay_ms_max": self.max_delay_ms if self.delay_enabled else 0,
        }
