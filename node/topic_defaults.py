"""What a node's configuration says of topics whose creator doesn't."""

from __future__ import annotations

from coordinator.topics import HOUR_MS
from node.config import NodeConfig


def topic_defaults(config: NodeConfig, takers: int) -> dict[str, object]:
    """Settings by name, where so many brokers take replicas."""
    defaults = config.topic_defaults
    hours = defaults.retention_hours
    return {
        "partitions": defaults.partitions,
        "replication_factor": min(defaults.replication_factor, max(1, takers)),
        "retention_ms": -1 if hours < 0 else hours * HOUR_MS,
        "retention_bytes": defaults.retention_bytes,
        "durability": defaults.durability,
        "flush_interval_ms": defaults.flush_interval_ms,
        "max_message_bytes": defaults.max_message_bytes,
        **config.queue_defaults.topic_settings(),
    }
