"""The console in a real browser over a real cluster: nothing complains, anybody can use it."""

from __future__ import annotations

import os

from tests.cluster.processes import Cluster, eventually, publish
from tests.console.axe import faults
from tests.console.chromium import Page
from tests.console.scene import Scene, ok

WIDTHS = (375, 1280)
PHONES = (360, 390)
WAYS = [("light", 375), ("dark", 1280), ("dark", 375), ("light", 1280)]


async def test_no_page_complains_asks_elsewhere_or_keeps_anybody_out(
    cluster: Cluster, scene: Scene, page: Page
) -> None:
    """No error in the browser's console, no violation of the policy, no request to another origin,
    nothing that axe-core finds, nothing wider than the screen: phone and desk, light and dark.

    Each page is looked at in one of the four ways, in turn; in all with GOQUEUE_CONSOLE=all."""
    url = cluster[0].url
    found: list[str] = []
    for number, (name, path) in enumerate(scene.paths().items()):
        ways = WAYS if os.environ.get("GOQUEUE_CONSOLE") == "all" else [WAYS[number % len(WAYS)]]
        for scheme, width in ways:
            await page.prefer(scheme)
            await page.size(width)
            await page.goto(url + path)
            where = f"{name} {width} {scheme}"
            if name == "topic":
                await page.until("!!document.querySelector('.uplot canvas')")
            found += [f"{where}: {one}" for one in await faults(page)]
            for other in WIDTHS:
                await page.size(other)
                wide = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
                if wide > 0:
                    found.append(f"{where}: {wide} px wider than {other}")
    expected = f"{url}/ui/topics/no-such-topic"
    complaints = [one for one in page.complaints if not one.endswith(expected)]

    assert found == [], "\n".join(found)
    assert complaints == []
    assert [one for one in page.requests if not one.startswith(f"{url}/ui")] == []


async def test_a_phone_shows_pages_and_what_is_said_in_tables_without_scrolling(
    cluster: Cluster, scene: Scene, page: Page
) -> None:
    """No page is wider than a phone, and tables of texts stack: why a message is where it is, and
    its events' details, are within the screen. Tables of figures scroll, in a box of their own."""
    for width in PHONES:
        await page.size(width)
        for name, path in scene.paths().items():
            await page.goto(cluster[0].url + path)
            told = await page.evaluate(
                "(() => { const at = document.documentElement, right = at.clientWidth;"
                "const cells = [...document.querySelectorAll('td.wrap, td.details')];"
                "const boxes = cells.map(one => one.closest('.scroll'));"
                "return [at.scrollWidth - right, cells.filter(one =>"
                " one.getBoundingClientRect().left < 0 ||"
                " one.getBoundingClientRect().right > right).length,"
                "boxes.filter(one => one.scrollWidth > one.clientWidth).length, cells.length];})()"
            )
            assert told[:3] == [0, 0, 0], f"{name} at {width}: wider, cut cells, cut tables: {told}"
            if name in ("message", "message-dead"):
                seen = await page.evaluate(
                    "['Because', 'Next', 'Details'].every(one =>"
                    ' document.querySelector(`td[data-label="${one}"]`).offsetHeight > 0)'
                )
                assert seen and told[3], name
            if name == "topic":
                await page.until("!!document.querySelector('.uplot canvas')")
                room, wanted = await page.evaluate(
                    "(() => { const right = one =>"
                    " document.querySelector(one).getBoundingClientRect().right;"
                    "const pen = document.createElement('canvas').getContext('2d');"
                    "pen.font = '12px system-ui';"
                    "return [right('.uplot canvas') - right('.uplot .u-over'),"
                    "pen.measureText('00:00:00').width / 2]; })()"
                )
                assert room >= wanted, f"a time below the chart's right end is cut at {width}"


async def test_everything_can_be_reached_by_the_keyboard(
    cluster: Cluster, scene: Scene, page: Page
) -> None:
    """From the top: the skip link is first and works; every stop is to be seen and shows its
    focus."""
    await page.size(1280)
    await page.goto(f"{cluster[0].url}/ui/dead/fraud/orders")
    await page.key("Tab")
    assert await page.evaluate("document.activeElement.className") == "skip"
    await page.key("Enter")
    assert await page.until("location.hash") == "#main"

    await page.goto(f"{cluster[0].url}/ui/dead/fraud/orders")
    stops: list[str] = []
    for _ in range(300):
        await page.key("Tab")
        told = await page.evaluate(
            "(() => { const at = document.activeElement; if (at === document.body) return null;"
            "const box = at.getBoundingClientRect(), style = getComputedStyle(at);"
            "return [at.tagName + ' ' + (at.name || at.id || at.textContent.trim().slice(0, 40)),"
            "box.width > 0 && box.height > 0, style.outlineStyle !== 'none']; })()"
        )
        if told is None:
            break
        name, is_seen, is_marked = told
        assert is_seen and is_marked, f"{name} has the focus, and does not show it"
        stops.append(name)
    wanted = await page.evaluate(
        "document.querySelectorAll('a[href], button:not([hidden]), summary,"
        ' input:not([type=hidden]), [tabindex="0"]\').length'
    )

    assert len(stops) >= wanted - 60, "closed details hide theirs"
    for name in (
        "A Cluster",
        "INPUT q",
        "BUTTON theme",
        "INPUT reason",
        "BUTTON Dry run of a purge",
    ):
        assert name in stops, stops


