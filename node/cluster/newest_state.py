"""Whether the cluster state here is as new as it has ever been on this node.

A restart replays what a snapshot lacks, damage cuts the log or brings an older copy of it. So a
topic may be there again whose deletion this node has seen, and removed its files for: to found a
partition of it anew would be to vote in it as if nothing had ever been acknowledged here.
"""

from __future__ import annotations

from log.partition.log import PartitionLog
from raft.group import RaftGroup


class NewestState:
    """Made when the cluster group is started, on what its log holds then. Loop thread only."""

    def __init__(self, raft_group: RaftGroup, log: PartitionLog) -> None:
        self._raft_group = raft_group
        self._log = log
        self._least = log.last_index
        self._doubted = log.suspect or log.quarantined

    @property
    def is_reached(self) -> bool:
        """Whether all has been applied that the log held when it was last known to be whole."""
        log = self._log
        if log.suspect or log.quarantined:
            self._doubted = True
            return False
        if self._doubted:
            self._doubted, self._least = False, log.last_index
        return self._raft_group.applied_index >= min(self._least, log.last_index)
