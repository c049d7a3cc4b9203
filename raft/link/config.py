"""What a peer link is given: who this node is on it, whom it tells, and every bound of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from goqueue.wire.types import Incarnation, NodeId, PartitionId
from log.levels import Levels
from raft.link.tls import PeerContexts

KIB = 1024
MIB = 1024 * KIB

Address = tuple[str, int]
Status = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """Who this node is, where it listens, and how it and its peers prove who they are."""

    node: NodeId
    incarnation: Incarnation
    listen: Address
    secret: bytes = field(repr=False)
    """What all nodes share; not used where there is `tls`."""
    tls: PeerContexts | None = None
    levels: Levels = field(default_factory=Levels)
    """With whom this node can belong to one cluster."""


@dataclass(frozen=True)
class LinkEvents:
    """Whom the link asks and tells. None of them is called from inside `PeerMesh.send`, and none
    after `PeerMesh.stop` began."""

    hello: Callable[[], Status]
    """The own status: told in the first message of a link, and twice a second after it."""
    on_frame: Callable[[NodeId, PartitionId, memoryview], None]
    """A frame handed to it may be kept."""
    on_up: Callable[[NodeId, Status], None]
    """Comes before anything else of a peer."""
    on_down: Callable[[NodeId], None]
    on_status: Callable[[NodeId, Status], None]
    """Every status after the first."""


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Defaults fit brokers in one data center; tests shorten the times."""

    message_bytes_max: int = 32 * MIB
    """The largest message, reassembled: a request body of 16 MiB and what surrounds it."""
    backlog_bytes_max: int = 64 * MIB
    """Unsent bytes at which a peer counts as stuck and its link is cut."""
    write_high_bytes: int = 1 * MIB
    """Bytes left to the socket's buffer; what exceeds them waits where status overtakes it."""
    handshake_bytes_max: int = 2 * KIB
    """All that an unauthenticated connection may send."""
    handshake_s: float = 5.0
    """From the connection's first moment to the peer's first status."""
    unauthenticated_max: int = 64
    """Open handshakes; one more cuts the oldest."""
    status_interval_s: float = 0.5
    silence_s: float = 3.0
    """A peer that sends no byte for this long is cut."""
    redial_first_s: float = 0.02
    redial_max_s: float = 1.0
    dial_timeout_s: float = 3.0
    requests_in_flight_max: int = 2048
    """Per peer and direction; one more is answered `busy`."""
    requests_of_a_kind_max: int = 1024
    """Of them, by one method: clients that wait in reads leave the others their places."""
    request_timeout_max_s: float = 120.0
    """What a caller asks for is cut to this."""
    method_bytes_max: int = 64
    status_bytes_max: int = 64 * KIB
    admit_unlisted: bool = False
    """Whether an authenticated node that is not in the table of peers may connect."""


DEFAULT_LIMITS = LinkLimits()
