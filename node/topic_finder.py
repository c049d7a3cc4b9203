"""Topics by name, also those that another node has just created."""

from __future__ import annotations

from coordinator.state import Topic
from goqueue.wire.errors import Unavailable
from goqueue.wire.ids import INTERNAL_PREFIX
from node.cluster import ClusterHost


class TopicFinder:
    """Looks in the applied cluster state, and catches up where it knows none of the name."""

    def __init__(self, cluster: ClusterHost) -> None:
        self._cluster = cluster

    async def find(self, name: str) -> Topic:
        """Raises `UnknownTopic`, or `Unavailable` where nobody can say: a cluster that this node
        doesn't reach may well have the topic. Raises why this node was cast out, if it was."""
        self._cluster.check_outcast()
        found = self._cluster.state.topics.get(name)
        if found is not None:
            return found
        is_current = await self._cluster.refresh()
        if not is_current and name not in self._cluster.state.topics:
            problem = self._cluster.not_ready() or "the cluster group's leader does not answer"
            raise Unavailable(f"topic {name} is not known here: {problem}", topic=name)
        return self._cluster.topic(name)

    def all(self) -> list[Topic]:
        """As far as this node knows, without those that the cluster keeps for itself."""
        topics = self._cluster.state.topics.values()
        return [topic for topic in topics if not topic.name.startswith(INTERNAL_PREFIX)]
