"""The peer link: one authenticated connection per pair of nodes, for all groups and requests."""

from raft.link.admission import InsecureListen
from raft.link.config import DEFAULT_LIMITS, LinkLimits
from raft.link.mesh import Address, PeerMesh, Status
from raft.link.rpc import Handler, LinkDown, RemoteError
from raft.link.tls import PeerTls
from raft.link.traffic import Traffic

__all__ = [
    "DEFAULT_LIMITS",
    "Address",
    "Handler",
    "InsecureListen",
    "LinkDown",
    "LinkLimits",
    "PeerMesh",
    "PeerTls",
    "RemoteError",
    "Status",
    "Traffic",
]
