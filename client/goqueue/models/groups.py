"""What calls about groups answer: who is in one, how far it has come, what its rebalances moved."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


class GroupPartition(msgspec.Struct, frozen=True):
    """A group in one partition.

    All below `committed_offset` is settled, and `end_offset` is where the partition ends. `ready`
    messages may be received now, `in_flight` are leased, `waiting` for their next attempt, and
    `lag` is all three; `dead` are given up; the rest counts what has happened. `halted` says why
    the group is, empty if it is not. `lane_pending` and `lane_wait_ms` say of each lane, critical
    first, how many are ready, and how long the first of them has been. `stale`: the partition's
    leader did not tell in time, and these are figures of another replica.
    """

    topic: str
    partition: int
    committed_offset: int = 0
    end_offset: int = 0
    lag: int = 0
    ready: int = 0
    in_flight: int = 0
    waiting: int = 0
    dead: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    rejected: int = 0
    expired: int = 0
    fallen: int = 0
    halted: str = ""
    lane_pending: list[int] = []
    lane_wait_ms: list[int] = []
    lane_wait_ms_max: list[int] = []
    stale: bool = False


class GroupMember(msgspec.Struct, frozen=True):
    """A consumer in a group. It has the partitions of `assignment`, and is to let go of those in
    `revoking`; `last_heartbeat` is None where that is not known."""

    id: str
    client_id: str = ""
    instance_id: str | None = None
    host: str = ""
    topics: list[str] = []
    joined_at: datetime | None = None
    last_heartbeat: datetime | None = None
    session_timeout_ms: int = 0
    assignment: list[TopicPartition] = []
    revoking: list[TopicPartition] = []


class Group(msgspec.Struct, frozen=True):
    """A group; `settings` has its configuration under the names that `put_group` takes.

    `state` is empty, stable or rebalancing; `generation` counts rebalances. A list of groups has
    neither `members`, only how many (`member_count`), nor `partitions`. `owner` is the prefix that
    it belongs to, `*` for API keys of all groups, None for nobody.
    """

    name: str
    settings: dict[str, Any] = {}
    topics: list[str] = []
    created_at: datetime | None = None
    partitions: list[GroupPartition] = []
    state: str = "empty"
    generation: int = 0
    mode: str = "exclusive"
    assignor: str = "sticky"
    leader_id: str = ""
    members: list[GroupMember] = []
    member_count: int = 0
    owner: str | None = None


class ParkedKey(msgspec.Struct, frozen=True):
    """A key whose messages are withheld, and how many wait."""

    topic: str
    partition: int
    key: bytes
    waiting: int = 0


class MemberAnswer(msgspec.Struct, frozen=True):
    """What a member is told by a join or a heartbeat.

    It has what is in `assignment`, and is to let go of what is in `revoking`. `revision` differs
    whenever anything else does: a heartbeat that names it waits for something new.
    """

    generation: int
    revision: str = ""
    member_id: str = ""
    assignment: list[TopicPartition] = []
    revoking: list[TopicPartition] = []
    state: str = ""
    mode: str = "exclusive"
    leader_id: str = ""
    members: list[str] = []
    session_timeout_ms: int = 30_000
    heartbeat_interval_ms: int = 0


class GroupMembers(msgspec.Struct, frozen=True):
    """Who is in a group, as of a generation."""

    group: str
    generation: int = 0
    state: str = "empty"
    members: list[GroupMember] = []


class Move(msgspec.Struct, frozen=True, rename={"former": "from", "member": "to"}):
    """A partition that changed hands; "" is nobody.

    Nobody could receive from it for `pause_ms`; `in_flight` messages were with its former owner,
    whose attempts failed if it was `fenced`, and do not count otherwise.
    """

    topic: str
    partition: int
    former: str | None = None
    member: str | None = None
    pause_ms: int = 0
    in_flight: int = 0
    fenced: bool = False


class Rebalance(msgspec.Struct, frozen=True):
    """One rebalance: why, which `members` caused it, and what it `moved`. It runs until `ended_at`
    is there."""

    id: int
    cause: str
    generation: int = 0
    members: list[str] = []
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: int | None = None
    state: str = "done"
    moved: int = 0
    moves: list[Move] = []


class RebalanceTotals(msgspec.Struct, frozen=True):
    """Counted since the group was created."""

    total: int = 0
    by_cause: dict[str, int] = {}
    moved: int = 0
    fenced: int = 0
    pause_ms_max: float = 0
    pause_ms_avg: float = 0


class Rebalances(msgspec.Struct, frozen=True):
    """The last rebalances of a group, newest first."""

    group: str
    rebalances: list[Rebalance] = []
    totals: RebalanceTotals = RebalanceTotals()


class PartitionLag(msgspec.Struct, frozen=True):
    """How far a group is behind in one partition.

    `lag` counts messages that are stored, due and not settled; the oldest of them could have been
    delivered for `lag_seconds`. `owner` is the member that has the partition, "" for nobody.
    """

    topic: str
    partition: int
    committed_offset: int = 0
    end_offset: int = 0
    lag: int = 0
    lag_seconds: float = 0.0
    in_flight: int = 0
    delayed: int = 0
    dead: int = 0
    owner: str | None = None
    generation: int = 0


class GroupLag(msgspec.Struct, frozen=True):
    """How far a group is behind."""

    group: str
    total_lag: int = 0
    max_lag_seconds: float = 0.0
    partitions: list[PartitionLag] = []


class OffsetReset(msgspec.Struct, frozen=True):
    """One partition's committed offset before and after a reset; `replayed` messages come again,
    `skipped` ones do not come any more."""

    topic: str
    partition: int
    before: int
    after: int
    replayed: int = 0
    skipped: int = 0
