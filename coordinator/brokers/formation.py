"""How empty nodes become one cluster, exactly once; and how nodes come to one that exists.

The cluster group's founding voters are (node, incarnation) pairs, and the cluster's id is a hash
of them. A node founds the cluster when it sees all configured nodes present and empty, and each of
them has told that it sees the same; it also does so with the founders of a cluster that name its
own data directory. Every other node asks the cluster to be let in, and then begins as a learner:
a new one, and one whose data directory was wiped, so that no voter forgets what it promised.
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

    `empty`: it holds no group. `sees`: the fingerprint of the empty data directories that it sees,
    its own included. `cluster`: the id of the cluster it belongs to, 0 before. `voters`: those that
    founded it, as far as this node's log goes back. `members`: who takes part in it now.
    """

    node: NodeId
    incarnation: Incarnation
    empty: bool
    voters: tuple[Voter, ...] = ()
    sees: str = ""
    cluster: int = 0
    members: tuple[Voter, ...] = ()


class Step(Enum):
    """What a node that belongs to no cluster yet should do."""

    WAIT = "wait"
    FOUND = "found"
    """Start the cluster group with these voters, this node being one."""
    JOIN = "join"
    """Ask the cluster that exists to be let in."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`voters` are those of the cluster to be, or that founded the one that exists; `reason` is
    for people. `wiped`: that cluster knows this node by another data directory."""

    step: Step
    voters: tuple[Voter, ...] = ()
    reason: str = ""
    cluster: int = 0
    wiped: bool = False


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


def plan_formation(
    me: Hello, peers: Mapping[NodeId, Hello], configured: Sequence[NodeId] | None
) -> Plan:
    """What to do now. `peers` are the connected ones' hellos; `configured` includes this node,
    and is None where it is not known yet who is to found: then nobody does."""
    formed = [peers[node] for node in sorted(peers) if peers[node].cluster]
    if formed:
        return _join(me, formed)
    if not me.empty:
        return Plan(Step.WAIT, reason="this node belongs to a cluster that no peer has told of")
    if configured is None:
        return Plan(Step.WAIT, reason="it is not known yet which nodes are to form the cluster")
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
    return Plan(Step.FOUND, seen, cluster=cluster_id(seen))


def wiped_text(node: NodeId) -> str:
    """For people: why a node with another data directory stays out, and for how long."""
    return (
        f"the data directory of {node} is not the one the cluster knows: it was wiped or replaced,"
        " and takes no part until it has been let in again"
    )


def _join(me: Hello, formed: Sequence[Hello]) -> Plan:
    clusters = {hello.cluster for hello in formed}
    if len(clusters) > 1:
        named = ", ".join(hello.node for hello in formed)
        return Plan(Step.WAIT, reason=f"peers belong to different clusters: {named}")
    cluster = formed[0].cluster
    own = Voter(me.node, me.incarnation)
    founders = next((hello.voters for hello in formed if hello.voters), ())
    if own in founders and me.empty:
        return Plan(Step.FOUND, founders, cluster=cluster)
    known = {one for hello in formed for one in (*hello.voters, *hello.members)}
    if own not in known and any(one.node == me.node for one in known):
        return Plan(Step.JOIN, founders, wiped_text(me.node), cluster, wiped=True)
    reason = f"{me.node} asks to be let into the cluster that {formed[0].node} belongs to"
    return Plan(Step.JOIN, founders, reason, cluster)


def _digest(voters: Sequence[Voter]) -> bytes:
    text = ";".join(f"{voter.node}={voter.incarnation:016x}" for voter in sorted(voters))
    return hashlib.sha256(text.encode()).digest()
