"""What the pages about keys and installing tell to type runs against a node that asks for keys, and
the keys made so reach what the pages say."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from log.levels import HIGHEST
from tests.cluster.conftest import Start
from tests.cluster.processes import Node, eventually

DOCS = Path(__file__).resolve().parents[2] / "docs" / "operations"
PAGES = ("install.md", "secrets.md", "security.md")
PROGRAM = "goqueue-cli "
CURL = r"curl [^\n]*'https://node:8080(/[^']*)'"
ROOT = "root-5f3a.0123456789abcdef0123456789abcdef"
WITH_KEY = {"X-API-Key": ROOT}


def commands(page: str) -> list[str]:
    """The lines of its blocks, and what stands in its sentences, that call the program alone."""
    text = (DOCS / page).read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, re.S)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    lines += re.findall(r"`(goqueue-cli (?:audit|consume|key) ?[^`]*)`", text)
    return [line for line in lines if line.startswith(PROGRAM)]


class Terminal:
    """Where commands are typed, with the admin's key."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._keys = 0

    def key(self) -> str:
        """The id of a key that nothing else depends on."""
        self._keys += 1
        id = f"spare-{self._keys}"
        body = {"id": id, "role": "consumer", "prefixes": ["spare."]}
        assert self.node.ask("POST", "/v1/admin/keys", body, headers=WITH_KEY).status == 201
        return id

    def type(self, line: str) -> Any:
        words = shlex.split(line.removeprefix(PROGRAM), comments=True)
        words = [self.key() if word == "KEY" else word for word in words if word != "--follow"]
        env = {"GOQUEUE_SERVER": self.node.url, "GOQUEUE_API_KEY": ROOT}
        return CliRunner(env=env).invoke(app, words)


@pytest.fixture
def terminal(start: Start, tmp_path: Path) -> Iterator[Terminal]:
    file = tmp_path / "admin-key"
    file.write_text(ROOT)
    node = start(
        1, "auth.enabled=true", f"auth.adminKeyFile={file}", "cluster.autoFinish=true"
    )[0]  # fmt: skip
    eventually(
        lambda: "the first admin key",
        lambda: node.ask("GET", "/v1/topics", headers=WITH_KEY).status == 200,
    )
    eventually(
        lambda: "the newest level",
        lambda: node.ask("GET", "/v1/version", headers=WITH_KEY).body["level"] == HIGHEST,
    )
    for topic in ("orders.new", "orders-old"):
        body = {"name": topic, "partitions": 1}
        assert node.ask("POST", "/v1/topics", body, headers=WITH_KEY).status == 201
    body = {"topic": "orders.new", "wait": "0s"}
    path = "/v1/groups/accounting/receive"
    assert node.ask("POST", path, body, headers=WITH_KEY).status == 200
    yield Terminal(node)


def test_every_command_that_the_pages_tell_to_type_runs(terminal: Terminal) -> None:
    failed: list[str] = []
    count = 0

    for page in PAGES:
        for line in commands(page):
            count += 1
            told = terminal.type(line)
            if told.exit_code:
                failed.append(f"{page}: {line}: {told.output[-300:]} {told.exception!r}")
        for path in re.findall(CURL, (DOCS / page).read_text()):
            count += 1
            if terminal.node.ask("GET", path, headers=WITH_KEY).status != 200:
                failed.append(f"{page}: {path}")

    assert count > 18
    assert failed == [], "\n".join(failed)


def test_keys_of_the_install_page_reach_what_it_says(terminal: Terminal) -> None:
    made = {}
    for line in commands("install.md"):
        if "key create" in line:
            told = json.loads(terminal.type(line.partition("#")[0] + " -o json").stdout)
            made[told["name"]] = {"X-API-Key": told["key"]}

    def status(name: str, method: str, path: str, **body: object) -> int:
        return terminal.node.ask(method, path, body or None, headers=made[name]).status

    assert status("shop", "POST", "/v1/topics/orders.new/messages", value="x") == 200
    assert status("shop", "POST", "/v1/topics/orders-old/messages", value="x") == 403
    receive = "/v1/groups/{}/receive"
    for group, topic, expected in (
        ("orders.billing", "orders.new", 200),
        ("orders.billing", "orders-old", 403),
        ("billing", "orders.new", 200),
        ("accounting", "orders.new", 403),
    ):
        path = receive.format(group)
        assert status("billing", "POST", path, topic=topic, wait="0s") == expected, (group, topic)
    assert status("prometheus", "GET", "/metrics") == 200
    assert terminal.type("goqueue-cli key create readonly").exit_code != 0
