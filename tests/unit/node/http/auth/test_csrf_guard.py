"""Pages of other sites in a browser on this machine: what they are refused, and who is not."""

from __future__ import annotations

import pytest

from node.config.file import ConfigError, load_config
from node.factories import guard_of
from node.http.auth.csrf_guard import CsrfGuard, hostname
from node.http.server.app import Entrance, HttpFront

EVIL = "https://evil.example"
TOOLS = "https://tools.example.com"
PUBLISH = "/topics/orders/messages"
FORM = {"Content-Type": "text/plain", "Origin": EVIL}


@pytest.fixture
def shared(broker, limits):
    """A front that lets pages of TOOLS use it."""
    return HttpFront(
        broker, port=0, limits=limits, entrance=Entrance(csrf_guard=CsrfGuard(origins=[TOOLS]))
    )


async def test_page_elsewhere_can_neither_publish_nor_delete(client, broker, orders):
    published = await client.post(PUBLISH, {"value": "x"}, headers={"Origin": EVIL})
    as_form = await client("POST", PUBLISH, data=b'{"value":"x"}', headers=FORM)
    deleted = await client("DELETE", "/topics/orders", headers={"Origin": EVIL})
    sandboxed = await client("DELETE", "/topics/orders", headers={"Origin": "null"})

    for answer in (published, as_form, deleted, sandboxed):
        assert (answer.status, answer.json["code"]) == (403, "foreign_origin")
    assert (await client.get("/topics")).json["topics"] == ["orders"]
    assert (await client.get("/topics/orders")).json["total_messages"] == 0


async def test_page_elsewhere_is_told_by_no_preflight_that_it_may(client):
    preflight = await client(
        "OPTIONS", "/topics", headers={"Origin": EVIL, "Access-Control-Request-Method": "DELETE"}
    )
    plain = await client.get("/topics", headers={"Origin": EVIL})

    assert (preflight.status, plain.status) == (403, 403)
    for answer in (preflight, plain):
        assert not [name for name in answer.headers if name.startswith("Access-Control-")]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_image_of_a_page_elsewhere_leases_nothing(client, orders, site):
    poll = "/groups/workers/poll?member_id=m"
    answer = await client.get(poll, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"})

    assert (answer.status, answer.json["code"]) == (403, "foreign_origin")


@pytest.mark.parametrize(
    "headers", [{}, {"Sec-Fetch-Site": "none"}, {"Sec-Fetch-Site": "same-origin"}]
)
async def test_programs_typed_addresses_and_own_pages_are_served(client, orders, headers):
    assert (await client.post(PUBLISH, {"value": "x"}, headers=headers)).status == 200


async def test_own_origin_is_served(client, front, orders):
    own = {"Origin": f"http://127.0.0.1:{front.port}"}

    assert (await client.post(PUBLISH, {"value": "x"}, headers=own)).status == 200


@pytest.mark.parametrize("origin", ["http://[", "http://", "", "127.0.0.1", "a" * 4000])
async def test_origins_that_are_none_are_refused_and_break_nothing(client, origin):
    answer = await client.get("/topics", headers={"Origin": origin})

    assert (answer.status, answer.json["code"]) == (403, "foreign_origin")


@pytest.mark.parametrize("header", [b"Host: \xf8.example", b"Host: x\r\nOrigin: http://\xf8"])
async def test_headers_that_are_no_text_are_refused_and_shown_as_bytes(client, header):
    status, body = await client.raw(b"GET /topics HTTP/1.1\r\n" + header + b"\r\n\r\n")

    assert status == 403
    assert b"udcf8" in body


@pytest.mark.parametrize("path", ["/topics", "/v1/topics", "/ui", "/ui/static/console.js"])
async def test_name_of_another_that_was_made_to_lead_here_gets_nothing(client, path):
    answer = await client.get(path, headers={"Host": "rebound.evil.example:8080"})

    assert (answer.status, answer.json["code"]) == (403, "foreign_host")
    assert answer.json["host"] == "rebound.evil.example"


@pytest.mark.parametrize(
    "host",
    [
        "localhost:8080",
        "LOCALHOST",
        "app.localhost",
        "127.0.0.1:1",
        "[::1]:8080",
        "10.1.2.3",
        "node-1:8080",
    ],
)
async def test_names_nobody_can_register_are_own_names(client, host):
    assert (await client.get("/topics", headers={"Host": host})).status == 200


@pytest.mark.parametrize("host", ["[", "a.b:c:d", "ä.example", "..", "127.0.0.1.evil.example"])
async def test_strange_hosts_break_nothing(client, host):
    status, _ = await client.raw(f"GET /topics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

    assert status in (400, 403)


async def test_allowed_origin_may_ask_and_read(shared, broker):
    import aiohttp

    from tests.unit.node.http.conftest import Client

    await shared.start()
    async with aiohttp.ClientSession() as session:
        client = Client(session, shared)
        preflight = await client("OPTIONS", "/topics", headers={"Origin": TOOLS})
        answer = await client.get(
            "/topics", headers={"Origin": TOOLS, "Sec-Fetch-Site": "cross-site"}
        )
        other = await client.get("/topics", headers={"Origin": EVIL})
    await shared.stop()

    assert preflight.status == 204
    assert "PATCH" in preflight.headers["Access-Control-Allow-Methods"]
    assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"]
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == TOOLS
    assert answer.headers["Vary"] == "Origin"
    assert "X-Request-ID" in answer.headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert other.status == 403


def test_names_are_judged_where_only_this_machine_is_served() -> None:
    loopback = guard_of(load_config(env={}, overrides={"http.hosts": "queue.example.com"}))
    anywhere = guard_of(load_config(env={}, overrides={"broker.listeners.http": ":8080"}))

    assert loopback._hosts == {"queue.example.com", "127.0.0.1"}
    assert anywhere._hosts is None


@pytest.mark.parametrize("origin", ["tools.example.com", "https://a.b/path", "https://", "ftp://a"])
def test_what_is_no_origin_is_refused_at_start(origin: str) -> None:
    with pytest.raises(ConfigError, match="origins such as"):
        load_config(env={}, overrides={"http.corsOrigins": origin})


def test_hostname_drops_port_brackets_and_the_last_dot() -> None:
    assert [hostname(host) for host in ("A.b:1", "[::1]:2", "localhost.", "")] == [
        "a.b",
        "::1",
        "localhost",
        "",
    ]
