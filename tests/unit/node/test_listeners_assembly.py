"""A node with listeners: they share its caps, and have its certificates and keys."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.certificates import LOOPBACK, Authority
from tests.one_node import eventually, one_node
from tests.unit.node.listeners.redis.resp import Error, Status, Talker

REDIS: dict[str, object] = {"listeners.redis.enabled": True, "listeners.redis.port": 0}


async def test_a_node_that_is_ready_listens_and_its_connections_are_counted_together() -> None:
    async with one_node(**REDIS) as node:
        port = node.listeners.of["redis"].port
        client = await Talker.to(port)
        assert await client.ask("PING") == Status("pong")

        assert node.front.connections == 1
        text = node.metrics.render()[0].decode()
        assert 'goqueue_listener_connections{protocol="redis"} 1' in text
        assert 'requests_total{protocol="redis",operation="PING",code="ok"} 1.0' in text
        client.close()
        await eventually(lambda: node.front.connections == 0)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), 5)


async def test_where_a_port_is_taken_the_node_does_not_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError):
            async with one_node(**{**REDIS, "listeners.redis.port": port}):
                raise AssertionError


async def test_with_certificates_it_speaks_tls_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = map(str, authority.issue("localhost", *LOOPBACK))
    tls = {"tls.enabled": True, "tls.certFile": cert, "tls.keyFile": key}
    async with one_node(**REDIS, **tls) as node:
        port = node.listeners.of["redis"].port
        opened = await asyncio.open_connection("localhost", port, ssl=authority.trust())
        client = Talker(*opened)
        assert await client.ask("PING") == Status("pong")
        assert await client.ask("QUIT") == Status("OK")
        assert await client.is_over()

        plain = await Talker.to(port)
        plain.say("PING")
        with pytest.raises((EOFError, ConnectionError, AssertionError)):
            await plain.hear()
        plain.close()


async def test_with_authorities_who_shows_no_certificate_is_told_and_not_served(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    cert, key = map(str, authority.issue("localhost", *LOOPBACK))
    files = {"tls.certFile": cert, "tls.keyFile": key, "tls.caFile": str(authority.path)}
    async with one_node(**REDIS, **{"tls.enabled": True, **files}) as node:
        port = node.listeners.of["redis"].port
        without = Talker(*await asyncio.open_connection("localhost", port, ssl=authority.trust()))
        told = await without.hear()
        assert isinstance(told, Error) and "certificate_required" in told.text
        assert await without.is_over()

        trusting = authority.trust()
        trusting.load_cert_chain(*map(str, authority.issue("client")))
        shown = Talker(*await asyncio.open_connection("localhost", port, ssl=trusting))
        assert await shown.ask("PING") == Status("pong")
        shown.close()
