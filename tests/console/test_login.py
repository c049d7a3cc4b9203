"""Logging in and out of a node whose doors are locked, in a real browser and by its keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.http.console.parts import SESSION
from tests.cluster.processes import Cluster
from tests.console.axe import faults
from tests.console.chromium import Page

ID, SECRET = "root", "0123456789abcdef"
KEY = f"{ID}.{SECRET}"


@pytest.fixture
def locked(program: str, tmp_path: Path) -> Iterator[str]:
    """The address of a node that wants API keys, and has an admin's."""
    file = tmp_path / "admin-key"
    file.write_text(KEY)
    settings = ("auth.enabled=true", f"auth.adminKeyFile={file}")
    with Cluster(tmp_path / "cluster", 1, settings).start() as cluster:
        yield cluster[0].url


async def test_a_key_opens_the_page_that_was_wanted_and_logging_out_closes_it(
    locked: str, page: Page
) -> None:
    await page.goto(f"{locked}/ui/topics?q=none")
    assert await at(page) == "/ui/login"
    assert await page.evaluate("document.activeElement.name") == "key"
    assert await faults(page) == []
    assert page.complaints == []

    await log_in(page, f"{ID}.fedcba9876543210")
    assert await at(page) == "/ui/login"
    assert await page.evaluate("document.querySelector('[role=alert]').textContent.length > 10")
    assert await page.evaluate("document.querySelector('[name=key]').value") == ""
    assert await faults(page) == []
    assert [one for one in page.complaints if " 401 " not in one] == []
    page.complaints.clear()

    await log_in(page, KEY)
    assert await page.evaluate("location.pathname + location.search") == "/ui/topics?q=none"
    assert await page.evaluate("document.querySelector('.who').textContent") == f"Logged in as {ID}"
    kept = "document.cookie + JSON.stringify({...localStorage, ...sessionStorage})"
    shown = await page.evaluate(f"{kept} + document.documentElement.outerHTML")
    assert SECRET not in shown and SESSION not in await page.evaluate("document.cookie")

    page.expect()
    await page.evaluate("document.querySelector('form[action$=logout] button').click()")
    await page.leads_on()
    assert await at(page) == "/ui/login"
    await page.goto(f"{locked}/ui/topics")
    assert await at(page) == "/ui/login"
    assert page.complaints == []


async def log_in(page: Page, key: str) -> None:
    """As people do: it is written where the page has put the cursor."""
    await page.type(key)
    page.expect()
    await page.key("Enter")
    await page.leads_on()


async def at(page: Page) -> str:
    path: str = await page.evaluate("location.pathname")
    return path