async def test_a_dry_run_by_keyboard_and_then_the_redrive(
    cluster: Cluster, scene: Scene, page: Page
) -> None:
    node = cluster[0]
    before = ok(node, "GET", "/v1/groups/fraud/dlq?topic=orders")["total"]
    await page.size(1280)
    await page.goto(f"{node.url}/ui/dead/fraud/orders?reason=downstream")
    await page.evaluate(
        "[...document.querySelectorAll('button')]"
        ".find(one => one.textContent === 'Dry run of a redrive').focus()"
    )
    page.expect()
    await page.key("Enter")
    await page.leads_on()
    assert "8 dead letters would be ready again" in await page.evaluate("document.body.textContent")
    assert ok(node, "GET", "/v1/groups/fraud/dlq?topic=orders")["total"] == before

    await page.evaluate("document.querySelector('button.primary').focus()")
    page.expect()
    await page.key("Enter")
    await page.leads_on()
    assert "has begun" in await page.evaluate("document.querySelector('#outcome').textContent")
    eventually(
        "they are back",
        lambda: ok(node, "GET", "/v1/groups/fraud/dlq?topic=orders")["total"] == before - 8,
    )
    assert page.complaints == []


async def test_colours_are_chosen_and_stay_chosen(
    cluster: Cluster, scene: Scene, page: Page
) -> None:
    await page.prefer("light")
    await page.goto(f"{cluster[0].url}/ui")
    light = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    for _ in range(2):
        await page.evaluate("document.querySelector('#theme').click()")
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != light

    await page.goto(f"{cluster[0].url}/ui/topics")
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    await page.evaluate("document.querySelector('#theme').click()")
    assert await page.evaluate("document.documentElement.dataset.theme || 'auto'") == "auto"


async def test_lists_are_filtered_while_one_types_and_pages_refresh_themselves(
    cluster: Cluster, scene: Scene, page: Page
) -> None:
    await page.goto(f"{cluster[0].url}/ui/topics")
    await page.evaluate("document.querySelector('main input[name=q]').focus()")
    await page.type("pay")
    await page.until("document.querySelectorAll('tbody tr').length === 1")
    assert await page.evaluate("location.search") == "?q=pay"

    await page.goto(f"{cluster[0].url}/ui/topics")
    await page.evaluate("document.querySelector('#live-region').dataset.old = 'yes'; true")
    await page.until("!document.querySelector('#live-region').dataset.old", 12)
    assert page.complaints == []


async def test_a_policy_stops_what_gets_in_nevertheless(
    cluster: Cluster, scene: Scene, page: Page
) -> None:
    """Not only is nothing foreign markup: if it were, it would not run. And the browser tells."""
    await page.goto(f"{cluster[0].url}/ui")
    await page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">');"
        "const one = document.createElement('script'); one.textContent = 'window.ran = 1';"
        "document.body.append(one); true"
    )
    await page.evaluate("new Promise(done => setTimeout(done, 200))")

    assert await page.evaluate("window.ran === undefined")
    assert any("Content Security Policy" in one for one in page.complaints), page.complaints


async def test_new_messages_are_shown_as_they_come_as_text_and_stop_when_asked(
    cluster: Cluster, scene: Scene, page: Page
) -> None:
    cluster[0].ask("POST", "/topics", {"name": "tailed", "num_partitions": 1})
    publish(cluster[0], "tailed", [{"value": "before"}])  # its partition is led from here on
    await page.goto(f"{cluster[0].url}/ui/topics/tailed/messages")
    await page.evaluate("document.querySelector('#tail button').click(); true")
    await page.until("document.querySelector('#tail [data-state]').textContent.includes('Waiting')")
    publish(cluster[0], "tailed", [{"value": "<b>bold</b>", "key": "k"}, {"value": "last"}])

    await page.until("document.querySelectorAll('#tail li').length === 2", 12)
    assert await page.evaluate("document.querySelector('#tail li pre').textContent") == "last"
    assert await page.evaluate("document.querySelectorAll('#tail b').length") == 0
    assert await page.evaluate("document.querySelector('#tail li a').pathname") == (
        "/ui/messages/tailed%3A0%3A2"
    )
    assert page.complaints == []


async def test_pages_say_what_is_stale_when_nodes_are_gone(
    cluster: Cluster, scene: Scene, page: Page
) -> None:
    """The last of these tests: it ends two of the three nodes."""
    url = cluster[0].url
    cluster[2].kill()
    await page.goto(f"{url}/ui")
    await page.until("fetch('/ui').then(a => a.text()).then(t => t.includes('node-3 is dead'))", 15)
    cluster[1].kill()
    await page.until("fetch('/ui').then(a => a.text()).then(t => t.includes('out of touch'))", 15)
    kept = ("cluster", "topics", "topic", "groups", "message", "dead", "messages")
    for name in kept:
        await page.goto(url + scene.paths()[name])
        assert "out of touch" in await page.evaluate("document.body.textContent"), name
        if name in ("cluster", "topic"):
            assert await faults(page) == [], name
    assert await page.evaluate("document.querySelectorAll('h1').length") == 1
