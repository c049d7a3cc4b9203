"""What a Raft group asks of the world: time, network, journal, state machine, its host.

Everything that could differ between two runs comes in through these, so a cluster can run on
virtual time from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from goqueue.wire.types import Incarnation, Index, Lsn, NodeId, PartitionId, Term, Voter
from log.entry import Entry
from log.partition.journal import HardState
from raft.config import RaftConfig


class Handle(Protocol):
    """A timer that can still be called off."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """Monotonic time in seconds, and calls at a later turn; an asyncio loop behind three names."""

    def now(self) -> float: ...

    def call_soon(self, callback: Callable[..., object], *args: object) -> object: ...

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> Handle: ...


class Network(Protocol):
    """Frames to other nodes, in order per node, each whole or lost; never waits."""

    def send(self, node: NodeId, partition_id: PartitionId, parts: list[bytes]) -> bool:
        """Queues one frame given in parts; False where there is no link."""
        ...

    def backlog_bytes(self, node: NodeId) -> int:
        """Bytes queued to this node and not yet taken by the operating system."""
        ...


@dataclass(frozen=True)
class Environment:
    """What a node gives to all its Raft groups."""

    me: Voter
    """The node and its data directory, as configurations name it."""
    network: Network
    scheduler: Scheduler
    rng: random.Random
    clock_ms: Callable[[], int]
    """The node's wall clock."""
    config: RaftConfig = field(default_factory=RaftConfig)
    rests: Callable[[], bool] = lambda: False
    """Whether groups may rest: whether all nodes know the frames that this needs."""
    peers_clock_offset_ms: Callable[[], float | None] | None = None
    """What `raft.log_time.majority_offset_ms` says of the clocks heard."""


class StateMachine(Protocol):
    """What a group's entries mean. No-ops and configurations are Raft's own and never come here."""

    def apply(self, entry: Entry) -> object:
        """Applies a committed entry, deterministically; the result goes to its proposer.

        Must not fail on content: an exception stops this replica for good.
        """
        ...

    def snapshot(self) -> bytes | Callable[[], bytes]:
        """The state as of now; what takes long to encode may be left to a call on any thread."""
        ...

    def restore(self, index: Index, state: bytes) -> None: ...

    def on_leader(self, term: Term) -> None:
        """This node leads and has applied its own no-op: from now on `propose` is allowed."""
        ...

    def on_follower(self, leader: NodeId | None) -> None:
        """Leadership was lost, or the known leader changed: in-flight append state is void."""
        ...


class SnapshotWork(Protocol):
    """A state snapshot on its way to the disk."""

    def run(self) -> int:
        """Writes, syncs and renames, on any thread; the bytes written. Raises OSError."""
        ...


class Log(Protocol):
    """The group's journal, as `log.partition.log.PartitionLog` is one. Nothing here waits for a
    sync."""

    first_index: Index

    @property
    def last_index(self) -> Index: ...

    @property
    def last_term(self) -> Term: ...

    @property
    def hard_state(self) -> HardState: ...

    @property
    def hard_state_durable(self) -> bool: ...

    @property
    def durable_index(self) -> Index: ...

    @property
    def quarantined(self) -> bool: ...

    @property
    def suspect(self) -> bool: ...

    @property
    def relaxed(self) -> bool: ...

    def clear_suspect(self) -> None: ...

    def mark_suspect(self) -> None: ...

    def save_hard_state(self, term: Term, vote: str | None) -> Lsn: ...

    def append(self, entries: Sequence[Entry], *, relaxed: bool = False) -> Lsn: ...

    def truncate_from(self, index: Index) -> Lsn: ...

    def term_at(self, index: Index) -> Term | None: ...

    def entries(
        self, first: Index, *, max_bytes: int = ..., max_count: int = ...
    ) -> list[Entry]: ...

    def latest_snapshot(self) -> tuple[Index, bytes] | None: ...

    def save_snapshot(self, index: Index, state: bytes | Callable[[], bytes]) -> SnapshotWork: ...


class LogStore(Protocol):
    """The node's store of logs, as `log.store.directory.Store` is one."""

    on_durable: Callable[[Lsn], None]

    def has_log(self, partition_id: PartitionId) -> bool: ...

    def partition_log(self, partition_id: PartitionId) -> Log: ...

    def create_log(self, partition_id: PartitionId) -> Log: ...

    def remove_log(self, partition_id: PartitionId) -> None: ...


class RaftGroupHost(Protocol):
    """What a group asks of the host that carries it beside the node's other groups."""

    def wake(self) -> None:
        """Calls the group's `flush` at the end of this turn, once."""
        ...

    def await_durable(self) -> None:
        """Calls the group's `on_durable` after the next sync."""
        ...

    def set_deadline(self, at: float) -> None:
        """Calls `on_deadline` of the group's `election` not before this time, and soon after it."""
        ...

    def led(self, leads: bool) -> None:
        """The group began or ceased to lead: heartbeats are sent for it, or not."""
        ...

    def rest_with(self, node: NodeId) -> None:
        """This node's replica can be reached again, while the group is led here and rests."""
        ...

    def is_connected(self, node: NodeId, incarnation: Incarnation | None = None) -> bool:
        """Whether a link to this node is up; and not one to another data directory than this."""
        ...

    def heard_at(self, node: NodeId) -> float:
        """When this node told last that it leads what follows it here at rest."""
        ...

    def answered_at(self, node: NodeId) -> float:
        """When this node answered last for what follows there at rest."""
        ...

    def reserve(self, node: NodeId, size: int) -> bool:
        """Takes bytes of the peer's window; False where it is full: woken when some is free."""
        ...

    def release(self, node: NodeId, size: int) -> None: ...

    def configured(self) -> None:
        """Another configuration is in force, or the one in force is known to be committed."""
        ...

    def copies_to_learners(self) -> bool:
        """Whether learners that hold nothing get a copy of a replica first, made beside Raft."""
        ...

    def failed(self, error: Exception) -> None:
        """The replica has stopped itself because going on would not be safe."""
        ...

    def snapshot_due(self) -> None:
        """Enough was applied since the last state snapshot."""
        ...
