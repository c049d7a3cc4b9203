"""What the parts of a node that keep, send and repair its files stand on."""

from __future__ import annotations

from dataclasses import dataclass

from log.store.directory import Store
from node.metrics import Metrics
from node.peers.link import PeerLink
from node.storage.flusher import Flusher
from raft.host import RaftHost


@dataclass(frozen=True, slots=True)
class StorageParts:
    """One of each in a node."""

    store: Store
    flusher: Flusher
    link: PeerLink
    raft: RaftHost
    metrics: Metrics
