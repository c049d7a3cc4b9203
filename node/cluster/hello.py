"""A node's part in its cluster, as the fields of the hello that peers exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.brokers.formation import Hello
from goqueue.wire.types import Incarnation, NodeId, Voter


def hello_fields(hello: Hello) -> dict[str, Any]:
    """What is told of it, but the name and the incarnation, which the link tells."""
    return {
        "voters": _named(hello.voters),
        "members": _named(hello.members),
        "cluster": hello.cluster,
        "empty": hello.empty,
        "sees": hello.sees,
    }


def read_hello(node: NodeId, told: Mapping[str, Any]) -> Hello:
    """A peer's hello; its incarnation is the one that the link has proven."""
    return Hello(
        node,
        Incarnation(int(told["incarnation"])),
        told.get("empty") is True,
        _voters(told.get("voters")),
        str(told.get("sees", "")),
        int(told.get("cluster", 0)),
        _voters(told.get("members")),
    )


def _named(voters: tuple[Voter, ...]) -> dict[str, int]:
    return {voter.node: voter.incarnation for voter in voters}


def _voters(told: object) -> tuple[Voter, ...]:
    named = told.items() if isinstance(told, dict) else ()
    return tuple(sorted(Voter(NodeId(str(name)), Incarnation(int(n))) for name, n in named))
