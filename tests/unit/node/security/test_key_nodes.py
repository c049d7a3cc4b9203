"""API keys on three nodes: made, rotated and revoked anywhere, and true everywhere soon."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from log.levels import HIGHEST
from tests.unit.node.test_node import eventually
from tests.unit.node.three_nodes import NAMES, ThreeNodes, three_nodes

ROOT = "root.0123456789abcdef"
HOLDS_WITHIN_S = 30.0
"""After a revoke was acknowledged. On a machine that is not busy it is a heartbeat of 50 ms, as the
documentation of security says."""


@dataclass
class Asked:
    """Three nodes, asked over HTTP."""

    nodes: ThreeNodes
    session: aiohttp.ClientSession

    async def __call__(
        self, name: str, method: str, path: str, token: str | None = ROOT, body: Any = None
    ) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.nodes.running[name].front.port}{path}"
        headers = {} if token is None else {"X-API-Key": token}
        async with self.session.request(method, url, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def status(self, name: str, token: str) -> int:
        return (await self(name, "GET", "/topics", token))[0]

    async def everywhere(self, token: str) -> set[int]:
        return set(await asyncio.gather(*(self.status(n, token) for n in self.nodes.running)))


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    file = tmp_path / "admin-key"
    file.write_text(ROOT + "\n")
    settings = {
        "auth.enabled": True,
        "auth.adminKeyFile": str(file),
        "cluster.autoFinish": True,
    }
    async with three_nodes(**settings) as nodes, aiohttp.ClientSession() as session:
        found = Asked(nodes, session)
        await eventually(lambda: all(broker.node.ready().ready for broker in nodes.brokers), 30)
        assert await found.everywhere(ROOT) == {200}
        yield found


async def test_what_is_made_on_one_node_holds_on_every_node(asked: Asked) -> None:
    wanted = {"role": "readonly", "prefixes": ["*"], "id": "reader"}
    _, made = await asked("n1", "POST", "/admin/keys", ROOT, wanted)
    assert await asked.everywhere(made["key"]) == {200}

    # rotated: both secrets, then the newer one alone
    _, second = await asked("n2", "POST", "/admin/keys/reader/rotate", ROOT, {"grace": "1h"})
    assert await asked.everywhere(made["key"]) == await asked.everywhere(second["key"]) == {200}
    _, third = await asked("n3", "POST", "/admin/keys/reader/rotate", ROOT, {"grace": "0s"})
    assert await asked.everywhere(third["key"]) == {200}
    await gone_within(asked, second["key"])
    await gone_within(asked, made["key"])

    status, _ = await asked("n2", "DELETE", "/admin/keys/reader")
    assert status == 200
    await gone_within(asked, third["key"])


async def gone_within(asked: Asked, token: str) -> None:
    """Refused by every node in time, and never let in again."""
    ends_s = time.monotonic() + HOLDS_WITHIN_S
    while (found := await asked.everywhere(token)) != {401}:
        assert time.monotonic() < ends_s, found
    assert await asked.everywhere(token) == {401}


async def test_keys_outlive_their_nodes_and_the_seed_is_sown_once(asked: Asked) -> None:
    wanted = {"role": "admin", "prefixes": ["*"], "id": "second"}
    _, made = await asked("n1", "POST", "/admin/keys", ROOT, wanted)
    assert (await asked("n1", "DELETE", "/admin/keys/root", made["key"]))[0] == 200
    for name in NAMES:
        await asked.nodes.stop(name)
    for name in NAMES:
        await asked.nodes.start(name)
    await eventually(lambda: all(broker.node.ready().ready for broker in asked.nodes.brokers), 30)

    assert await asked.everywhere(made["key"]) == {200}
    assert await asked.everywhere(ROOT) == {401}
    _, listed = await asked("n2", "GET", "/admin/keys", made["key"])
    assert [(one["id"], one["state"]) for one in listed["keys"]] == [
        ("root", "revoked"),
        ("second", "active"),
    ]


async def test_a_node_that_is_cut_off_goes_on_with_the_keys_it_knows_and_says_so_of_others(
    asked: Asked,
) -> None:
    assert await asked.status("n1", ROOT) == 200
    await asked.nodes.stop("n2")
    await asked.nodes.stop("n3")
    await eventually(
        lambda: asked.nodes.running["n1"].broker.node.cluster_view().controller is None, 30
    )

    assert await asked.status("n1", ROOT) == 200
    assert await asked.status("n1", "new.0123456789abcdef") == 503


async def test_session_that_was_logged_out_of_is_over_on_every_node_also_after_restarts(
    asked: Asked,
) -> None:
    page = {"Sec-Fetch-Site": "same-origin"}

    async def ask(name: str, method: str, path: str, **form: str) -> tuple[int, str]:
        url = f"http://127.0.0.1:{asked.nodes.running[name].front.port}{path}"
        said = "; ".join(f"{key}={value}" for key, value in cookies.items())
        more = {"data": form} if method == "POST" else {}
        headers = {**page, "Cookie": said}
        async with asked.session.request(
            method, url, headers=headers, allow_redirects=False, **more
        ) as answer:
            cookies.update({name: one.value for name, one in answer.cookies.items()})
            text = await answer.text()
            found = re.search(r'name="token" value="([^"]+)"', text)
            return answer.status, found[1] if found else ""

    async def statuses() -> list[int]:
        return [(await ask(name, "GET", "/ui"))[0] for name in NAMES]

    async def levels() -> set[int]:
        return {(await asked(name, "GET", "/version"))[1]["level"] for name in NAMES}

    cookies: dict[str, str] = {}
    ends_s = time.monotonic() + HOLDS_WITHIN_S
    while await levels() != {HIGHEST}:  # below it, a node ends the session for itself alone
        assert time.monotonic() < ends_s
    _, token = await ask("n1", "GET", "/ui/login")
    assert (await ask("n1", "POST", "/ui/login", token=token, key=ROOT))[0] == 303
    stolen = dict(cookies)
    assert await statuses() == [200, 200, 200]

    _, token = await ask("n2", "GET", "/ui")
    assert (await ask("n2", "POST", "/ui/logout", token=token))[0] == 303
    cookies = dict(stolen)
    ends_s = time.monotonic() + HOLDS_WITHIN_S
    while await statuses() != [303, 303, 303]:
        assert time.monotonic() < ends_s

    for name in NAMES:
        await asked.nodes.stop(name)
    for name in NAMES:
        await asked.nodes.start(name)
    await eventually(lambda: all(broker.node.ready().ready for broker in asked.nodes.brokers), 30)
    assert await asked.everywhere(ROOT) == {200}
    assert await statuses() == [303, 303, 303]
