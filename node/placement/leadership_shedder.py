"""A node whose disk is short of room, full or slow lets others lead, as long as theirs are not.

It goes on as a follower, which nobody has to wait for. What it led is not written by a leader that
can't write: the target holds all that the majority holds, and campaigns by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from goqueue.wire.types import NodeId
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.storage.disks import Disks
from raft.group import RaftGroup

INTERVAL_S = 0.5
ROUND_MAX = 64
"""Each stops its partition's publishes for a moment."""

_log = get_logger("disks")


class LeadershipShedder:
    """A service. `led` names the groups led here that others may lead."""

    def __init__(self, me: NodeId, disks: Disks, led: Callable[[], list[RaftGroup]]) -> None:
        self._me = me
        self._disks = disks
        self._led = led
        self._looks = Periodic(
            "yielding", self._look, INTERVAL_S, _log, "leaderships_not_given_away"
        )
        self._told = False

    async def start(self) -> None:
        await self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()

    def round(self) -> int:
        """Look at the disks, and begin to hand over what others should lead; how many that are."""
        self._disks.look()
        if self._disks.should_lead(self._me):
            self._told = False
            return 0
        begun = 0
        for raft_group in self._led():
            target = self._target(raft_group)
            if target is not None:
                raft_group.transfer.start(target)
                begun += 1
            if begun == ROUND_MAX:
                break
        if begun and not self._told:
            self._told = True
            _log.warning("leaderships_given_away", groups=begun, problems=self._disks.problems)
        return begun

    # private

    async def _look(self) -> None:
        self.round()

    def _target(self, raft_group: RaftGroup) -> NodeId | None:
        """The voter with a good disk that is furthest ahead; none of those that lag behind what is
        committed, which would have to catch up first."""
        matches = raft_group.replication.matches()
        able = [
            node
            for node, peer in raft_group.peers.items()
            if peer.voter and peer.connected and self._disks.should_lead(node)
        ]
        target = max(able, key=lambda node: matches.get(node, 0), default=None)
        if target is None or matches.get(target, 0) < raft_group.commit_index:
            return None
        return target
