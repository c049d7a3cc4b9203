"""Logging in to the console: whose session it is, how it ends, and what each key sees and may."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from typing import Any

import aiohttp
import pytest

from coordinator.commands.keys import EndSession, RevokeKey
from goqueue.wire.errors import GoQueueError, NoQuorum
from log.levels import NotFinished
from node.api.auth.access import Access
from node.api.claims import NOBODY
from node.broker.node import NodeBroker
from node.http.auth.addresses import Addresses
from node.http.auth.authenticator import Authenticator
from node.http.auth.csrf_guard import CsrfGuard
from node.http.auth.failures import FAILURES_MAX, Failures
from node.http.server.app import Entrance, HttpFront, Observers
from node.security.key_sessions import LIFE_S, KeySessions
from tests.one_node import Keys, cluster_of, eventually
from tests.unit.node.http.conftest import Answer, Client, Clock

HSTS_S = 3600
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def keys(broker: NodeBroker, clock: Clock) -> AsyncIterator[Keys]:
    await broker.upgrade.finish_level()
    with ThreadPoolExecutor(1) as workers:
        yield Keys(cluster_of(broker), clock, workers)


class Browser:
    """Keeps cookies, follows nothing, and sends forms as a page of the node would."""

    def __init__(self, client: Client, keys: Keys, accesses: list[Access]) -> None:
        self._client = client
        self._keys = keys
        self.accesses = accesses
        self.cookies: dict[str, str] = {}
        self.set: list[str] = []

    async def key(self, id: str, role: str, *prefixes: str) -> str:
        more: dict[str, Any] = {"name": "", "expires_ms": 0}
        made = await self._keys.create_key(id, role=role, prefixes=prefixes or ("",), **more)
        return made.secret

    async def send(self, method: str, path: str, headers: Any = None, **more: Any) -> Answer:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = {**SAME_SITE, **({"Cookie": cookie} if cookie else {}), **(headers or {})}
        answer = await self._client(method, path, headers=sent, allow_redirects=False, **more)
        self.set = [answer.headers["Set-Cookie"]] if "Set-Cookie" in answer.headers else []
        for line in self.set:
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
            if not value:
                del self.cookies[name]
        return answer

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.send("GET", path, **more)

    async def form(self, path: str, token: str, headers: Any = None, **fields: str) -> Answer:
        data = aiohttp.FormData({"token": token, **fields})
        return await self.send("POST", path, headers, data=data)

    async def log_in(self, key: str, following: str = "") -> Answer:
        page = await self.get(f"/ui/login?next={following}")
        return await self.form("/ui/login", token_of(page), key=key, next=following)


def token_of(page: Answer) -> str:
    found = re.search(rb'name="token" value="([^"]+)"', page.body)
    assert found is not None, "there is a form"
    return found[1].decode()


Opens = Callable[[], Browser]


class Agreed:
    """The cluster group, which may not agree to anything for a while."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.problem: GoQueueError | None = None

    async def tell(self, command: EndSession) -> None:
        if self.problem is not None:
            raise self.problem
        await self._keys.cluster.command(command, 1)


@pytest.fixture
def agreed(keys: Keys) -> Agreed:
    return Agreed(keys)


@pytest.fixture
def proxies() -> list[str]:
    """The networks of proxies that are trusted."""
    return []


@pytest.fixture
async def opens(
    broker: NodeBroker,
    keys: Keys,
    clock: Clock,
    orders: str,
    agreed: Agreed,
    proxies: list[str],
) -> AsyncIterator[Opens]:
    """Browsers of one cluster of two nodes, alternately."""
    await broker.topics.create_topic("mine.a", {"partitions": 1})
    accesses: list[Access] = []
    fronts: list[HttpFront] = []
    for _ in range(2):
        sessions = KeySessions(
            lambda: keys.cluster.state.keys,
            clock,
            keys.checks.digest,
            b"a secret",
            tell=agreed.tell,
        )
        authenticator = Authenticator(
            keys.checks,
            failures=Failures(lambda: 1.0),
            sessions=sessions,
            addresses=Addresses(proxies),
        )
        csrf_guard = CsrfGuard(None, hsts_s=HSTS_S)
        front = HttpFront(
            broker,
            port=0,
            entrance=Entrance(csrf_guard=csrf_guard, authenticator=authenticator, keys=keys),
            observers=Observers(on_access=accesses.append),
        )
        await front.start()
        fronts.append(front)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        count = iter(range(100))
        yield lambda: Browser(Client(session, fronts[next(count) % 2]), keys, accesses)
    for front in fronts:
        await front.stop()


