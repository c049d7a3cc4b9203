"""What other nodes ask for takes memory of this one's budget, as what clients ask for."""

from __future__ import annotations

import asyncio

from goqueue.wire.types import NodeId
from node.http.budget.memory import Kind
from tests.unit.node.three_nodes import NAMES, eventually, three_nodes


async def test_requests_of_other_nodes_are_charged_while_they_are_served() -> None:
    async with three_nodes() as nodes:
        asking, asked = nodes.running[NAMES[0]], nodes.running[NAMES[1]]
        links, may_end = asked.front.budgets[Kind.LINKS], asyncio.Event()

        async def wait(_node: NodeId, _payload: bytes) -> bytes:
            await may_end.wait()
            return b"done"

        asked.link.handle("wait", wait)
        request = asking.link.request(NodeId(NAMES[1]), "wait", bytes(1 << 20), 60)
        begun = asyncio.create_task(request)

        await eventually(lambda: links.held_by(f"node {NAMES[0]}") >= 1 << 20, 30)
        may_end.set()
        assert await begun == b"done"
        await eventually(lambda: links.held_by(f"node {NAMES[0]}") < 1 << 20, 30)
