"""How empty nodes become one cluster, exactly once; and how a wiped node is told apart.

The cluster group's founding voters are (node, incarnation) pairs, and the cluster's id is a hash
of them. A node founds the cluster when it sees all configured nodes present and empty, and each of
them has told that it sees the same; it joins one that others founded when its own data directory
is named there. A name that is known with another incarnation was wiped: it takes no part, so that
no voter forgets what it promised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from goqueue.wire.types import Incarnation, NodeId, Voter


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node tells its peers about its part in a cluster.

    `voters`: the founding voters of the cluster it belongs to, none before. `empty`: it holds no
    group. `sees`: the fingerprint of the empty data directories that it sees, its own included.
    """

    node: NodeId
    incarnation: Incarnation
    empty: bool
    voters: tuple[Voter, ...] = ()
    sees: str = ""


class Step(Enum):
    """What a node that belongs to no cluster yet should do."""

    WAIT = "wait"
    FOUND = "found"
    """Start the cluster group with these voters, this node being one."""
    OUTSIDE = "outside"
    """A cluster exists that does not name this node."""
    WIPED = "wiped"
    """A cluster exists that knows this node by another data directory."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`voters` are those of the cluster to be, or that exists; `reason` is for people."""

    step: Step
    voters: tuple[Voter, ...] = ()
    reason: str = ""


def fingerprint(voters: Sequence[Voter]) -> str:
    """What stands for a set of data directories when nodes compare what they see."""
    return _digest(voters).hex()[:32]


def cluster_id(voters: Sequence[Voter]) -> int:
    """The cluster's id, not 0: as random as the incarnations it is made of."""
    return int.from_bytes(_digest(voters)[:8], "big") or 1


def empty_directories(
    me: Hello, peers: Mapping[NodeId, Hello], configured: Sequence[NodeId]
) -> tuple[Voter, ...]:
    """The empty data directories of configured nodes that this node sees, sorted."""
    present = [peers[node] for node in configured if node != me.node and node in peers]
    return tuple(
        sorted(Voter(hello.node, hello.incarnation) for hello in (me, *present) if hello.empty)
    )


def plan_formation(me: Hello, peers: Mapping[NodeId, Hello], configured: Sequence[NodeId]) -> Plan:
    """What to do now. `peers` are the connected ones' hellos; `configured` includes this node."""
    for node in sorted(peers):
        if peers[node].voters:
            return _join(me, peers[node].voters)
    if not me.empty:
        return Plan(Step.WAIT, reason="this node belongs to a cluster that no peer has told of")
    seen = empty_directories(me, peers, configured)
    missing = sorted(set(configured) - {voter.node for voter in seen})
    if missing:
        return Plan(
            Step.WAIT, reason=f"the cluster is not formed: waiting for {', '.join(missing)}"
        )
    agreed = fingerprint(seen)
    doubtful = [node for node in configured if node != me.node and peers[node].sees != agreed]
    if doubtful:
        return Plan(Step.WAIT, reason=f"the cluster is forming: {', '.join(doubtful)} not ready")
    return Plan(Step.FOUND, seen)


def _join(me: Hello, voters: tuple[Voter, ...]) -> Plan:
    if Voter(me.node, me.incarnation) in voters:
        return Plan(Step.FOUND, voters)
    if any(voter.node == me.node for voter in voters):
        return Plan(
            Step.WIPED,
            voters,
            f"the data directory of {me.node} is not the one the cluster knows: it was wiped or"
            " replaced, and takes no part",
        )
    return Plan(
        Step.OUTSIDE, voters, f"the cluster was formed without {me.node}: it can't be joined yet"
    )


def _digest(voters: Sequence[Voter]) -> bytes:
    text = ";".join(f"{voter.node}={voter.incarnation:016x}" for voter in sorted(voters))
    return hashlib.sha256(text.encode()).digest()
