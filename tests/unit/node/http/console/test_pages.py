"""Every page against a real broker: what it shows and escapes, errors, and the switch."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from typing import Any

import aiohttp
import pytest

from goqueue.wire.errors import NoQuorum
from node.broker.node import NodeBroker
from node.http.console.front import PAGES
from node.http.console.templates import FOLDER
from node.http.server.app import HttpFront
from tests.unit.node.http.conftest import Client, Clock

Put = Callable[..., Awaitable[None]]
HOSTILE = "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}\u202e"


class Outline(HTMLParser):
    """What a page is made of: its tags with their attributes, and its text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
async def filled(client: Client, clock: Clock, put: Put) -> str:
    """A topic with hostile messages, dead letters with hostile reasons, and members with hostile
    names; the id of a dead letter."""
    await put(
        HOSTILE.encode(),
        b'{"a":{"b":"<b>1</b>"}}',
        bytes(range(256)),
        keys=[HOSTILE.encode(), b"\xff\x00", b"k"],
        headers=[((HOSTILE[:60], HOSTILE.encode()),), (), ()],
        message_ids=[HOSTILE, None, None],
    )
    await put(b"later", deliver_at_ms=[clock.now_ms + 3_600_000], keys=[HOSTILE.encode()])
    await client.post("/v1/groups/crew/join", {"topics": ["orders"], "client_id": HOSTILE[:60]})
    told = await client.post("/v1/groups/work/receive", {"topic": "orders", "limit": 2})
    for message in told.json["messages"]:
        body = {"receipt": message["receipt"], "reason": HOSTILE}
        assert (await client.post("/v1/groups/work/reject", body)).status == 200
    return str(told.json["messages"][0]["id"])


def pages(id: str) -> list[str]:
    return [
        "/ui",
        "/ui?q=ord",
        "/ui/topics",
        "/ui/topics/orders",
        "/ui/topics/orders/messages?partition=0&offset=0",
        "/ui/topics/orders/delayed",
        "/ui/groups",
        "/ui/groups/crew",
        "/ui/groups/work",
        "/ui/messages",
        "/ui/messages?topic=orders",
        f"/ui/messages/{id}",
        "/ui/dead",
        "/ui/dead/work/orders",
    ]


async def test_every_page_is_whole_and_no_foreign_text_becomes_markup(
    client: Client, filled: str
) -> None:
    for path in pages(filled):
        answer = await client.get(path)
        outline = Outline(answer.body)

        assert answer.status == 200, f"{path}: {answer.body[-800:]!r}"
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert [a for a in outline.named("script") if not str(a["src"]).startswith("/ui/")] == []
        assert outline.named("img") == [] and outline.named("style") == []
        for tag, attributes in outline.tags:
            loud = [name for name in attributes if name.startswith("on") or name == "style"]
            assert loud == [], f"{path}: <{tag} {loud}>"
        assert "\u202e" not in answer.body.decode(), path
        assert len(outline.named("h1")) == 1 and len(outline.named("main")) == 1


async def test_foreign_text_is_shown_as_it_is_with_the_unseen_made_visible(
    client: Client, filled: str
) -> None:
    shown = (await client.get("/ui/topics/orders/messages?partition=0&offset=0")).body.decode()
    text = Outline(shown.encode()).text

    assert HOSTILE.replace("\u202e", "\\u202e") in text
    assert "000010  10 11 12 13" in text
    assert "0xff00" in text
    dead = Outline((await client.get("/ui/dead/work/orders")).body).text
    assert "<script>alert(1)</script>" in dead


async def test_templates_mark_nothing_as_safe_and_hold_no_inline_script_or_style() -> None:
    found = {path.name: path.read_text() for path in FOLDER.glob("*.html")}

    assert len(found) > 10
    for name, text in found.items():
        assert not re.search(r"\|\s*safe|autoescape|Markup", text), name
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|https?://", text), name
        assert not re.search(r"<script(?![^>]*\ssrc=)", text), name


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/ui/nowhere", 404, "not_found"),
        ("/ui/topics/missing", 404, "unknown_topic"),
        ("/ui/topics/a%20b", 400, "invalid_name"),
        ("/ui/groups/missing", 404, "unknown_group"),
        ("/ui/messages/orders:0:99", 404, "not_found"),
        ("/ui/messages/nonsense", 400, "bad_request"),
        ("/ui/topics/orders?page=x", 400, "bad_request"),
        ("/ui/topics?q=%ff", 400, "bad_request"),
        ("/ui/static/../front.py", 404, "not_found"),
        ("/ui/static/%2e%2e%2ffront.py", 404, "not_found"),
        ("/ui/dead/work/missing", 404, "unknown_topic"),
    ],
)
async def test_errors_are_pages(
    client: Client, filled: str, path: str, status: int, code: str
) -> None:
    answer = await client.get(path)

    assert (answer.status, answer.headers["X-GoQueue-Error"]) == (status, code)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert Outline(answer.body).named("h1")


