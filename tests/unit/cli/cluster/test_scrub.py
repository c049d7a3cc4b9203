"""`goqueue-cli cluster scrub`: begun, followed, told; exit code 1 while something is damaged."""

from __future__ import annotations

import json

import pytest

from cli.run import progress as following
from node.api.scrub import ScrubView
from tests.unit.cli.conftest import Shell


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_S", 0.001)


def test_a_round_is_begun_on_every_node_and_shown(shell: Shell) -> None:
    lines = shell.ok("cluster", "scrub", "-o", "table").splitlines()

    assert lines[0].split()[:3] == ["NODE", "STATE", "READ"]
    assert lines[1].split()[0] == "node-1"
    shell.until(
        lambda: json.loads(shell.ok("cluster", "scrub", "--status"))["nodes"][0],
        lambda told: (told["state"], told["rounds"]) == ("idle", 1),
    )


def test_waiting_ends_with_the_round(shell: Shell) -> None:
    found = json.loads(shell.ok("cluster", "scrub", "--wait").splitlines()[-1])
    assert found["state"] == "idle"


def test_what_differs_between_replicas_is_told_and_exits_1(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scrub(*, begin: bool) -> dict[str, ScrubView | None]:
        view = ScrubView(running=False, rounds=1, diverged=["entries 1 to 9 of t-0 differ"])
        return {"node-1": view, "node-2": None}

    monkeypatch.setattr(shell.broker.scrubs, "scrub", scrub)

    ended = shell.run("cluster", "scrub", "--status", "-o", "table")

    assert ended.exit_code == 1
    assert "✗ node-1: entries 1 to 9 of t-0 differ" in ended.stdout
    assert [line.split()[1] for line in ended.stdout.splitlines()[1:3]] == ["idle", "unknown"]


@pytest.mark.parametrize("how", ["--wait", "--status"])
def test_a_node_that_does_not_answer_is_told_and_exits_4(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def scrub(*, begin: bool) -> dict[str, ScrubView | None]:
        return {"node-1": ScrubView(running=False, rounds=1), "node-2": None}

    monkeypatch.setattr(shell.broker.scrubs, "scrub", scrub)

    ended = shell.run("cluster", "scrub", how, "-o", "table")

    assert ended.exit_code == 4
    assert ended.stdout.splitlines()[-1] == ("✗ node-2 does not answer: what it stores is not read")
