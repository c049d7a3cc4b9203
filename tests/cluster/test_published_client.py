"""GoQueue's published Python client, two of it, at two of three real nodes."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.cluster.conftest import Start
from tests.unit.node.http.compat.published_client import connect

VALUES = [f"order-{n}" for n in range(60)]


def test_two_of_it_at_two_nodes_share_a_topic_and_each_message_comes_once(start: Start) -> None:
    cluster = start()

    async def work() -> list[str]:
        async with connect(cluster[0].url) as here, connect(cluster[1].url) as there:
            await here.topics.create({"name": "orders", "num_partitions": 6})
            request = {"client_id": "worker", "topics": ["orders"]}
            members = [
                (client, (await client.groups.join("team", request))["member_id"])
                for client in (here, there)
            ]
            await here.messages.publish(
                "orders", [{"key": value, "value": value} for value in VALUES]
            )
            seen: list[str] = []

            async def consume(client: Any, member: str) -> None:
                while len(seen) < len(VALUES):
                    polled = await client.groups.poll("team", member, timeout="500ms")
                    for message in polled["messages"]:
                        seen.append(message["value"])
                        await client.messages.ack(message["receipt_handle"])
                    await client.groups.heartbeat("team", {"member_id": member, "generation": 2})
                await client.groups.leave("team", {"member_id": member})

            async with asyncio.timeout(30):
                await asyncio.gather(*(consume(*member) for member in members))
            return seen

    assert sorted(asyncio.run(work())) == sorted(VALUES)