@pytest.fixture
def browser(opens: Opens) -> Browser:
    return opens()


async def test_visitor_is_led_to_the_form_and_back_to_the_page(browser: Browser) -> None:
    asked = await browser.get("/ui/topics/orders?page=1")
    assert (asked.status, asked.headers["Location"]) == (
        303,
        "/ui/login?next=%2Fui%2Ftopics%2Forders%3Fpage%3D1",
    )

    entered = await browser.log_in(await browser.key("ops", "admin"), "/ui/topics/orders?page=1")
    assert (entered.status, entered.headers["Location"]) == (303, "/ui/topics/orders?page=1")
    page = await browser.get("/ui/topics/orders?page=1")
    assert page.status == 200 and b"Log out" in page.body and b"ops" in page.body


async def test_session_is_out_of_reach_of_scripts_other_sites_and_holds_no_key(
    browser: Browser,
) -> None:
    key = await browser.key("ops", "admin")
    await browser.log_in(key)

    attributes = browser.set[0].split("; ")[1:]
    assert attributes == ["Path=/ui", f"Max-Age={LIFE_S}", "HttpOnly", "SameSite=Strict"]
    assert key.partition(".")[2] not in json.dumps(browser.cookies)


async def test_login_leads_nowhere_else(browser: Browser) -> None:
    key = await browser.key("ops", "admin")
    token = token_of(await browser.get("/ui/login"))

    for following in (
        "//evil.example",
        "https://evil.example",
        "/ui//..\\evil",
        "/topics",
        "/uix",
        "/ui/login",
    ):
        entered = await browser.form("/ui/login", token, key=key, next=following)
        assert entered.headers["Location"] == "/ui", following


async def test_session_holds_on_every_node_and_so_do_its_forms(opens: Opens) -> None:
    one, other = opens(), opens()
    await one.log_in(await one.key("ops", "admin"))
    page = await one.get("/ui")
    other.cookies = one.cookies

    assert (await other.get("/ui")).status == 200
    left = await other.form("/ui/logout", token_of(page))
    assert (left.status, left.headers["Location"]) == (303, "/ui/login")
    assert (await other.get("/ui")).status == 303


async def test_session_that_was_logged_out_of_is_over_on_every_node(opens: Opens) -> None:
    one, other, thief = opens(), opens(), opens()
    key = await one.key("ops", "admin")
    await one.log_in(key)
    await other.log_in(key)
    thief.cookies = dict(one.cookies)
    elsewhere = opens()
    elsewhere.cookies = dict(one.cookies)
    assert (await thief.get("/ui")).status == (await elsewhere.get("/ui")).status == 200

    left = await one.form("/ui/logout", token_of(await one.get("/ui")))

    assert (left.status, left.headers["Location"]) == (303, "/ui/login")
    assert (await thief.get("/ui")).status == 303
    assert (await elsewhere.get("/ui")).status == 303
    assert (await elsewhere.get("/ui/data/topics/orders")).status == 401
    assert (await other.get("/ui")).status == 200, "another session of the same key goes on"
    again = opens()
    await again.log_in(key)
    assert (await again.get("/ui")).status == 200


@pytest.mark.parametrize(
    ("problem", "status"), [(NoQuorum(), 503), (NotFinished(2, 1), 303)], ids=["cut off", "level 1"]
)
async def test_node_that_can_tell_nobody_ends_the_session_itself(
    opens: Opens, agreed: Agreed, problem: GoQueueError, status: int
) -> None:
    one, other = opens(), opens()
    await one.log_in(await one.key("ops", "admin"))
    copy = dict(one.cookies)
    other.cookies = dict(copy)
    agreed.problem = problem

    left = await one.form("/ui/logout", token_of(await one.get("/ui")))

    assert left.status == status
    assert (b"They were not told" in left.body) is (status == 503)
    one.cookies = copy
    assert (await one.get("/ui")).status == 303
    assert (await other.get("/ui")).status == 200, "nobody told this node"


