"""Raising a topic's number of partitions, and how many there may be in all.

The partitions that are there stay as they are, with all their messages; keys are spread over more
of them from then on, so a key's later messages may go to another partition than its earlier ones,
which stay where they were. Groups that exist begin with the first message of a
new partition, so nothing is missed between its creation and the day that they learn of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from coordinator.bounds import PARTITIONS_MAX
from coordinator.commands.placement import AddPartitions
from coordinator.errors import BadConfig, ClusterFull
from coordinator.placement.layout import Layout
from coordinator.topics.partitions import PartitionPlacement, Topic
from goqueue.wire.types import Index, NodeId, Voter

TOPICS_MAX = 10_000
PARTITIONS_TOTAL_MAX = 20_000
"""Over all topics: every one is a Raft group."""


def check_room(topics: Collection[Topic], partitions: int, *, is_new: bool) -> None:
    """Raises ClusterFull where so many more partitions, of a new topic or not, are too many."""
    total = sum(len(topic.partitions) for topic in topics) + partitions
    if len(topics) + is_new > TOPICS_MAX or total > PARTITIONS_TOTAL_MAX:
        raise ClusterFull(
            f"at most {TOPICS_MAX} topics and {PARTITIONS_TOTAL_MAX} partitions in all"
        )


def check_growth(topic: Topic, command: AddPartitions) -> None:
    """Raises BadConfig. The present number is fine: the command was done before."""
    now = len(topic.partitions)
    if command.count < now:
        raise BadConfig(
            [f"count: {command.count} is fewer than the {now} there are; none can be taken away"]
        )
    if not now <= command.count <= PARTITIONS_MAX:
        raise BadConfig(
            [f"count: {command.count} is out of range, which is {now} to {PARTITIONS_MAX}"]
        )
    if command.assignments and len(command.assignments) != command.count - now:
        raise BadConfig(
            [f"replica_assignments: {len(command.assignments)}, for {command.count - now} new ones"]
        )


def grow(layout: Layout, topic: Topic, index: Index, time_ms: int, command: AddPartitions) -> Topic:
    """The topic with its new partitions. Raises BadConfig, TooFewBrokers."""
    now, factor = len(topic.partitions), topic.config.replication_factor
    if command.count == now:
        return topic
    if command.assignments:
        placed = _assigned(layout, command, factor)
    else:
        placed = layout.place(command.count - now, factor, command.avoid)
    new = [PartitionPlacement(replicas, created=index, created_ms=time_ms) for replicas in placed]
    return dataclasses.replace(
        topic,
        config=dataclasses.replace(topic.config, partitions=command.count),
        partitions=(*topic.partitions, *new),
        raised=(*topic.raised, (now, time_ms)),
    )


def _assigned(layout: Layout, command: AddPartitions, factor: int) -> tuple[tuple[Voter, ...], ...]:
    brokers = layout.brokers.by_name
    for nodes in command.assignments:
        takers = {n for n in nodes if NodeId(n) in brokers and brokers[NodeId(n)].takes}
        if len(nodes) != factor or len(takers) != factor:
            raise BadConfig(
                [f"replica_assignments: {nodes[:8]} are not {factor} brokers that take replicas"]
            )
    return tuple(map(layout.voters, command.assignments))
