"""Looks at each replica of a node, again and again, at the cost of those that are awake.

A Raft group that rests (`raft.rest`) changes nothing, and is roused before anything changes. So a
look that has seen a resting replica need not see it again before it was roused. What is true of a
replica without its own doing, such as its place in the cluster's state, is known by a version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from goqueue.wire.types import PartitionId

SHARE = 120
"""Looks in which each resting replica has its turn all the same: what time alone changes, such as
files that a checkpoint has taken away, is seen then."""


class Sleeper(Protocol):
    """A replica that may rest."""

    @property
    def id(self) -> PartitionId: ...

    @property
    def rests(self) -> bool:
        """Whether nothing happens to it before it is roused."""
        ...


Host = TypeVar("Host", bound=Sleeper)


class Looks(Generic[Host]):
    """What one of those who look again and again has yet to look at. Loop thread only."""

    def __init__(self, replicas: Callable[[], Iterable[Host]], *, share: int | None = None) -> None:
        """Each resting replica has its turn once in `share` looks; None for never."""
        self._replicas = replicas
        self._share = share
        self._waiting: dict[PartitionId, Host] = {host.id: host for host in replicas()}
        self._version: object = None
        self._turn: dict[PartitionId, Host] = {}
        """Those that are still to have their turn in this round, the next one last."""
        self._turns = 0

    def take(self, version: object = None) -> list[Host]:
        """The replicas that were awake since the last call, or are; and all, where `version` is
        another one than then."""
        if version != self._version:
            self._version = version
            self._waiting = {host.id: host for host in self._replicas()}
        found = self._waiting
        self._waiting = {id: host for id, host in found.items() if not host.rests}
        return list({**self._next_turns(), **found}.values())

    def again(self, host: Host) -> None:
        """The next look is at this one, too: something is left to do, or it is awake again."""
        self._waiting[host.id] = host

    def forget(self, partition_id: PartitionId) -> None:
        """The replica is gone."""
        self._waiting.pop(partition_id, None)
        self._turn.pop(partition_id, None)

    # private

    def _next_turns(self) -> dict[PartitionId, Host]:
        if self._share is None:
            return {}
        if not self._turn:
            self._turn = {host.id: host for host in reversed(list(self._replicas()))}
            self._turns = -(-len(self._turn) // self._share)
        return dict(self._turn.popitem() for _ in range(min(self._turns, len(self._turn))))
