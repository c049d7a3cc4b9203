"""Changing who belongs to a group, one replica at a time (Raft dissertation, chapter 4).

A replica is added as learner, promoted once it has caught up, and removed. The next change waits
for the one before to commit, and for the leader's own no-op. Whatever interrupts a change leaves
the group with the old configuration or the new one, as any entry is lost or survives.
"""

from __future__ import annotations

import logging

from goqueue.wire.types import Index, NodeId
from log.entry import EntryKind
from raft.apply import Proposed
from raft.configuration import Change, Promote, encode_configuration, with_index
from raft.election import Elections
from raft.errors import ChangeUnderWay, NotCaughtUp, NotLeader
from raft.syncobj import LEADER

logger = logging.getLogger("raft")


class Changes(Elections):
    """The leader's side of a change; what follows from one is `Configured`'s."""

    def change(self, change: Change, callback: Proposed, *, epoch: int = 0) -> Index:
        """Appends the configuration that this makes; it is in force at once. Its entry's index.
        Its epoch is this one, or that of the configuration before, whichever is later.

        The callback tells, exactly once, how it ended, as `propose`'s does. Raises NotLeader,
        ChangeUnderWay, NotCaughtUp, ChangeRefused; nothing was appended then. A leader that removes
        itself leads until that has committed, and then hands over.
        """
        if not self.is_ready_leader:
            raise NotLeader(None if self.is_leader else self.leader)
        if not self._may_change():
            raise ChangeUnderWay
        after = self.configuration.after(change, epoch)
        if isinstance(change, Promote) and not self.caught_up(change.node):
            raise NotCaughtUp(f"{change.node} has not caught up")
        index = self.propose(EntryKind.VOTERS, encode_configuration(after), callback=callback)
        self._configure(with_index(after, index))
        logger.info("group %s: %s changes its replicas in entry %d", self.id, change, index)
        return index

    def _may_change(self) -> bool:
        return self.configuration_committed

    def _leave_when_removed(self) -> None:
        """A leader whose own removal has committed lets the one furthest ahead lead."""
        leads = self._SyncObj__raftState == LEADER
        if not leads or self._self_peer.voter or not self.configuration_committed:
            return
        if self._transfer is None:
            self.transfer_leadership(callback=self._left)

    def on_tick(self, now: float) -> None:
        super().on_tick(now)
        self._leave_when_removed()

    def _left(self, _moved: bool) -> None:
        if self._SyncObj__raftState == LEADER:
            self._step_down()

    def add_learner(self, node: NodeId) -> None:
        """From now on this node receives entries, too, in no configuration. Idempotent."""
        if node not in self._readers and node != self.node:
            self._readers.add(node)
            self._seat_peers()
            if self.is_leader:
                self._host.wake()

    def remove_learner(self, node: NodeId) -> None:
        """Takes back `add_learner`; members of the configuration stay. Idempotent."""
        if node in self._readers:
            self._readers.discard(node)
            self._seat_peers()
