"""Who the other nodes are, and where: names of ordinals by DNS, or else the Service's addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable

from goqueue.wire.types import NodeId
from node.config.option import Address
from node.config.pod_names import ORDINALS_MAX, PodNames
from node.kubernetes.api import ApiProblem

MISSING_MAX = 2
"""After so many ordinals in a row without a name there are none, where nobody tells how many."""
RESOLVE_S = 3.0

Resolve = Callable[[str], Awaitable[bool]]
Addresses = Callable[[], Awaitable[dict[str, str]]]


async def resolves(host: str) -> bool:
    """Whether DNS knows the name."""
    try:
        async with asyncio.timeout(RESOLVE_S):
            await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError):
        return False
    return True


async def find_peers(
    names: PodNames,
    me: NodeId,
    wanted: int | None,
    known: Iterable[NodeId],
    *,
    resolve: Resolve = resolves,
    addresses: Addresses,
) -> dict[NodeId, Address]:
    """Where the other pods of the set are: those that are wanted, and known ones beside them.

    One that DNS knows is named by its host; another by its address, if the Service's endpoints have
    it. Who is wanted and found nowhere is named by its host, too: it may come. `wanted` of None:
    how many there are is found by asking DNS for one ordinal after the other.
    """
    count = await _count(names, resolve) if wanted is None else min(wanted, ORDINALS_MAX)
    nodes = {names.node(number) for number in range(count)}
    nodes |= {node for node in known if names.ordinal(node) is not None}
    others = sorted(nodes - {me})
    found = {node: names.address(node) for node in others}
    answers = await asyncio.gather(*(resolve(names.host(node)) for node in others))
    lost = [node for node, is_known in zip(others, answers, strict=True) if not is_known]
    if lost:
        try:
            there = await addresses()
        except ApiProblem:  # whom DNS finds is found all the same
            there = {}
        found |= {node: (there[node], names.port) for node in lost if node in there}
    return found


async def _count(names: PodNames, resolve: Resolve) -> int:
    count = missing = 0
    for ordinal in range(ORDINALS_MAX):
        if await resolve(names.host(names.node(ordinal))):
            count, missing = ordinal + 1, 0
        else:
            missing += 1
        if missing == MISSING_MAX:
            break
    return count
