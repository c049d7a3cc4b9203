"""The cluster group's commands about who consumes what: members of groups, and their partitions.

All of them may be sent again because an outcome was lost: each names the member or the owner that
it is about, and changes nothing where that is no longer so.
"""

from __future__ import annotations

import msgspec

Partition = tuple[int, int]
"""(the index in its topic's id, its number)."""


class JoinGroup(
    msgspec.Struct, frozen=True, tag="join_group", omit_defaults=True, forbid_unknown_fields=True
):
    """A member joins, or changes what it subscribes to; `member` is chosen by who proposes this.

    With an `instance_id` that a member has, this one takes its place. Timeouts of 0 are the
    group's. A member that `lets_go` confirms itself that it works on a partition no longer.
    """

    group: str
    group_id: int
    member: str
    client_id: str = ""
    instance_id: str = ""
    host: str = ""
    topics: list[str] = []
    patterns: list[str] = []
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = 0
    lets_go: bool = False


class LeaveGroup(msgspec.Struct, frozen=True, tag="leave_group", forbid_unknown_fields=True):
    """A member has let go of everything, and goes."""

    group_id: int
    member: str


class ExpireMembers(msgspec.Struct, frozen=True, tag="expire_members", forbid_unknown_fields=True):
    """(member, for how many ms it was not heard of): these have died, or as good as that."""

    group_id: int
    members: list[tuple[str, int]]


class LetGo(
    msgspec.Struct, frozen=True, tag="let_go", omit_defaults=True, forbid_unknown_fields=True
):
    """A member works on these partitions no longer. With `fence` it never said so: its time to do
    it is over, and it is to be fenced there."""

    group_id: int
    member: str
    partitions: list[Partition]
    fence: bool = False


class Handed(msgspec.Struct, frozen=True, array_like=True):
    """A partition's log names its owner: the member, or nobody, since this generation. `ended`
    counts the messages that were in flight of somebody else."""

    partition: Partition
    member: str
    generation: int
    ended: int = 0


class HandOver(msgspec.Struct, frozen=True, tag="hand_over", forbid_unknown_fields=True):
    """These partitions have been handed over, each by an entry in its own log."""

    group_id: int
    handed: list[Handed]


class MemberResult(msgspec.Struct, frozen=True, tag="member"):
    """The member is in its group, or has left it, as of this generation."""

    member: str
    generation: int


MemberCommand = JoinGroup | LeaveGroup | ExpireMembers | LetGo | HandOver