@pytest.mark.parametrize("proxies", [["127.0.0.0/8"]])
async def test_browser_that_spoke_tls_with_a_trusted_proxy_is_kept_to_it(browser: Browser) -> None:
    https = {"X-Forwarded-Proto": "https", "Host": "queue.example.com"}
    key = await browser.key("ops", "admin")
    page = await browser.get("/ui/login", headers=https)
    assert browser.set[0].endswith("; Secure")
    entered = await browser.form("/ui/login", token_of(page), https, key=key)

    assert browser.set[0].endswith("; SameSite=Strict; Secure")
    for answer in (page, entered, await browser.get("/topics", headers=https)):
        assert answer.headers["Strict-Transport-Security"] == f"max-age={HSTS_S}"
    far = await browser.get("/ui/login", headers={**https, "X-Forwarded-For": "10.0.0.1"})
    assert b"not encrypted" not in far.body

    for headers in (
        {"Host": "queue.example.com"},
        {**https, "X-Forwarded-Proto": "http"},
        {**https, "X-Forwarded-Proto": "https, http"},
        {**https, "Host": "localhost:8080"},
    ):
        answer = await browser.get("/ui/login", headers=headers)
        assert "Strict-Transport-Security" not in answer.headers, headers


@pytest.mark.parametrize("proxies", [[], ["10.0.0.0/8"]])
async def test_whoever_is_no_trusted_proxy_is_not_believed(browser: Browser) -> None:
    https = {"X-Forwarded-Proto": "https", "Host": "queue.example.com"}
    key = await browser.key("ops", "admin")
    page = await browser.get("/ui/login", headers=https)
    await browser.form("/ui/login", token_of(page), https, key=key)

    assert "Secure" not in browser.set[0]
    assert "Strict-Transport-Security" not in page.headers


async def test_session_ends_with_its_key_and_after_a_working_day(
    browser: Browser, keys: Keys, clock: Clock
) -> None:
    await browser.key("spare", "admin")
    await browser.log_in(await browser.key("ops", "admin"))
    kept = dict(browser.cookies)
    assert (await browser.get("/ui")).status == 200

    clock.now_ms += LIFE_S * 1000 - 2000
    assert (await browser.get("/ui")).status == 200
    clock.now_ms += 3000
    assert (await browser.get("/ui")).status == 303

    clock.now_ms -= LIFE_S * 500
    browser.cookies = kept
    assert (await browser.get("/ui")).status == 200
    await keys.cluster.command(RevokeKey("ops"), 1)
    assert (await browser.get("/ui")).status == 303
    assert (await browser.get("/ui/data/topics/orders")).status == 401


async def test_made_up_sessions_are_none(browser: Browser) -> None:
    await browser.key("spare", "admin")
    await browser.log_in(await browser.key("ops", "admin"))
    session = browser.cookies["goqueue_session"]

    for made_up in (
        session.replace("ops", "spare"),
        session[:-1] + ("A" if session[-1] != "A" else "B"),
        re.sub(r"\.(\d+)\.", ".99999999999.", session),
        "x" * 5000,
        "ops.1.é",
    ):
        browser.cookies["goqueue_session"] = made_up
        assert (await browser.get("/ui")).status == 303, made_up[:40]


async def test_wrong_keys_are_told_so_recorded_and_limited(browser: Browser) -> None:
    for number in range(FAILURES_MAX):
        refused = await browser.log_in(f"nobody.0123456789abcdef{number}")
        assert (refused.status, refused.headers["X-GoQueue-Error"]) == (401, "unauthenticated")
        assert b'role="alert"' in refused.body and b"0123456789abcdef" not in refused.body
    limited = await browser.log_in(await browser.key("ops", "admin"))

    assert limited.status == 429 and int(limited.headers["Retry-After"]) > 0
    told = [
        (one.operation, one.status, one.code) for one in browser.accesses if one.method == "POST"
    ]
    assert told[0] == ("login", 401, "unauthenticated")
    assert told[-1] == ("login", 429, "too_many_failures")


