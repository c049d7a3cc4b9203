"""What a node's configuration says of topics whose creator doesn't."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.topics.settings import HOUR_MS
from goqueue.wire.errors import Unavailable
from node.cluster.host import ClusterHost
from node.config.node import NodeConfig


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


async def wanted_settings(
    config: NodeConfig, cluster: ClusterHost, given: Mapping[str, object]
) -> dict[str, object]:
    """What was given, and the defaults for the rest. A topic has fewer replicas than the default
    only where there are fewer brokers: this node may not have applied yet that others registered,
    though they say that they are ready. Raises `Unavailable` where nobody can say, and
    why this node was cast out, if it was."""
    layout = cluster.state.layout
    if (
        "replication_factor" not in given
        and layout.takers < config.topic_defaults.replication_factor
    ):
        if not await cluster.refresh():
            cluster.check_outcast()
            problem = cluster.not_ready() or "the cluster group's leader does not answer"
            raise Unavailable(f"it is not known here how many brokers take replicas: {problem}")
        layout = cluster.state.layout
    return {**topic_defaults(config, layout.takers), **given}
