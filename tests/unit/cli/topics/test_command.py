"""`goqueue-cli topic`, `cluster`, `config`, `version`: every line they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from goqueue.errors import NoQuorum
from node.runtime.version import VERSION
from tests.unit.cli.conftest import Shell


def test_create_says_what_was_made(shell: Shell) -> None:
    out = shell.ok("topic", "create", "orders", "-p", "3", "-o", "table")

    assert out == "✓ Created topic orders with 3 partitions\n"


def test_create_passes_every_option(shell: Shell) -> None:
    shell.ok(
        *("topic", "create", "orders", "-p", "2", "-r", "24", "--replication-factor", "1"),
        *("--durability", "relaxed", "--flush-interval-ms", "20", "--retention-bytes", "-1"),
        *("--max-message-bytes", "4096", "--label", "team=shop", "--label", "tier=1"),
    )

    config = json.loads(shell.ok("topic", "describe", "orders"))["config"]
    expected = {
        "partitions": 2,
        "retention_ms": 24 * 3_600_000,
        "replication_factor": 1,
        "durability": "relaxed",
        "flush_interval_ms": 20,
        "retention_bytes": -1,
        "max_message_bytes": 4096,
        "labels": {"team": "shop", "tier": "1"},
    }
    assert {key: config[key] for key in expected} == expected


def test_creating_twice_is_an_error_with_a_hint(shell: Shell) -> None:
    shell.ok("topic", "create", "orders")

    result = shell.run("topic", "create", "orders")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "Error: topic already exists: orders (topic_exists)",
        "Hint: `goqueue-cli topic alter NAME` changes one; `topic describe NAME` shows it",
    ]


def test_a_bad_name_is_an_error(shell: Shell) -> None:
    result = shell.run("topic", "create", "../../evil")

    assert result.exit_code == 1
    assert "(invalid_name)" in result.stderr


def test_list_in_a_table_and_in_json_lines(shell: Shell) -> None:
    shell.ok("topic", "create", "b", "-p", "1")
    shell.ok("topic", "create", "a", "-p", "2")

    assert shell.ok("topic", "list", "-o", "table") == "NAME\na\nb\n"
    assert shell.ok("topic", "list") == '{"name":"a"}\n{"name":"b"}\n'
    assert shell.ok("topic", "list", "-o", "wide").splitlines() == [
        "NAME  PARTITIONS  MESSAGES  SIZE",
        "a     2           0         0 B",
        "b     1           0         0 B",
    ]


def test_an_empty_list_says_so(shell: Shell) -> None:
    assert shell.ok("topic", "list", "-o", "table") == "No topics.\n"
    assert shell.ok("topic", "list") == ""


def test_describe_shows_configuration_and_offsets(shell: Shell) -> None:
    shell.ok("topic", "create", "orders", "-p", "2")
    shell.ok("produce", "orders", "-m", "a", "-m", "b", "--partition", "1")

    lines = shell.ok("topic", "describe", "orders", "-o", "table").splitlines()

    assert lines[:3] == [
        "Name:               orders",
        "Partitions:         2",
        "Total Messages:     2",
    ]
    assert "Retention:          168h, 10.0 GiB a partition" in lines
    assert lines[-4:] == [
        "PARTITION OFFSETS:",
        "PARTITION  LEADER  REPLICAS  IN SYNC  EARLIEST  LATEST  MESSAGES",
        "0          node-1  node-1    node-1   0         -       0",
        "1          node-1  node-1    node-1   0         1       2",
    ]


def test_describe_in_yaml_is_the_whole_answer(shell: Shell) -> None:
    shell.ok("topic", "create", "orders", "-p", "2")

    answer = yaml.safe_load(shell.ok("topic", "describe", "orders", "-o", "yaml"))

    assert answer["name"] == "orders"
    assert [p["partition"] for p in answer["partition_details"]] == [0, 1]


@pytest.mark.parametrize("verb", ["describe", "delete", "alter"])
def test_an_unknown_topic_is_not_found(shell: Shell, verb: str) -> None:
    extra = {"delete": ["--yes"], "alter": ["-r", "1"]}.get(verb, [])

    result = shell.run("topic", verb, "nothing", *extra)

    assert result.exit_code == 3
    assert result.stderr.startswith("Error: topic not found: nothing (unknown_topic)\nHint: ")


def test_alter_changes_what_is_named_and_dry_run_nothing(shell: Shell) -> None:
    shell.ok("topic", "create", "orders")

    told = shell.ok("topic", "alter", "orders", "-r", "48", "--dry-run", "-o", "table")
    assert told == "✓ Would alter topic orders: retention_hours=48\n"
    assert json.loads(shell.ok("topic", "describe", "orders"))["retention_hours"] == 168

    told = shell.ok("topic", "alter", "orders", "-r", "48", "-o", "table")
    assert told == "✓ Altered topic orders: retention_hours=48\n"
    assert json.loads(shell.ok("topic", "describe", "orders"))["retention_hours"] == 48

    told = shell.ok("topic", "alter", "orders", "--delay-max", "30d", "-o", "table")
    assert told == "✓ Altered topic orders: delay_max=720h\n"


def test_alter_with_nothing_named_is_a_usage_error(shell: Shell) -> None:
    shell.ok("topic", "create", "orders")

    assert shell.run("topic", "alter", "orders").exit_code == 2


def test_delete_needs_a_yes_where_nobody_can_be_asked(shell: Shell) -> None:
    shell.ok("topic", "create", "orders")
    shell.ok("produce", "orders", "-m", "x")

    refused = shell.run("topic", "delete", "orders")
    assert refused.exit_code == 2
    assert refused.stderr == "Error: deleting topic orders with 1 message needs --yes\n"

    dry = shell.ok("topic", "delete", "orders", "--dry-run", "-o", "table")
    assert dry == "✓ Would delete topic orders with 1 message\n"
    assert shell.ok("topic", "list") == '{"name":"orders"}\n'

    assert shell.ok("topic", "delete", "orders", "-f", "-o", "table") == "✓ Deleted topic orders\n"
    assert shell.ok("topic", "list") == ""


def test_a_label_without_a_value_is_a_usage_error(shell: Shell) -> None:
    result = shell.run("topic", "create", "orders", "--label", "team")

    assert result.exit_code == 2
    assert result.stderr == "Error: --label takes NAME=VALUE, not 'team'\n"


def test_global_options_stand_in_front_or_behind(shell: Shell) -> None:
    shell.ok("topic", "create", "orders")

    behind = shell.run("topic", "list", "-o", "table", "-s", shell.url, server="http://127.0.0.1:9")

    assert (behind.exit_code, behind.stdout) == (0, "NAME\norders\n")


def test_no_server_is_unavailable_and_says_what_to_do(shell: Shell) -> None:
    result = shell.run("topic", "list", server="http://127.0.0.1:9,http://127.0.0.1:10")

    assert result.exit_code == 4
    assert result.stderr.splitlines() == [
        "Error: can't connect to http://127.0.0.1:9 or http://127.0.0.1:10: "
        "http://127.0.0.1:10: Connection refused (connection_failed)",
        "Hint: is the cluster running? Start one with `goqueue-cli dev`, or name another with "
        "-s/--server",
    ]


def test_the_next_server_is_asked_when_one_is_down(shell: Shell) -> None:
    result = shell.run("topic", "list", server=f"http://127.0.0.1:9,{shell.url}")

    assert result.exit_code == 0


def test_a_server_that_is_no_url_is_a_usage_error(shell: Shell) -> None:
    assert shell.run("topic", "list", server="ftp://x").exit_code == 2


def test_a_lost_quorum_is_unavailable(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_words: object, **_options: object) -> None:
        raise NoQuorum("1 of 3 replicas answers", retriable=False)

    monkeypatch.setattr(shell.broker.records, "append", fail)

    result = shell.run("produce", "orders", "-m", "x")

    assert result.exit_code == 4
    assert result.stderr.splitlines() == [
        "Error: 1 of 3 replicas answers (no_quorum)",
        "Hint: most replicas can't be reached: see `goqueue-cli cluster health`",
    ]


def test_an_unknown_option_is_a_usage_error(shell: Shell) -> None:
    assert shell.run("topic", "list", "--colour").exit_code == 2
    assert shell.run("topic", "list", "-o", "xml").exit_code == 2


def test_cluster_commands_show_the_nodes(shell: Shell) -> None:
    shell.ok("topic", "create", "orders", "-p", "2")

    assert shell.ok("cluster", "nodes", "-o", "table").splitlines() == [
        "ID      CLIENT ADDRESS      PEER ADDRESS  STATUS  CONTROLLER  LEADS  REPLICAS",
        "node-1  http://127.0.0.1:0  -             alive   ✓           2      2",
    ]
    assert shell.ok("cluster", "health", "-o", "table").splitlines() == [
        "Healthy",
        "Quorum:           yes",
        "Nodes:            1 of 1 alive",
        "Under-replicated: 0 partitions",
        "Without leader:   0 partitions",
    ]
    info = shell.ok("cluster", "info", "-o", "table").splitlines()
    assert info[1] == "Controller:  node-1"
    assert json.loads(shell.ok("cluster", "info"))["node_details"][0]["id"] == "node-1"


def test_version_tells_client_and_server(shell: Shell) -> None:
    lines = shell.ok("version", "-o", "table").splitlines()

    assert lines[0].startswith("Client Version: ")
    assert lines[1] == f"Server Version: {VERSION.version}"


def test_version_without_a_server_still_tells_the_client(shell: Shell) -> None:
    result = shell.run("version", server="http://127.0.0.1:9")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["server_version"] is None


def test_contexts_are_set_used_listed_and_deleted(shell: Shell, tmp_path: Path) -> None:
    made = shell.ok("config", "set-context", "here", "-o", "table", "--api-key", "gq_secret")
    assert made == '✓ Context "here" set\n'
    assert shell.ok("config", "use-context", "here", "-o", "table") == (
        '✓ Switched to context "here"\n'
    )

    assert shell.ok("config", "get-contexts", "-o", "table").splitlines() == [
        "CURRENT  NAME   SERVER",
        "         local  http://127.0.0.1:8080",
        f"*        here   {shell.url}",
    ]
    assert "gq_secret" not in shell.ok("config", "view")
    assert "gq_secret" in (tmp_path / "config.yaml").read_text()

    deleted = shell.ok("config", "delete-context", "here", "-o", "table")
    assert deleted == '✓ Context "here" deleted\n'
    assert shell.run("config", "use-context", "here").exit_code == 3


def test_a_context_names_the_server(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.ok("config", "set-context", "here")
    shell.ok("topic", "create", "orders")
    monkeypatch.setenv("GOQUEUE_CONTEXT", "here")

    from typer.testing import CliRunner

    from cli.main import app

    result = CliRunner().invoke(app, ["topic", "list"])
    assert (result.exit_code, result.stdout) == (0, '{"name":"orders"}\n')
