"""The peer link: one authenticated connection per pair of nodes, for all groups and requests."""

from raft.link.admission import InsecureListen
from raft.link.config import DEFAULT_LIMITS, Address, Endpoint, LinkEvents, LinkLimits, Status
from raft.link.failed import FailedHandshakes
from raft.link.mesh import LEVELS, PeerMesh
from raft.link.rpc import Handler, LinkDown, RemoteError
from raft.link.tls import PeerContexts, PeerTls, no_password
from raft.link.traffic import Traffic

__all__ = [
    "DEFAULT_LIMITS",
    "LEVELS",
    "Address",
    "Endpoint",
    "FailedHandshakes",
    "Handler",
    "InsecureListen",
    "LinkDown",
    "LinkEvents",
    "LinkLimits",
    "PeerContexts",
    "PeerMesh",
    "PeerTls",
    "RemoteError",
    "Status",
    "Traffic",
    "no_password",
]
