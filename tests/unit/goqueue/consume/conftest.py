"""Consumers come by their messages in two ways: tests of what they promise run both."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from node.broker.node import NodeBroker
from node.http.request.call import FrontMetrics, NoMetrics
from node.http.server.app import HttpFront, Observers


class Ways(NoMetrics):
    """Counts how a front's streams have ended."""

    def __init__(self, way: str) -> None:
        self.is_stream = way == "stream"
        self.ended: Counter[str] = Counter()
        self.may = {"closed", "moved"}
        """How they may end in this test."""

    def stream_ended(self, how: str) -> None:
        self.ended[how] += 1

    async def begin(self, broker: NodeBroker) -> None:
        """Below the level of streams a node is polled."""
        if self.is_stream:
            await broker.upgrade.finish_level()


@asynccontextmanager
async def fronting(broker: NodeBroker, metrics: FrontMetrics) -> AsyncIterator[str]:
    """The URL of a front of its own over this broker."""
    front = HttpFront(broker, port=0, observers=Observers(metrics=metrics))
    await front.start()
    try:
        yield f"http://127.0.0.1:{front.port}"
    finally:
        await front.stop()


@pytest.fixture(params=["polls", "stream"])
def way(request: pytest.FixtureRequest) -> str:
    """Nodes below the level of streams are polled."""
    return str(request.param)


@pytest.fixture
def ways(way: str) -> Iterator[Ways]:
    """What a test's fronts tell; no stream of it was refused, or lost."""
    ways = Ways(way)
    yield ways
    assert ways.ended.keys() <= ways.may
    assert ways.is_stream or not ways.ended
