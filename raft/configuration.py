"""Who belongs to a group: voters and learners, and the steps from one configuration to the next.

The newest configuration in a replica's log is in force there, committed or not (Raft dissertation,
chapter 4). Each step changes at most one voter, so that majorities before and after it meet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from goqueue.wire.types import Incarnation, Index, NodeId, Voter
from log.entry import Entry, EntryKind, make_entry
from log.errors import EntryDamaged
from raft.errors import ChangeRefused
from raft.interfaces import Log

NO_INDEX = Index(0)
REPLICAS_MAX = 32
"""Voters and learners of one group."""

_MAGIC = b"GQ-RCS\r\n"
_SNAPSHOT_HEAD = struct.Struct("<8sQI")
SCAN_BYTES = 4 << 20


class _Body(msgspec.Struct, omit_defaults=True):
    """The body of a VOTERS entry after the first: MessagePack, a map of two sorted lists, and of
    the epoch where there is one."""

    voters: list[tuple[str, int]]
    learners: list[tuple[str, int]]
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class AddLearner:
    """A replica without a vote: it receives everything, and may be promoted once caught up."""

    replica: Voter


@dataclass(frozen=True, slots=True)
class Promote:
    """A learner that has caught up votes from now on."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Remove:
    """A voter or learner leaves; it may be dead, and it may be the leader itself."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class Confirm:
    """Everybody stays: the configuration only gets a new index, and an epoch."""


Change = AddLearner | Promote | Remove | Confirm


@dataclass(frozen=True, slots=True)
class Configuration:
    """`index` is its entry's; 0 for what a replica was told before it has any entry. `epoch` never
    falls: whoever decides changes counts by it, and knows what was decided too long ago."""

    voters: tuple[Voter, ...] = ()
    learners: tuple[Voter, ...] = ()
    index: Index = NO_INDEX
    epoch: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "voters", tuple(sorted(self.voters)))
        object.__setattr__(self, "learners", tuple(sorted(self.learners)))

    @property
    def members(self) -> tuple[Voter, ...]:
        """Voters and learners, by name."""
        return tuple(sorted((*self.voters, *self.learners)))

    def find(self, node: NodeId) -> Voter | None:
        """The replica of that node, voter or learner."""
        return next((member for member in self.members if member.node == node), None)

    def is_sound(self) -> bool:
        """Whether no node is named twice."""
        return len({member.node for member in self.members}) == len(self.members)

    def after(self, change: Change, epoch: int = 0) -> Configuration:
        """What it becomes by this change; its index is not known yet. Raises ChangeRefused."""
        return replace(self._changed(change), index=NO_INDEX, epoch=max(epoch, self.epoch))

    def _changed(self, change: Change) -> Configuration:
        match change:
            case Confirm():
                return self
            case AddLearner(replica):
                return self._with_learner(replica)
            case Promote(node):
                learner = next((one for one in self.learners if one.node == node), None)
                if learner is None:
                    raise ChangeRefused(f"{node} is no learner of this group")
                rest = tuple(one for one in self.learners if one.node != node)
                return Configuration((*self.voters, learner), rest)
            case Remove(node):
                return self._without(node)

    def _with_learner(self, replica: Voter) -> Configuration:
        known = self.find(replica.node)
        if known is not None:
            raise ChangeRefused(
                f"{replica.node} has a replica of this group"
                + ("" if known == replica else ", of another data directory: remove that first")
            )
        if len(self.members) >= REPLICAS_MAX:
            raise ChangeRefused(f"a group has at most {REPLICAS_MAX} replicas")
        return Configuration(self.voters, (*self.learners, replica))

    def _without(self, node: NodeId) -> Configuration:
        if self.find(node) is None:
            raise ChangeRefused(f"{node} has no replica of this group")
        voters = tuple(one for one in self.voters if one.node != node)
        if not voters:
            raise ChangeRefused(f"{node} is the last voter of this group")
        return Configuration(voters, tuple(one for one in self.learners if one.node != node))


def encode_voters(voters: Sequence[Voter]) -> bytes:
    """The body of a creating entry, MessagePack: a list of (node, incarnation), sorted."""
    return msgspec.msgpack.encode([(voter.node, voter.incarnation) for voter in sorted(voters)])


def decode_voters(body: bytes | memoryview) -> tuple[Voter, ...]:
    """The voters of a creating entry. Raises msgspec.DecodeError."""
    pairs = msgspec.msgpack.decode(body, type=list[tuple[str, int]])
    return tuple(Voter(NodeId(node), Incarnation(incarnation)) for node, incarnation in pairs)


def creating_entry(voters: Sequence[Voter], created_ms: int) -> Entry:
    """Entry 1 of a group, of term 0: every voter named in it writes the same bytes, once."""
    return make_entry(
        index=1, term=0, time_ms=created_ms, kind=EntryKind.VOTERS, body=encode_voters(voters)
    )


def encode_configuration(configuration: Configuration) -> bytes:
    """The body of a VOTERS entry: the same bytes on every node."""
    return msgspec.msgpack.encode(
        _Body(
            [(one.node, one.incarnation) for one in configuration.voters],
            [(one.node, one.incarnation) for one in configuration.learners],
            configuration.epoch,
        )
    )


def decode_configuration(body: bytes | memoryview, index: int) -> Configuration:
    """The configuration of a VOTERS entry; the creating entry is a list of voters only.

    Raises msgspec.DecodeError.
    """
    if not len(body) or body[0] & 0xF0 != 0x80:
        return Configuration(decode_voters(body), (), Index(index))
    found = msgspec.msgpack.decode(body, type=_Body)
    voters, learners = _replicas(found.voters), _replicas(found.learners)
    return Configuration(voters, learners, Index(index), found.epoch)


def read_configuration(entry: Entry) -> Configuration:
    """The configuration that this VOTERS entry puts in force. Raises msgspec.DecodeError."""
    return decode_configuration(entry.body, entry.index)


def pack_snapshot(
    configuration: Configuration, state: bytes | Callable[[], bytes]
) -> bytes | Callable[[], bytes]:
    """A snapshot's content: magic, the configuration's index u64 and length u32, it, the state."""
    body = encode_configuration(configuration)
    head = _SNAPSHOT_HEAD.pack(_MAGIC, configuration.index, len(body)) + body
    if isinstance(state, bytes):
        return head + state
    return lambda: head + state()


def unpack_snapshot(content: bytes) -> tuple[Configuration | None, bytes]:
    """Configuration and state; None where it was saved before snapshots carried one.

    Raises msgspec.DecodeError, struct.error.
    """
    if not content.startswith(_MAGIC):
        return None, content
    _magic, index, length = _SNAPSHOT_HEAD.unpack_from(content)
    at = _SNAPSHOT_HEAD.size
    return decode_configuration(content[at : at + length], index), content[at + length :]


def with_index(configuration: Configuration, index: int) -> Configuration:
    """The same, once its entry has an index."""
    return replace(configuration, index=Index(index))


def stored_configuration(log: Log) -> Configuration:
    """The newest configuration that the log or its snapshot holds, committed or not; an empty one
    where there is none. Damage ends the search. Raises msgspec.DecodeError, struct.error."""
    newest = Configuration()
    at = int(log.first_index)
    found = log.latest_snapshot()
    if found is not None:
        configuration, _state = unpack_snapshot(found[1])
        if configuration is not None:
            newest, at = configuration, max(at, found[0] + 1)
    try:
        while at <= log.last_index:
            entries = log.entries(Index(at), max_bytes=SCAN_BYTES)
            for entry in entries:
                if entry.kind == EntryKind.VOTERS:
                    newest = read_configuration(entry)
            at = entries[-1].index + 1
    except EntryDamaged:
        pass
    return newest


def _replicas(pairs: list[tuple[str, int]]) -> tuple[Voter, ...]:
    return tuple(Voter(NodeId(node), Incarnation(incarnation)) for node, incarnation in pairs)
