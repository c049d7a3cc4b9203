"""What runbooks tell to look with is typed into a terminal at night: it runs, against a real node,
with their placeholders filled in."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from cli.main import app
from tests.cluster.conftest import Start
from tests.cluster.processes import Node, publish

RUNBOOKS = Path(__file__).resolve().parents[2] / "docs" / "operations" / "runbooks"
PROGRAM = "goqueue-cli "


def looks() -> list[str]:
    """Commands of the sections that only look, and those elsewhere that only try; each once."""
    found: set[str] = set()
    for path in RUNBOOKS.glob("GoQueue*.md"):
        text = path.read_text()
        look = text.partition("\n## How to look\n")[2].partition("\n## ")[0]
        blocks = re.findall(r"```sh\n(.*?)```", look, re.S)
        found.update(line for block in blocks for line in block.splitlines())
        found.update(re.findall(r"`(goqueue-cli [^`]* --dry-run)`", text))
    return sorted(line for line in found if line.startswith(PROGRAM))


def test_every_command_that_a_runbook_looks_with_runs_against_a_node(start: Start) -> None:
    node = start(1)[0]
    fill(node)
    filled = {"TOPIC": "orders", "GROUP": "billing", "NODE": node.id, "TEXT": "broken"}
    failed: list[str] = []
    lines = looks()

    for line in lines:
        text = line.removeprefix(PROGRAM).replace("http://NODE:8080", node.url)
        for name, value in filled.items():
            text = re.sub(rf"\b{name}\b", value, text)
        told = CliRunner(env={"GOQUEUE_SERVER": node.url}).invoke(app, shlex.split(text))
        if told.exit_code:
            failed.append(f"{line}: {told.exit_code}: {told.output[-300:]} {told.exception!r}")

    assert len(lines) > 20
    assert failed == [], "\n".join(failed)


def fill(node: Node) -> None:
    """A message that is delayed, one that is dead for the group, and a member that came and went:
    runbooks move a group's offsets when its consumers are stopped."""
    ok(node, "/v1/topics", name="orders", partitions=1)
    publish(node, "orders", [{"value": "bad"}, {"value": "late", "delay": "1h"}])
    received = ok(node, "/v1/groups/billing/receive", topic="orders", wait="5s")
    receipt = received["messages"][0]["receipt"]
    ok(node, "/v1/groups/billing/reject", receipt=receipt, reason="broken")
    joined = ok(node, "/v1/groups/billing/join", topics=["orders"], client_id="billing-1")
    ok(node, "/v1/groups/billing/leave", member_id=joined["member_id"])


def ok(node: Node, path: str, **body: object) -> Any:
    answer = node.ask("POST", path, body)
    assert answer.status < 300, (path, answer.content)
    return answer.body
