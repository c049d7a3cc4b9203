"""Topics by name, also those that another node has just created, or given more partitions."""

from __future__ import annotations

from coordinator.cluster.state import Topic
from goqueue.wire.errors import Unavailable
from goqueue.wire.ids import INTERNAL_PREFIX
from node.cluster.host import ClusterHost


class TopicFinder:
    """Looks in the applied cluster state, and catches up where it knows none of the name, or too
    few of its partitions."""

    def __init__(self, cluster: ClusterHost) -> None:
        self._cluster = cluster

    async def find(self, name: str, partitions: int = 0) -> Topic:
        """The topic, maybe with fewer partitions than these where it has no more for certain.

        Raises `UnknownTopic`, or `Unavailable` where nobody can say: a cluster that this node
        doesn't reach may well have the topic, or them. Raises why this node was cast out, if it
        was.
        """
        self._cluster.check_outcast()
        found = self._cluster.state.topics.get(name)
        if found is not None and len(found.partitions) >= partitions:
            return found
        is_current = await self._cluster.refresh()
        found = self._cluster.state.topics.get(name)
        if not is_current and (found is None or len(found.partitions) < partitions):
            problem = self._cluster.not_ready() or "the cluster group's leader does not answer"
            what = f"topic {name}" if found is None else f"partition {partitions - 1} of {name}"
            raise Unavailable(f"{what} is not known here: {problem}", topic=name)
        return self._cluster.topic(name)

    def all(self) -> list[Topic]:
        """As far as this node knows, without those that the cluster keeps for itself."""
        topics = self._cluster.state.topics.values()
        return [topic for topic in topics if not topic.name.startswith(INTERNAL_PREFIX)]