async def test_a_method_that_is_not_there_is_told_with_those_that_are(client: Client) -> None:
    answer = await client("DELETE", "/ui/topics")

    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"


async def test_head_answers_as_get_without_a_body(client: Client) -> None:
    answer = await client("HEAD", "/ui")

    assert (answer.status, answer.body) == (200, b"")


async def test_a_page_shows_what_it_has_where_a_part_does_not_answer(
    broker: NodeBroker, client: Client, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(*_: Any, **__: Any) -> Any:
        raise NoQuorum("nobody leads <here>")

    for part, name in (
        (broker.placement, "brokers"),
        (broker.placement, "reassignments"),
        (broker.figures, "queue_stats"),
        (broker.traces, "message_why"),
        (broker.redriving, "redrives"),
    ):
        monkeypatch.setattr(part, name, nobody)

    for path in pages(filled):
        answer = await client.get(path)
        assert answer.status == 200, f"{path}: {Outline(answer.body).text}"
        assert b"nobody leads <here>" not in answer.body
    assert "nobody leads <here>" in Outline((await client.get("/ui")).body).text
    assert "0 of 3 partitions answer" in Outline((await client.get("/ui/topics/orders")).body).text


async def test_attempts_are_told_of_what_is_not_settled_yet(client: Client, put: Put) -> None:
    await put(b"one")
    told = await client.post("/v1/groups/work/receive", {"topic": "orders", "limit": 1})
    flying = (await client.get("/ui/messages/orders:0:0")).body.decode()
    receipt = told.json["messages"][0]["receipt"]
    assert (await client.post("/v1/groups/work/ack", {"receipt": receipt})).status == 200

    acked = (await client.get("/ui/messages/orders:0:0")).body.decode()

    assert '<td role="cell" data-label="Attempts" class="num">1</td>' in flying
    assert '<td role="cell" data-label="Attempts" class="num">–</td>' in acked


async def test_an_id_leads_to_its_message_and_so_does_what_only_one_message_has(
    client: Client, put: Put
) -> None:
    await put(b"one", keys=[b"k-1"], message_ids=["order:7"])
    await put(b"two", keys=[b"k-2"])
    await put(b"three", keys=[b"k-2"])

    for text, place in (
        ("orders:0:1", "orders%3A0%3A1"),
        ("order:7", "orders%3A0%3A0"),
        ("k-1", "orders%3A0%3A0"),
    ):
        answer = await client.get(f"/ui/messages?q={text}", allow_redirects=False)
        assert (answer.status, answer.headers.get("Location")) == (303, f"/ui/messages/{place}"), (
            text
        )
    several = Outline((await client.get("/ui/messages?q=k-2")).body)
    assert "2 messages" in several.text
    nothing = Outline((await client.get("/ui/messages?q=k-3")).body)
    assert "Nothing matches." in nothing.text
    refused = Outline((await client.get("/ui/messages?q=xyz&by=trace_id")).body)
    assert "a trace id is 32 hex digits" in refused.text


async def test_the_switch_takes_the_console_away_and_leaves_the_api(broker: NodeBroker) -> None:
    front = HttpFront(broker, port=0, console=False)
    await front.start()
    try:
        async with aiohttp.ClientSession() as session:
            client = Client(session, front)
            for page in PAGES:
                answer = await client.get(re.sub(r"\{\w+\}", "x", page.path))
                assert (answer.status, answer.json["code"]) == (404, "not_found")
            assert (await client.get("/topics")).status == 200
    finally:
        await front.stop()


async def test_the_console_is_no_part_of_the_api_s_document(client: Client) -> None:
    document = (await client.get("/openapi.json")).json

    assert not [path for path in document["paths"] if "/ui" in path]
    assert (await client.get("/v1/ui")).status == 404


async def test_a_page_that_has_not_changed_is_not_sent_again(client: Client, orders: str) -> None:
    first = await client.get("/ui/topics/orders/delayed")
    again = await client.get(
        "/ui/topics/orders/delayed", headers={"If-None-Match": first.headers["Etag"]}
    )

    assert (again.status, again.body) == (304, b"")


async def test_colours_are_those_of_the_cookie_and_no_others(client: Client) -> None:
    for value, shown in (("dark", "dark"), ("light", "light"), ('"><script>', None)):
        page = await client.get("/ui", headers={"Cookie": f"goqueue_theme={value}"})
        assert Outline(page.body).named("html")[0].get("data-theme") == shown


async def test_messages_are_browsed_by_offset_and_by_time(
    client: Client, put: Put, clock: Any
) -> None:
    await put(*(b"early %d" % n for n in range(40)))
    clock.now_ms += 60_000
    await put(b"late")

    newest = Outline((await client.get("/ui/topics/orders/messages")).body).text
    assert "late" in newest and "early 16" in newest and "early 15" not in newest
    first = Outline((await client.get("/ui/topics/orders/messages?offset=0")).body).text
    assert "early 0" in first and "early 24" in first and "early 25" not in first
    since = Outline(
        (await client.get("/ui/topics/orders/messages?from=2025-01-14T15:00:30")).body
    ).text
    assert "late" in since and "early" not in since
    beyond = Outline((await client.get("/ui/topics/orders/messages?offset=1000")).body).text
    assert "Nothing is stored from here on." in beyond
    wrong = Outline((await client.get("/ui/topics/orders/messages?offset=x")).body).text
    assert "'x' is not an offset" in wrong


async def test_a_long_list_of_partitions_is_shown_a_page_at_a_time(
    broker: NodeBroker, client: Client
) -> None:
    for n in range(30):
        await broker.topics.create_topic(f"t-{n:02}", {"partitions": 3})

    first, second = await client.get("/ui"), await client.get("/ui?page=2")
    assert "Partitions 1 to 50 of 90" in Outline(first.body).text
    assert "t-16:1" in Outline(first.body).text and "t-16:2" not in Outline(first.body).text
    assert "t-16:2" in Outline(second.body).text
    assert "Partitions 51 to 90 of 90" in Outline((await client.get("/ui?page=99")).body).text
    assert "Partitions 1 to 3 of 3" in Outline((await client.get("/ui?q=t-07")).body).text


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 30, "%00", "0:0", "%F0%9F%92%A9", "1e3"])
async def test_strange_words_in_addresses_never_break_a_page(
    client: Client, filled: str, text: str
) -> None:
    names = ("q", "page", "partition", "offset", "from", "to", "after", "by", "topic", "group")
    query = "&".join(f"{name}={text}" for name in (*names, "state", "next", "reason", "key"))
    known = {"topic": "orders", "group": "work", "id": filled, "file": "console.css"}
    for page in PAGES:
        if page.method == "GET":
            strange = re.sub(r"\{\w+\}", text or "%20", page.path)
            ends = "&wait=1ms" if page.path.endswith("/tail") else ""  # else it goes on
            for path in (f"{page.path.format(**known)}?{query}{ends}", f"{strange}?{ends}"):
                answer = await client.get(path)
                assert answer.status < 500, (path, answer.body[-600:])
                for name in ("page", "partition", "offset", "from", "q", "after", "next"):
                    one = await client.get(f"{page.path.format(**known)}?{name}={text}{ends}")
                    assert one.status < 500, (path, name, one.body[-600:])