async def test_login_is_recorded_with_its_key(browser: Browser) -> None:
    await browser.log_in(await browser.key("ops", "admin"))

    last = browser.accesses[-1]
    assert (last.operation, last.status) == ("login", 303)
    assert last.principal is not None and last.principal.key_id == "ops"


async def test_forms_of_other_sites_log_nobody_in_or_out(browser: Browser) -> None:
    key = await browser.key("ops", "admin")
    await browser.log_in(key)
    token = token_of(await browser.get("/ui"))

    for path in ("/ui/login", "/ui/logout"):
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            refused = await browser.form(path, token, headers, key=key)
            told = (refused.status, refused.headers["X-GoQueue-Error"])
            assert told == (403, "cross_site_request")
        assert (await browser.form(path, "made-up", key=key)).status == 403


async def test_producer_sees_nothing(browser: Browser) -> None:
    refused = await browser.log_in(await browser.key("app", "producer"))

    assert (refused.status, refused.headers["X-GoQueue-Error"]) == (403, "forbidden")
    assert "goqueue_session" not in browser.cookies


async def leased(broker: NodeBroker) -> None:
    """The group `team` has been in `orders`."""
    await broker.queue.receive(
        "team", ["orders"], claim=NOBODY, limit=1, wait_s=0, visibility_ms=None
    )


PAGES = (
    "/ui",
    "/ui/topics",
    "/ui/groups",
    "/ui/dead",
    "/ui/messages?q=k",
    "/ui/messages?by=key&q=k",
)


async def test_key_sees_only_what_its_prefixes_cover(
    browser: Browser, broker: NodeBroker, put: Any
) -> None:
    await put(b"secret-of-orders", keys=[b"k"])
    await leased(broker)
    await browser.log_in(await browser.key("mine", "consumer", "mine."))

    for path in PAGES:
        page = await browser.get(path)
        assert page.status == 200, (path, page.body[-600:])
        body = unescape(page.body.decode()).replace('placeholder="orders:0:42"', "")
        assert "orders" not in body and "team" not in body, path
    for path in (
        "/ui/topics/orders",
        "/ui/topics/orders/messages",
        "/ui/topics/orders/delayed",
        "/ui/data/topics/orders",
        "/ui/dead/team/orders",
        "/ui/messages/orders:0:0",
    ):
        page = await browser.get(path)
        assert page.status == 403, path
        assert b"secret-of-orders" not in page.body
    assert (await browser.get("/ui/topics/mine.a")).status == 200


async def test_acting_is_for_roles_that_may(browser: Browser, broker: NodeBroker) -> None:
    await leased(broker)

    for role, status in (("consumer", 200), ("admin", 200), ("readonly", 403)):
        await browser.log_in(await browser.key(role, role))
        page = await browser.get("/ui/dead/team/orders")
        assert (b"Dry run of a redrive" in page.body) is (status == 200), role
        acted = await browser.form("/ui/dead/team/orders", token_of(page), action="purge")
        assert acted.status == status, role


async def test_node_that_asks_for_no_key_has_no_login(client: Client) -> None:
    assert (await client.get("/ui/login")).status == 404
    assert b"Log out" not in (await client.get("/ui")).body


async def test_clear_text_beyond_this_machine_is_warned_of(browser: Browser) -> None:
    near = await browser.get("/ui/login")
    far = await browser.get("/ui/login", headers={"X-Forwarded-For": "10.0.0.1"})

    assert b"not encrypted" not in near.body and b"not encrypted" in far.body


async def test_a_tail_ends_with_the_session_it_is_of(browser: Browser, clock: Clock) -> None:
    assert (await browser.get("/ui/data/topics/orders/tail")).status == 401
    await browser.log_in(await browser.key("watcher", "readonly"))

    endless = aiohttp.ClientTimeout(total=None)
    tail = asyncio.ensure_future(browser.get("/ui/data/topics/orders/tail", timeout=endless))
    await eventually(lambda: browser.accesses[-1].operation == "showTail")
    clock.now_ms += LIFE_S * 1000

    assert b'"code":"unauthenticated"' in (await tail).body
