"""What calls answer of topics, of their partitions, and of the cluster that has them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class ArchivedPartition(msgspec.Struct, frozen=True):
    """How far one partition is archived: all below `position` is in the archive. `lag` messages are
    not, of which the first was stored `lag_seconds` ago; `required`: none of them goes before."""

    partition: int
    position: int
    archive: str = ""
    reported_at: datetime | None = None
    required: bool = False
    lag: int = 0
    lag_seconds: float = 0.0


class Partition(msgspec.Struct, frozen=True):
    """One partition: where it lives and what it holds.

    `replicas` should hold it, `voters` and `learners` do, `isr` are the voters that are caught up.
    `earliest` is the first offset kept, `next` the one that the next message will get. `stale`: its
    leader did not confirm these figures in time, and there may be more.
    """

    partition: int
    leader: str | None = None
    replicas: list[str] = []
    isr: list[str] = []
    earliest: int = 0
    next: int = 0
    messages: int = 0
    size_bytes: int = 0
    voters: list[str] = []
    learners: list[str] = []
    archive: ArchivedPartition | None = None
    stale: bool = False


class Topic(msgspec.Struct, frozen=True):
    """A topic; `config` holds its configuration under the fields' own names. `stale`: nobody could
    say whether that is all, of its settings or of what its partitions hold."""

    name: str
    partitions: int
    id: str = ""
    replication_factor: int = 0
    total_messages: int = 0
    total_size_bytes: int = 0
    partition_details: list[Partition] = []
    config: dict[str, Any] = {}
    warnings: list[str] = []
    archive: str | None = None
    """Where it is archived; None while nobody told of an archive."""
    stale: bool = False

    @property
    def is_compacted(self) -> bool:
        """Whether each key's last value is kept, and others go."""
        return "compact" in str(self.config.get("cleanup", ""))


class PartitionTrim(msgspec.Struct, frozen=True):
    """What went of one partition: so many messages, and bytes of files at its leader. `earliest` is
    the first offset kept; it is a message that the group `kept_for` has to do yet, if any."""

    partition: int
    messages: int = 0
    bytes: int = 0
    earliest: int = 0
    kept_for: str | None = None


class TopicTrim(msgspec.Struct, frozen=True):
    """What a trim let go of: messages, and bytes of files, of all partitions and of each."""

    topic: str
    messages: int = 0
    bytes: int = 0
    partitions: list[PartitionTrim] = []


class ClusterNode(msgspec.Struct, frozen=True):
    """A broker as the node that answered sees it: `alive`, `dead` or `wiped`."""

    id: str
    status: str
    role: str = "broker"
    http_url: str = ""
    peer_address: str = ""
    zone: str = ""
    version: str = ""
    leaders: int = 0
    replicas: int = 0


class Cluster(msgspec.Struct, frozen=True):
    """The cluster in short; `controller` leads the metadata."""

    cluster_id: str
    node_id: str
    controller: str | None = None
    has_quorum: bool = True
    nodes: int = 0
    nodes_alive: int = 0
    topics: int = 0
    partitions: int = 0
    under_replicated_partitions: int = 0
    leaderless_partitions: int = 0


class ClusterHealth(msgspec.Struct, frozen=True):
    """`healthy`, `degraded` (it serves, but one more death may stop it) or `unavailable`."""

    status: str
    has_quorum: bool = True
    nodes: dict[str, str] = {}
    under_replicated_partitions: int = 0
    leaderless_partitions: int = 0
    problems: list[str] = []
    warnings: list[str] = []
    """What should be changed about the node that answered; the cluster is well meanwhile."""