@pytest.mark.parametrize("number", ["9" * 4500, "0" * 9 + "9" * 20, "4294967296"])
async def test_a_number_without_end_is_no_partition(
    client: Client, filled: str, number: str
) -> None:
    answer = await client.get(f"/ui/dead/work/orders?partition={number}")

    assert answer.status == 200
    assert "is not a partition" in Outline(answer.body).text


async def test_no_table_is_without_a_caption_and_headers(client: Client, filled: str) -> None:
    for path in pages(filled):
        outline = Outline((await client.get(path)).body)
        tables = outline.named("table")
        assert len(outline.named("caption")) == len(tables), path
        assert all("scope" in attributes for attributes in outline.named("th")), path


def test_text_that_is_mostly_controls_is_dumped_and_one_that_has_some_is_not() -> None:
    from node.http.console.payload import look

    assert look(b"\x01\x02\x03a").kind == "binary"
    assert look(b"a line with a \x00 in it").text == "a line with a \\u0000 in it"
    assert look(b'{"n":12345678901234567890}').text == '{\n  "n": 12345678901234567890\n}'
    assert look(b"[" * 5000).kind == "text"
    assert look(b"x" * 9000).left_out == "5,000 more characters"
    assert look(None).kind == "null" and look(b"").kind == "empty"
