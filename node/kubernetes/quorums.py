"""What a node's stop would leave without a majority, while others are away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Set

from goqueue.wire.types import NodeId


def at_stake(
    me: NodeId, groups: Iterable[tuple[str, Collection[NodeId]]], away: Set[NodeId]
) -> str:
    """For people: how many of the groups, each told by its kind and its voters, have a majority
    with this node and none without it, since one of the voters is away; empty for none.

    A group that has no majority even so, and one of one or two voters, which needs all of them
    at any time, are left out: waiting would change nothing.
    """
    found, missed = Counter[str](), set[NodeId]()
    for kind, voters in groups:
        gone = away & set(voters) - {me}
        majority = len(voters) // 2 + 1
        rest = len(voters) - len(gone) - 1
        if me in voters and gone and len(voters) > majority and rest < majority <= rest + 1:
            found[kind] += 1
            missed |= gone
    if not found:
        return ""
    what = " and ".join(
        kind if kind.startswith("the ") else f"{count} {kind}" for kind, count in found.items()
    )
    gone_names = ", ".join(sorted(missed))
    return f"{what} would have no majority, as {gone_names} is away or not in sync"
