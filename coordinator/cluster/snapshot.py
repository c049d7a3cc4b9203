"""The layout of a snapshot of the cluster's state.

Version 5 came with feature level 2, and is written once that is finished: it is version 4 with one
more field, a record of whatever level 2 added. Below it version 4 is written, which 0.2.0 reads.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from coordinator.access.api_keys import ApiKey
from coordinator.access.receipt_keys import ReceiptKey
from coordinator.access.sessions import EndedSessions
from coordinator.brokers.registry import Broker
from coordinator.errors import SnapshotUnreadable
from coordinator.groups.membership import MembershipRecord
from coordinator.groups.settings import Group
from coordinator.jobs.redrives import Redrive
from coordinator.jobs.schedules import Schedule
from coordinator.placement.layout import LayoutRecord
from coordinator.topics.partitions import Topic
from coordinator.topics.producers import ProducerIdsRecord
from goqueue.wire.types import TopicId
from goqueue.wire.unreadable import UNREADABLE

SNAPSHOT_VERSION = 4
SNAPSHOTS_READ = (1, 2, 3, 4)
"""Version 1 knew no groups, schedules and redrive jobs, version 2 no moves of replicas, version 3
no API keys."""
LEVEL_2_SNAPSHOT_VERSION = 5


class Snapshot(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What level 1 knows."""

    version: int
    cluster_id: int
    applied_index: int
    brokers: list[Broker]
    topics: list[Topic]
    deleted: list[tuple[TopicId, str]]
    producers: ProducerIdsRecord
    groups: list[Group] = []
    schedules: list[Schedule] = []
    redrives: list[Redrive] = []
    memberships: list[MembershipRecord] = []
    layout: LayoutRecord | None = None
    keys: list[ApiKey] = []
    time_ms: int = 0
    """0 in snapshots of 0.1.0."""


class Level2(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What level 2 added to the state. Each field has a default that means what its absence meant
    at level 1."""

    LEVEL: ClassVar[int] = 2

    group_owners: list[tuple[int, str]] = []
    """By a group's id, as `Groups.owners`."""
    group_prefixes: list[tuple[str, list[str]]] = []
    """By an API key's id, as `ApiKeys.group_prefixes`."""
    receipt_keys: list[ReceiptKey] = []
    ended_sessions: list[EndedSessions] = []
    topic_compression: list[tuple[TopicId, str]] = []
    """By a topic's id, where it is not `none`."""


class _Level2Snapshot(Snapshot, array_like=True, frozen=True, forbid_unknown_fields=True):
    level_2: Level2 = Level2()


def encode_snapshot(snapshot: Snapshot, level_2: Level2 | None) -> bytes:
    """Bytes of version 5 with `level_2`, of version 4 without; the same for the same state."""
    whole = snapshot
    if level_2 is not None:
        fields = msgspec.structs.asdict(snapshot)
        fields.update(version=LEVEL_2_SNAPSHOT_VERSION, level_2=level_2)
        whole = _Level2Snapshot(**fields)
    return msgspec.msgpack.encode(whole, order="deterministic")


def read_snapshot(state: bytes) -> tuple[Snapshot, Level2]:
    """What was encoded; an empty `Level2` below version 5. Raises SnapshotUnreadable."""
    try:
        version = msgspec.msgpack.decode(msgspec.msgpack.decode(state, type=list[msgspec.Raw])[0])
        if version == LEVEL_2_SNAPSHOT_VERSION:
            found = msgspec.msgpack.decode(state, type=_Level2Snapshot)
            return found, found.level_2
        if version not in SNAPSHOTS_READ:
            told = "the cluster's state is of another version: run the one that wrote it"
            raise SnapshotUnreadable(told)
        return msgspec.msgpack.decode(state, type=Snapshot), Level2()
    except (*UNREADABLE, IndexError) as error:
        raise SnapshotUnreadable(f"not a cluster snapshot: {error}") from error
