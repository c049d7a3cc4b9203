"""What keeps people out of a page, found by axe-core in the browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.console.chromium import Page

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


async def faults(page: Page) -> list[str]:
    """What axe-core finds on the page, one line each."""
    await page.evaluate(AXE + ";true")
    options = json.dumps({"runOnly": {"type": "tag", "values": RULES}})
    each = "node.html.slice(0, 160) + ' ' + node.any.map(check => check.message).join('; ')"
    told: list[dict[str, Any]] = await page.evaluate(
        f"axe.run(document, {options}).then(found => found.violations.map(one => "
        f"({{id: one.id, nodes: one.nodes.map(node => {each})}})))"
    )
    return [f"{one['id']}: {node}" for one in told for node in one["nodes"]]
