"""Handing leadership over, as before a planned stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from goqueue.wire.types import NodeId
from raft import frames
from raft.peer import Peer
from raft.reads import Reads

Transferred = Callable[[bool], None]


@dataclass(slots=True)
class Transfer:
    """A handover under way: first the target catches up, then it is told to campaign."""

    peer: Peer
    until: float
    callback: Transferred | None
    told: bool = False
    due: bool = True


class Transfers(Reads):
    """The leader's side of a handover; PySyncObj's flag `__transferInProgress` stops proposals."""

    _transfer: Transfer | None = None

    def transfer_leadership(
        self, to: NodeId | None = None, callback: Transferred | None = None
    ) -> None:
        """Lets another voter lead: `to`, or the connected one that is furthest ahead.

        Proposals are refused from now on, until it is over. The callback tells whether leadership
        was handed over; if not, this node leads on.
        """
        peer = self._transfer_target(to)
        if self._halted or not self.is_leader or self._transfer is not None or peer is None:
            if callback is not None:
                callback(False)
            return
        self._transfer = Transfer(peer, self._scheduler.now() + self._config.transfer_s, callback)
        self._SyncObj__transferInProgress = True
        self._host.wake()

    def _transfer_target(self, to: NodeId | None) -> Peer | None:
        match = self._SyncObj__raftMatchIndex
        able = [peer for peer in self._peers.values() if peer.voter and peer.connected]
        if to is not None:
            able = [peer for peer in able if peer.node == to]
        return max(able, key=lambda peer: match[peer], default=None)

    def _drive_transfer(self) -> None:
        """Tells the target to campaign once it holds the whole log."""
        transfer = self._transfer
        if transfer is None or not transfer.due:
            return
        if self._SyncObj__raftMatchIndex[transfer.peer] == self._log.last_index:
            frame = frames.timeout_now(self._SyncObj__raftCurrentTerm)
            if self._network.send(transfer.peer.node, self.id, [frame]):
                transfer.told, transfer.due = True, False

    def _end_transfer(self, moved: bool) -> None:
        transfer, self._transfer = self._transfer, None
        self._SyncObj__transferInProgress = False
        if transfer is not None and transfer.callback is not None:
            self._call_back(transfer.callback, moved)

    def _check_transfer(self, now: float) -> None:
        """Repeats the request, which may be lost, until time is up."""
        transfer = self._transfer
        if transfer is not None and now >= transfer.until:
            self._end_transfer(False)
        elif transfer is not None and transfer.told:
            transfer.due = True
            self._host.wake()
