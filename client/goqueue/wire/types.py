"""The words that every floor shares: offsets, indexes, terms, and the names of groups and voters.

Distinct types keep an offset (a position in a partition) from being passed for an index (a Raft
entry's number); at run time they are plain integers and strings.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NewType

Offset = NewType("Offset", int)
"""A message's dense position in its partition, from 0."""
Index = NewType("Index", int)
"""A Raft entry's number in its group, from 1."""
Term = NewType("Term", int)
Lsn = NewType("Lsn", int)
"""A byte position in a node's write-ahead log."""
NodeId = NewType("NodeId", str)
"""A broker's configured name."""
LEADER_HEADER = "X-GoQueue-Leader"
"""In an answer about one partition, the node that leads it, where that is not the one that answers:
who asks may go there directly."""
Incarnation = NewType("Incarnation", int)
"""The random 64-bit number of a data directory: a wiped disk gets another one."""

PARTITION_ID_BYTES = 20
_PARTITION_ID = struct.Struct("<QQI")


@dataclass(frozen=True, slots=True, order=True)
class TopicId:
    """A topic's identity, never used twice: deleting and recreating a name gives another id.

    `cluster` is the cluster's random 64-bit id, `index` the cluster group's index at creation.
    """

    cluster: int
    index: int

    def __str__(self) -> str:
        return f"{self.cluster:016x}-{self.index:x}"

    @classmethod
    def parse(cls, text: str) -> TopicId:
        """The id that `str()` wrote. Raises ValueError on anything else."""
        cluster, separator, index = text.partition("-")
        topic = cls(int(cluster, 16), int(index, 16)) if separator else None
        if topic is None or str(topic) != text:
            raise ValueError(f"not a topic id: {text!r}")
        return topic


@dataclass(frozen=True, slots=True, order=True)
class PartitionId:
    """A Raft group: one partition of one topic, or the cluster group."""

    topic: TopicId
    partition: int

    def __hash__(self) -> int:
        """In one step: it is a key of most that a node holds."""
        topic = self.topic
        return hash((topic.cluster, topic.index, self.partition))

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> PartitionId:
        """The id that `str()` wrote, such as a directory's name. Raises ValueError."""
        topic, separator, partition = text.rpartition("-")
        partition_id = cls(TopicId.parse(topic), int(partition)) if separator else None
        if partition_id is None or str(partition_id) != text:
            raise ValueError(f"not a group id: {text!r}")
        return partition_id

    def pack(self) -> bytes:
        """The fixed form on the wire and on disk, `PARTITION_ID_BYTES` long."""
        return _PARTITION_ID.pack(self.topic.cluster, self.topic.index, self.partition)

    @classmethod
    def unpack(cls, buffer: bytes | bytearray | memoryview, at: int = 0) -> PartitionId:
        """The id whose `pack()` starts at `at`. Raises struct.error on a short buffer."""
        cluster, index, partition = _PARTITION_ID.unpack_from(buffer, at)
        return cls(TopicId(cluster, index), partition)


CLUSTER_GROUP = PartitionId(TopicId(0, 0), 0)
"""The metadata group: brokers, topics, placement."""


@dataclass(frozen=True, slots=True, order=True)
class Voter:
    """A Raft voter is a broker together with its data directory's incarnation."""

    node: NodeId
    incarnation: Incarnation
