"""Which of two connections between the same nodes stands, and where a node may listen.

Both ends judge alike from what each can see. A node without a link accepts any proven peer, unless
its own dial already holds the peer's challenge and its id is the smaller one: then the peer, which
sees the same from the other end, lets that dial win. A peer dials only while it knows of no link.
So if it dials while a connection that it dialed before is known here, that one is dead; and if it
dials while one that this node dialed is known here, either both crossed or that one is dead too:
it is refused and ours is probed, which a dead connection does not survive.
"""

from __future__ import annotations

import ipaddress
from enum import Enum

from goqueue.wire.types import NodeId


class InsecureListen(Exception):
    """Without a secret and without TLS, a node listens on loopback only."""


class Standing(Enum):
    """The link to the peer as this node sees it."""

    NONE = "none"
    DIALED = "dialed"
    ACCEPTED = "accepted"


class Verdict(Enum):
    ACCEPT = "accept"
    """Any dial of this node to the peer ends."""
    REPLACE = "replace"
    REFUSE_AND_PROBE = "refuse and probe"
    REFUSE = "refuse"


def judge_inbound(me: NodeId, peer: NodeId, standing: Standing, *, challenged: bool) -> Verdict:
    """What to do with a proven inbound connection; `challenged`: the own dial holds a challenge."""
    if standing is Standing.ACCEPTED:
        return Verdict.REPLACE
    if standing is Standing.DIALED:
        return Verdict.REFUSE_AND_PROBE
    return Verdict.REFUSE if challenged and me < peer else Verdict.ACCEPT


def check_listen(host: str, *, is_protected: bool) -> None:
    """Raises InsecureListen for a host beyond loopback, unless protected."""
    if is_protected or host == "localhost":
        return
    try:
        if ipaddress.ip_address(host).is_loopback:
            return
    except ValueError:
        pass
    raise InsecureListen(
        f"peers on {host} need a cluster secret or TLS; without both, listen on 127.0.0.1"
    )
