"""A cluster that is one broker, for tests of the harness itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from node.broker.node import NodeBroker
from node.http.server.app import HttpFront
from tests.chaos.cluster import Cluster, Node


@asynccontextmanager
async def two_fronts(
    broker: NodeBroker, directory: Path
) -> AsyncIterator[tuple[list[HttpFront], Cluster]]:
    """Fronts over one broker, playing a cluster."""
    fronts = [HttpFront(broker, port=0) for _ in range(2)]
    cluster = Cluster(directory)
    for number, front in enumerate(fronts):
        await front.start()
        url = f"http://127.0.0.1:{front.port}"
        cluster.nodes.append(Node(f"node-{number + 1}", url, [], 0))
    yield fronts, cluster
    for front in fronts:
        await front.stop()
