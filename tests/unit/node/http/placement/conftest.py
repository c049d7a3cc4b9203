"""Three brokers, of which one is there."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from node.assembly import NodeAssembly
from node.broker.node import NodeBroker
from tests.one_node import Clock, one_node
from tests.three_brokers import ThreeBrokers, three_brokers


@pytest.fixture
async def node(clock: Clock) -> AsyncIterator[NodeAssembly]:
    async with one_node(clock) as node:
        yield node


@pytest.fixture
async def broker(node: NodeAssembly) -> NodeBroker:
    return node.broker


@pytest.fixture
async def cluster(node: NodeAssembly, orders: str) -> ThreeBrokers:
    """Three brokers, of which node-1 has all three partitions of `orders`."""
    return await three_brokers(node)
