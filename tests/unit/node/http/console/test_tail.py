"""The console's live tail: what the API has, for whom the page is, and told by a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.unit.node.http.conftest import Client

Put = Callable[..., Awaitable[None]]
TAIL = "/ui/data/topics/orders/tail"


async def test_a_page_of_messages_names_the_tail_of_its_partition(client: Client, put: Put) -> None:
    await put(b"a", partition=1)

    page = (await client.get("/ui/topics/orders/messages?partition=1")).body.decode()

    assert f'data-source="{TAIL}?partition=1"' in page
    assert 'data-messages="/ui/messages/"' in page and 'data-topic="orders"' in page


async def test_the_tail_of_a_page_is_the_apis_with_the_pages_headers(
    client: Client, put: Put
) -> None:
    await put(b"<b>", partition=1)

    answer = await client.get(f"{TAIL}?partition=1&offset=earliest&wait=1ms")

    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
    assert b'"value":"<b>"' in answer.body
    assert (await client.get("/ui/data/topics/none/tail")).status == 404


async def test_the_script_shows_messages_as_text_only(client: Client) -> None:
    script = (await client.get("/ui/static/console.js")).body.decode()

    assert "EventSource" in script and "textContent" in script
    assert not [name for name in ("innerHTML", "outerHTML", "insertAdjacentHTML") if name in script]
