"""`goqueue-cli key`: secrets are printed once, lists have none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Shell


def make(shell: Shell, *more: str) -> dict[str, str]:
    words = ("key", "create", "producer", "--prefix", "orders.", "--id", "app", *more)
    found: dict[str, str] = json.loads(shell.ok(*words))
    return found


def test_a_key_is_made_and_its_secret_printed_once(shell: Shell) -> None:
    words = ("key", "create", "consumer", "-p", "orders.", "-p", "bills.", "--id", "app")
    lines = shell.ok(*words, "-o", "table").splitlines()

    assert lines[0] == "✓ Made key app (consumer)"
    assert lines[1].startswith("app.") and len(lines[1]) == len("app.") + 43
    assert lines[2] == "Keep it: it can't be shown again."
    listed = shell.ok("key", "list", "-o", "table").splitlines()
    assert listed[0].split() == ["ID", "NAME", "ROLE", "TOPICS", "STATE", "SECRETS", "EXPIRES"]
    assert listed[1].split() == ["app", "-", "consumer", "bills.*,orders.*", "active", "1", "-"]
    assert lines[1].partition(".")[2] not in shell.ok("key", "list", "-o", "json")


def test_a_script_reads_the_key_from_json(shell: Shell) -> None:
    made = make(shell, "--expires-in", "12h", "--name", "the shop")

    assert made["key"].startswith("app.")
    assert (made["role"], made["name"]) == ("producer", "the shop")
    assert made["expires_at"] > made["created_at"]


def test_a_rotation_tells_until_when_the_secret_before_it_goes_on(shell: Shell) -> None:
    make(shell)

    lines = shell.ok("key", "rotate", "app", "--grace", "1h", "-o", "table").splitlines()

    assert lines[1].startswith("app.")
    assert lines[3] == "The secret of 2025-01-15T10:30:00.000Z ends 2025-01-15T11:30:00.000Z"
    again = shell.run("key", "rotate", "app")
    assert again.exit_code != 0 and "two live secrets" in again.stderr
    assert shell.run("key", "rotate", "app", "--keep", "oldest").exit_code == 0


def test_revoking_asks_and_the_key_stays_listed_as_revoked(shell: Shell) -> None:
    make(shell)

    assert shell.run("key", "revoke", "app").exit_code == 2
    assert json.loads(shell.ok("key", "revoke", "app", "--yes"))["state"] == "revoked"
    row = shell.ok("key", "list", "-o", "table").splitlines()[1].split()
    assert row[:5] == ["app", "-", "producer", "orders.*", "revoked"]


def test_a_key_for_no_topic_is_refused_with_what_to_give(shell: Shell) -> None:
    refused = shell.run("key", "create", "producer")

    assert refused.exit_code != 0
    assert '["*"] for all' in refused.stderr


def test_a_contexts_key_is_never_printed(shell: Shell, tmp_path: Path) -> None:
    words = ("config", "set-context", "here", "--api-key", "app.0123456789abcdef")

    assert "0123456789abcdef" not in shell.ok(*words, "-o", "json")
    assert "0123456789abcdef" in (tmp_path / "config.yaml").read_text()


@pytest.mark.parametrize("where", ["before", "behind", "environment", "context"])
def test_the_key_is_sent_from_wherever_it_is_given(
    shell: Shell, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr(
        "cli.run.session.Session.__aenter__",
        lambda session: _note(session, seen),
    )
    token = "app.0123456789abcdef"
    if where == "environment":
        monkeypatch.setenv("GOQUEUE_API_KEY", token)
    elif where == "context":
        shell.ok("config", "set-context", "here", "--api-key", token)
        shell.ok("config", "use-context", "here")
        monkeypatch.setenv("GOQUEUE_CONTEXT", "here")
    before = ("--api-key", token) if where == "before" else ()
    behind = ("--api-key", token) if where == "behind" else ()

    shell.run(*before, "topic", "list", *behind)

    assert seen == [token]


async def _note(session: object, seen: list[str | None]) -> None:
    seen.append(session.given.target().api_key)  # type: ignore[attr-defined]
    raise KeyboardInterrupt


def test_groups_of_a_key_begin_as_its_topics_or_as_is_said(shell: Shell) -> None:
    shell.ok("cluster", "upgrade", "--finish")
    make(shell)
    words = ("key", "create", "consumer", "-p", "orders.", "--group-prefix", "bills-", "--id", "b")
    made = json.loads(shell.ok(*words))

    assert (made["prefixes"], made["group_prefixes"]) == (["orders."], ["bills-"])
    rows = shell.ok("key", "list", "-o", "wide").splitlines()
    assert [row.split()[4] for row in rows] == ["GROUPS", "orders.*", "bills-*"]
