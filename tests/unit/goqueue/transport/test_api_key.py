"""The key goes to the servers that were named, and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from goqueue import AsyncClient, Client
from goqueue.errors import BadRequest, Forbidden, GoQueueError, Unauthenticated, is_final

KEY = "app.0123456789abcdef"


@dataclass
class Server:
    """Answers whatever it is told to, and notes the keys that came."""

    url: str = ""
    moved_to: tuple[int, str] | None = None
    seen: list[str | None] = field(default_factory=list[str | None])

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen.append(request.headers.get("Authorization"))
        if self.moved_to is None:
            return web.json_response({"status": "ok"})
        return web.Response(status=self.moved_to[0], headers={"Location": self.moved_to[1]})


@pytest.fixture
async def servers() -> AsyncIterator[list[Server]]:
    found, runners = [Server(), Server()], []
    for server in found:
        runner = web.ServerRunner(web.Server(server.serve))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        server.url = f"http://127.0.0.1:{port}"
        runners.append(runner)
    yield found
    for runner in runners:
        await runner.cleanup()


async def test_the_key_is_sent_as_a_bearer(servers: list[Server]) -> None:
    async with AsyncClient(servers[0].url, api_key=KEY) as client:
        await client.health()

    assert servers[0].seen == [f"Bearer {KEY}"]


async def test_the_environments_key_is_used_where_none_is_given(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOQUEUE_API_KEY", "env.0123456789abcdef")
    for given in (None, KEY):
        async with AsyncClient(servers[0].url, api_key=given) as client:
            await client.health()

    assert servers[0].seen == ["Bearer env.0123456789abcdef", f"Bearer {KEY}"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_error_and_the_key_goes_nowhere_else(
    servers: list[Server], status: int
) -> None:
    first, second = servers
    first.moved_to = status, second.url + "/health"

    async with AsyncClient(first.url, api_key=KEY) as client:
        with pytest.raises(BadRequest, match=r"redirects to .* not followed") as told:
            await client.health()

    assert told.value.code == "redirected"
    assert KEY not in str(told.value)
    assert second.seen == []


@pytest.mark.parametrize("key", ["a\r\nX-Evil: 1", "a b", "schlüssel.0123"])
def test_what_is_no_key_is_refused_without_being_repeated(key: str) -> None:
    for kind in (AsyncClient, Client):
        with pytest.raises(BadRequest) as told:
            kind("http://127.0.0.1:9", api_key=key)
        assert key not in str(told.value)


def test_who_may_not_come_in_is_told_for_good() -> None:
    for code, kind in (("unauthenticated", Unauthenticated), ("forbidden", Forbidden)):
        error = GoQueueError.from_body({"code": code, "error": "no", "retriable": False})
        assert isinstance(error, kind) and is_final(error)
