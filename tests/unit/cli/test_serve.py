"""`goqueue-cli serve` and `goqueue -config FILE`: how they read what they are told."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from cli import serve
from cli.local import processes
from cli.main import app
from node.config.node import NodeConfig


class Served:
    """Stands in for a node: keeps the configuration it was given."""

    def __init__(self) -> None:
        self.configs: list[NodeConfig] = []
        self.pid_files: list[int | None] = []
        self.watched: Path | None = None

    def main_node(self, config: NodeConfig) -> int:
        self.configs.append(config)
        if self.watched is not None:
            self.pid_files.append(processes.read_pid(self.watched))
        return 0


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.setenv(name, "200")
    stand_in, module = Served(), ModuleType("node.server")
    module.main_node = stand_in.main_node  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "node.server", module)
    return stand_in


def test_flags_become_the_configuration(served: Served, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("a secret of the cluster\n")

    result = CliRunner().invoke(
        app,
        [
            *("serve", "--node-id", "node-2", "--data", str(tmp_path / "data")),
            *("--http", "127.0.0.1:8081", "--peer-listen", "127.0.0.1:7001"),
            *("--peer", "node-1=127.0.0.1:7000", "--peer", "node-2=127.0.0.1:7001"),
            *("--secret-file", str(tmp_path / "secret"), "--zone", "a", "--auto-create-topics"),
            *("--set", "raft.heartbeat=150ms", "--accept-loss"),
        ],
    )

    assert result.exit_code == 0, result.output
    (config,) = served.configs
    assert (config.node_id, config.data_dir) == ("node-2", str(tmp_path / "data"))
    assert (config.http.listen, config.cluster.listen) == (("127.0.0.1", 8081), ("127.0.0.1", 7001))
    assert config.members == ("node-1", "node-2")
    assert config.cluster.secret == "a secret of the cluster"
    assert (config.broker.zone, config.broker.auto_create_topics) == ("a", True)
    assert config.raft.heartbeat_ms == 150
    assert config.storage.accept_loss is True


def test_all_problems_are_told_at_once(served: Served, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("broker: {nodeId: 'not a name', datadir: x}\n")

    result = CliRunner().invoke(app, ["serve", "--config", str(file), "--http", "nowhere"])

    assert result.exit_code == 2
    assert "3 problems in" in result.stderr
    assert "unknown key broker.datadir (is it broker.dataDir?)" in result.stderr
    assert "broker.nodeId must be" in result.stderr
    assert "broker.listeners.http must be host:port" in result.stderr
    assert served.configs == []


def test_a_node_that_anybody_could_use_is_refused_unless_that_is_meant(
    served: Served, tmp_path: Path
) -> None:
    words = ["serve", "--data", str(tmp_path / "data"), "--http", "0.0.0.0:8080"]

    refused = CliRunner().invoke(app, words)
    assert (refused.exit_code, served.configs) == (2, [])
    assert "0.0.0.0:8080" in refused.stderr and "--insecure-open" in refused.stderr
    assert not (tmp_path / "data").exists()

    assert CliRunner().invoke(app, [*words, "--insecure-open"]).exit_code == 0
    assert CliRunner().invoke(app, words, env={"GOQUEUE_AUTH_INSECURE_OPEN": "true"}).exit_code == 0
    assert [config.auth.insecure_open for config in served.configs] == [True, True]


@pytest.mark.parametrize("words", [["-config", "{}"], ["-config={}"], ["--config", "{}"]])
def test_goqueue_starts_from_a_file_as_it_always_did(
    served: Served, tmp_path: Path, words: list[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("broker: {nodeId: node-7}\n")

    with pytest.raises(SystemExit) as ended:
        serve.main([word.format(file) for word in words])

    assert ended.value.code == 0
    assert served.configs[0].node_id == "node-7"


def test_the_pid_file_stands_while_the_node_serves(served: Served, tmp_path: Path) -> None:
    import os

    served.watched = tmp_path / "node.pid"

    CliRunner().invoke(app, ["serve", "--pid-file", str(served.watched)])

    assert served.pid_files == [os.getpid()]
    assert not served.watched.exists()
