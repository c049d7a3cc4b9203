"""What protects the console: its policy, who may act, forged forms, and the dry run before."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from html import unescape
from typing import Any

import aiohttp
import pytest

from goqueue.wire.errors import GoQueueError
from node.api.auth.hosts import is_loopback
from node.broker.node import NodeBroker
from node.http.console.forgery import PLAN_S, PlanExpired, Tokens
from node.http.server.app import HttpFront
from tests.one_node import until
from tests.unit.node.http.conftest import Answer, Client

Put = Callable[..., Awaitable[None]]
PATH = "/ui/dead/work/orders"


class Visitor:
    """A browser with the page of dead letters open: sends its forms as a browser would."""

    def __init__(self, client: Client, page: Answer) -> None:
        self.client = client
        self.headers = {
            "Origin": f"http://127.0.0.1:{client.front.port}",
            "Sec-Fetch-Site": "same-origin",
            "Cookie": page.headers["Set-Cookie"].partition(";")[0],
        }
        self.token = field(page, "token")

    async def send(self, headers: dict[str, str | None] | None = None, **fields: str) -> Answer:
        sent = {**self.headers, **(headers or {})}
        return await self.client(
            "POST",
            PATH,
            data={"token": self.token, **fields},
            headers={name: value for name, value in sent.items() if value is not None},
        )


def field(page: Answer, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page.body.decode())
    assert found, name
    return unescape(found[1])


@pytest.fixture
async def dead(client: Client, put: Put) -> None:
    """Four dead letters of the group `work`, two of each reason."""
    await put(b"a", b"b", b"c", b"d")
    told = await client.post("/v1/groups/work/receive", {"topic": "orders", "limit": 4})
    for n, message in enumerate(told.json["messages"]):
        body = {"receipt": message["receipt"], "reason": ("late", "broken")[n % 2]}
        assert (await client.post("/v1/groups/work/reject", body)).status == 200


@pytest.fixture
async def visitor(client: Client, dead: None) -> Visitor:
    return Visitor(client, await client.get(PATH))


async def count(broker: NodeBroker) -> int:
    return sum(
        sum(reasons.values()) for reasons in (await broker.letters.dead_groups("orders")).values()
    )


async def test_every_answer_has_a_policy_that_allows_only_files_of_this_origin(
    client: Client, orders: str
) -> None:
    for path in ("/ui", "/ui/nowhere", "/ui/static/console.js", "/ui/data/topics/orders"):
        answer = await client.get(path, headers={"Origin": "http://elsewhere.example"})
        policy = answer.headers["Content-Security-Policy"].split("; ")

        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "style-src 'self'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert not [name for name in answer.headers if name.startswith("Access-Control")]


async def test_a_preflight_for_the_console_is_not_granted(client: Client) -> None:
    answer = await client("OPTIONS", PATH, headers={"Origin": "http://elsewhere.example"})

    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": None, "Origin": None},
        {"Cookie": None},
        {"Cookie": "goqueue_console=AAAAAAAAAAAAAAAAAAAAAA"},
    ],
    ids=str,
)
async def test_a_form_from_elsewhere_is_refused(
    broker: NodeBroker, visitor: Visitor, headers: dict[str, str | None]
) -> None:
    answer = await visitor.send(headers, action="purge")

    assert (answer.status, answer.headers["X-GoQueue-Error"]) == (403, "cross_site_request")
    assert await count(broker) == 4


@pytest.mark.parametrize("token", ["", "x", "é", "A" * 5000])
async def test_a_form_without_its_page_s_token_is_refused(visitor: Visitor, token: str) -> None:
    answer = await visitor.send(token=token, action="purge")

    assert (answer.status, answer.headers["X-GoQueue-Error"]) == (403, "cross_site_request")


async def test_an_older_browser_that_sends_only_its_origin_is_served(visitor: Visitor) -> None:
    assert (await visitor.send({"Sec-Fetch-Site": None}, action="purge")).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "10.1.2.3"},
        {"Forwarded": "for=10.1.2.3"},
        {"Host": "rebound", "Origin": "http://rebound"},
        {"Host": "10.0.0.1", "Origin": "http://10.0.0.1"},
    ],
    ids=str,
)
async def test_what_may_come_from_another_machine_only_looks(
    broker: NodeBroker, visitor: Visitor, headers: dict[str, str | None]
) -> None:
    answer = await visitor.send(headers, action="purge")

    assert (answer.status, answer.headers["X-GoQueue-Error"]) == (403, "console_read_only")
    assert await count(broker) == 4
    page = await visitor.client.get(
        PATH, headers={name: value for name, value in headers.items() if value and name != "Origin"}
    )
    assert b"This console only shows them" in page.body and b"Dry run of" not in page.body


async def test_a_node_that_listens_beyond_loopback_only_shows(
    broker: NodeBroker, dead: None
) -> None:
    front = HttpFront(broker, host="0.0.0.0", port=0)
    await front.start()
    try:
        async with aiohttp.ClientSession() as session:
            client = Client(session, front)
            page = await client.get(PATH)
            assert "listens beyond loopback" in unescape(page.body.decode())
            visitor = Visitor(client, page) if b'name="token"' in page.body else None
            assert visitor is None, "there is no form"
    finally:
        await front.stop()


@pytest.mark.parametrize("action", ["redrive", "purge"])
async def test_nothing_changes_before_a_dry_run_was_shown(
    broker: NodeBroker, visitor: Visitor, action: str
) -> None:
    unseen = await visitor.send(action=action, step="do", matched="4")
    assert (unseen.status, unseen.headers["X-GoQueue-Error"]) == (409, "dry_run_required")

    shown = await visitor.send(action=action)
    assert shown.status == 200 and b"Nothing has changed yet" in shown.body
    assert await count(broker) == 4

    plan = {"step": "do", "matched": field(shown, "matched"), "plan": field(shown, "plan")}
    for other in ({"reason": "late"}, {"matched": "3"}, {"rate": "5"}):
        refused = await visitor.send(**{"action": action, **plan, **other})
        assert refused.status == 409, other
    done = await visitor.send(action=action, **plan)
    assert done.status == 200, done.body
    await until(lambda: count(broker), lambda left: left == 0)


async def test_only_what_the_filter_names_is_purged(broker: NodeBroker, visitor: Visitor) -> None:
    shown = await visitor.send(action="purge", reason="late")
    assert field(shown, "matched") == "2"

    plan = {"step": "do", "matched": "2", "plan": field(shown, "plan")}
    assert (await visitor.send(action="purge", reason="late", **plan)).status == 200

    assert await broker.letters.dead_groups("orders") == {"work": {"broken": 2}}


async def test_another_number_than_was_shown_is_asked_about_again(
    broker: NodeBroker, visitor: Visitor
) -> None:
    shown = await visitor.send(action="purge")
    plan = {"step": "do", "matched": "4", "plan": field(shown, "plan")}
    only = await visitor.send(action="purge", reason="late")
    await visitor.send(
        action="purge", reason="late", step="do", matched="2", plan=field(only, "plan")
    )

    again = await visitor.send(action="purge", **plan)

    assert "It was 4 when you were asked, and is 2 now" in again.body.decode()
    assert await count(broker) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "drop"},
        {},
        {"action": "purge", "partition": "x"},
        {"action": "purge", "from": "yesterday"},
        {"action": "redrive", "rate": "-1"},
    ],
    ids=str,
)
async def test_forms_that_make_no_sense_are_refused(
    broker: NodeBroker, visitor: Visitor, fields: dict[str, str]
) -> None:
    answer = await visitor.send(**fields)

    assert (answer.status, answer.headers["X-GoQueue-Error"]) == (400, "bad_request")
    assert await count(broker) == 4


async def test_only_forms_are_taken_and_only_small_ones(visitor: Visitor) -> None:
    json = await visitor.client("POST", PATH, {"action": "purge"}, headers=visitor.headers)
    large = await visitor.send(action="purge", reason="x" * 70_000)

    assert (json.status, large.status) == (400, 413)


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("a.localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
    ],
)
def test_loopback_is_what_only_this_machine_can_mean(host: str, is_so: bool) -> None:
    assert is_loopback(host) is is_so


def test_a_plan_is_for_what_was_shown_and_for_a_while() -> None:
    now = [100.0]
    tokens = Tokens(lambda: now[0])
    plan = tokens.plan("purge", "a", "b")
    tokens.check_plan(plan, "purge", "a", "b")

    wrong: list[tuple[str, tuple[Any, ...]]] = [
        (plan, ("purge", "ab", "")),
        (plan, ("redrive", "a", "b")),
        ("", ("purge", "a", "b")),
        ("x.y", ("purge", "a", "b")),
        (f"999{plan}", ("purge", "a", "b")),
    ]
    for text, what in wrong:
        with pytest.raises(PlanExpired):
            tokens.check_plan(text, *what)
    with pytest.raises(PlanExpired):
        Tokens(lambda: now[0]).check_plan(plan, "purge", "a", "b")
    now[0] += PLAN_S + 1
    with pytest.raises(GoQueueError):
        tokens.check_plan(plan, "purge", "a", "b")
