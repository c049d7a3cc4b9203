"""What calls answer: small immutable structs, with times in Unix milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from goqueue.options import Priority
from goqueue.times import Duration, Time
from goqueue.wire.layout import LANE_NORMAL, LANES
from goqueue.wire.records import Headers


class Message(msgspec.Struct, frozen=True, gc=False):
    """One stored message.

    `timestamp_ms` is the log's time, which never goes back within a partition; `published_ms` is
    what the producer's clock said, 0 if it did not say. Groups receive a message from
    `deliver_at_ms` on, and no longer once `expires_at_ms` has passed.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    lane: int = LANE_NORMAL
    published_ms: int = 0
    message_id: str | None = None
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    is_null: bool = False
    """The value is null, and empty here: in a compacted topic, it deletes the key."""

    @property
    def id(self) -> str:
        """`topic:partition:offset`, which finds this message for as long as it is kept."""
        return f"{self.topic}:{self.partition}:{self.offset}"

    @property
    def text(self) -> str:
        """The value as UTF-8. Raises UnicodeDecodeError where it is not."""
        return self.value.decode()

    @property
    def key_text(self) -> str | None:
        """The key as UTF-8, or None. Raises UnicodeDecodeError where it is not."""
        return None if self.key is None else self.key.decode()

    @property
    def time(self) -> datetime:
        """`timestamp_ms` as a datetime in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def priority(self) -> str:
        """The lane's name, `critical` to `background`."""
        return LANES[self.lane]

    def json(self) -> Any:
        """The value decoded as JSON. Raises msgspec.DecodeError where it is not."""
        return msgspec.json.decode(self.value)


class Page(msgspec.Struct, frozen=True):
    """Messages of one partition in offset order; iterate over it, or over `messages`.

    Reading goes on at `next_offset`. `log_start` is the first offset still kept and `end_offset`
    the one after the last, both as of this answer; `topic_id` is that of the topic that was read.

    The end is known where `next_offset` has reached it, or it was asked for (`current`), unless
    the page is `stale`: then no leader has confirmed it, and messages that were acknowledged may
    be missing behind `next_offset`. Ask again. Before that there is more, and `end_offset` is only
    how far the replica that answered has come.
    """

    topic: str
    partition: int
    messages: list[Message]
    next_offset: int
    log_start: int
    end_offset: int
    topic_id: str = ""
    stale: bool = False

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Published(msgspec.Struct, frozen=True, gc=False):
    """Where a message stands, and how durable it is there.

    `duplicate`: it had been stored before, here, by an earlier attempt or under the same message
    id. `deliver_at_ms`: groups receive it from then on; None for at once, and
    for a duplicate, whose first one's time counts. `durability` is what it had when it was
    acknowledged: `majority` (fsynced by a majority) or `relaxed` (written by a majority); empty
    where the server does not say.
    """

    topic: str
    partition: int
    offset: int
    duplicate: bool = False
    deliver_at_ms: int | None = None
    durability: str = ""

    @property
    def id(self) -> str:
        """`topic:partition:offset`"""
        return f"{self.topic}:{self.partition}:{self.offset}"


class OutgoingMessage(msgspec.Struct, frozen=True):
    """One message for `publish_many`. Text is stored as UTF-8; None is a null value, which deletes
    the key in a compacted topic.

    Without a `partition`, a key decides it; without a key, the message id; else messages go round.
    `priority` is a lane's name or number. Groups receive the message after `delay`, or from
    `deliver_at` on, and no longer once `ttl` has passed since it was stored.
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: dict[str, bytes | str] | None = None
    priority: Priority | int = LANE_NORMAL
    partition: int | None = None
    message_id: str | None = None
    delay: Duration | None = None
    deliver_at: Time | None = None
    ttl: Duration | None = None


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


class ProducerIdentity(msgspec.Struct, frozen=True):
    """An identity given by the cluster: what makes a publish safe to repeat."""

    producer_id: int
    epoch: int
