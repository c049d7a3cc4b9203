"""Clients over servers in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from goqueue import AsyncClient, RetryPolicy
from tests.unit.goqueue.queue_server import ScriptedServer
from tests.unit.goqueue.server import FakeCluster

QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)


@pytest.fixture
async def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def url(cluster: FakeCluster) -> AsyncIterator[str]:
    async with cluster.serve() as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, retry=QUICK, attempt_timeout_s=20.0) as client:
        yield client


@pytest.fixture
async def server() -> AsyncIterator[tuple[ScriptedServer, str]]:
    scripted = ScriptedServer()
    async with scripted.serve() as url:
        yield scripted, url


@pytest.fixture
async def scripted(server: tuple[ScriptedServer, str]) -> ScriptedServer:
    return server[0]
