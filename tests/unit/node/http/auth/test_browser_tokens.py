"""Tokens for browsers: a page opens streams and tails with them, and nothing else, for a minute."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import pytest

from coordinator.commands.keys import RevokeKey
from node.broker.node import NodeBroker
from node.http.auth.authenticator import Authenticator
from node.http.server.app import Entrance, HttpFront
from node.security.browser_tokens import LIFE_S, KeyBrowserTokens
from tests.one_node import Clock, Keys, cluster_of

STREAM = "/groups/workers/stream"
JUDGED_MS = 3000
"""By then it was looked whether the client of a stream still may be there."""
TAIL = "/topics/orders/tail?wait=1ms"


Put = Callable[..., Awaitable[Any]]


class Site:
    """A web application's server, which has keys, and a browser, which has none."""

    def __init__(self, session: aiohttp.ClientSession, keys: Keys, urls: list[str]) -> None:
        self._session = session
        self._urls = urls
        self.keys = keys

    async def key(self, id: str, role: str = "admin", *prefixes: str) -> str:
        made = await self.keys.create_key(
            id, name="", role=role, prefixes=prefixes or ("",), expires_ms=0
        )
        return made.secret

    async def ask(
        self, method: str, path: str, key: str | None = None, node: int = 0
    ) -> tuple[int, Any]:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        async with self._session.request(method, self._urls[node] + path, headers=headers) as told:
            is_json = told.content_type == "application/json"
            return told.status, await (told.json() if is_json else told.text())

    async def token(self, key: str) -> str:
        status, told = await self.ask("POST", "/v1/browser-tokens", key)
        assert (status, told["expires_in_ms"]) == (201, LIFE_S * 1000)
        return str(told["token"])

    async def tails(self, token: str, node: int = 0) -> int:
        """How the tail of orders is answered to a page with this token."""
        status, _ = await self.ask("GET", f"{TAIL}&access_token={token}", node=node)
        return status

    def stream(self, token: str) -> Any:
        return self._session.ws_connect(f"{self._urls[0]}{STREAM}?access_token={token}")


@pytest.fixture
async def site(broker: NodeBroker, clock: Clock, orders: str) -> AsyncIterator[Site]:
    """Of a cluster of two nodes."""
    await broker.upgrade.finish_level()
    fronts = []
    with ThreadPoolExecutor(1) as workers:
        keys = Keys(cluster_of(broker), clock, workers)
        for _ in range(2):
            tokens = KeyBrowserTokens(
                lambda: keys.cluster.state.keys, clock, keys.checks.digest, b"a secret"
            )
            authenticator = Authenticator(keys.checks, browser_tokens=tokens)
            entrance = Entrance(authenticator=authenticator, keys=keys)
            fronts.append(HttpFront(broker, port=0, entrance=entrance))
            await fronts[-1].start()
        async with aiohttp.ClientSession() as session:
            yield Site(session, keys, [f"http://127.0.0.1:{front.port}" for front in fronts])
        for front in fronts:
            await front.stop()


async def subscribe(socket: Any) -> None:
    await socket.send_json(
        {"type": "subscribe", "topics": ["orders"], "credit": {"messages": 1, "bytes": 1000}}
    )
    assert (await socket.receive_json())["type"] == "subscribed"


async def test_a_page_opens_a_stream_and_a_tail_on_any_node(site: Site) -> None:
    token = await site.token(await site.key("app"))

    assert [await site.tails(token, node) for node in (0, 1)] == [200, 200]
    async with site.stream(token) as socket:
        await subscribe(socket)
    assert (await site.ask("GET", TAIL))[0] == 401


async def test_it_opens_nothing_else_and_makes_no_other_token(site: Site) -> None:
    token = await site.token(await site.key("app"))

    for method, path in (
        ("GET", "/topics/orders"),
        ("GET", "/topics/orders/messages?partition=0"),
        ("POST", "/v1/browser-tokens"),
        ("GET", "/admin/keys"),
    ):
        mark = "&" if "?" in path else "?"
        assert (await site.ask(method, f"{path}{mark}access_token={token}"))[0] == 401, path
    assert (await site.ask("GET", TAIL, token))[0] == 401, "it is no key"


async def test_it_reaches_as_far_as_its_key(site: Site) -> None:
    mine = await site.token(await site.key("mine", "consumer", "mine."))
    producer = await site.token(await site.key("maker", "producer"))

    assert [await site.tails(token) for token in (mine, producer)] == [403, 403]


async def test_it_is_over_after_a_minute_and_what_is_open_goes_on_until_its_key_ends(
    site: Site, clock: Clock, put: Put
) -> None:
    token = await site.token(await site.key("app", "consumer"))
    async with site.stream(token) as socket:
        await subscribe(socket)
        clock.set_ahead(LIFE_S * 1000)
        status, told = await site.ask("GET", f"{TAIL}&access_token={token}")
        assert (status, told["code"], told["reason"]) == (401, "unauthenticated", "expired")

        await clock.pass_ms(JUDGED_MS)
        await put(b"still pushed")
        (message,) = (await socket.receive_json())["messages"]
        assert message["value"] == "still pushed"

        await site.keys.cluster.command(RevokeKey("app"), 1)
        await clock.pass_ms(JUDGED_MS)
        assert (await socket.receive_json())["code"] == "unauthenticated"
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE


async def test_it_ends_with_its_key(site: Site) -> None:
    await site.key("spare")
    token = await site.token(await site.key("app"))
    await site.keys.cluster.command(RevokeKey("app"), 1)

    assert await site.tails(token) == 401


async def test_made_up_tokens_are_none(site: Site) -> None:
    await site.key("spare")
    token = await site.token(await site.key("app"))

    for made_up in (
        token.replace("app", "spare"),
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        "x" * 5000,
        "app.1.%C3%A9",
        "",
    ):
        assert await site.tails(made_up) == 401, made_up[:40]


async def test_a_key_in_a_header_counts_in_its_place(site: Site) -> None:
    key = await site.key("app")

    assert (await site.ask("GET", f"{TAIL}&access_token=nothing", key))[0] == 200


async def test_where_nobody_is_asked_for_a_key_any_token_does(
    broker: NodeBroker, orders: str
) -> None:
    front = HttpFront(broker, port=0)
    await front.start()
    async with aiohttp.ClientSession() as session:
        site = Site(session, Keys.__new__(Keys), [f"http://127.0.0.1:{front.port}"])
        status, told = await site.ask("POST", "/v1/browser-tokens")
        assert (status, told) == (201, {"token": "none", "expires_in_ms": 60_000})
        assert await site.tails(told["token"]) == 200
    await front.stop()
