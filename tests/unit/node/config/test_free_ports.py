"""A port that is in use is told before anything is founded on disk."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cli.serve import run
from node.config.file import load_config
from node.config.free_ports import refusal


@pytest.fixture
def used() -> str:
    """An address that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield f"127.0.0.1:{taken.getsockname()[1]}"  # type: ignore[misc]


def test_a_node_names_the_port_and_the_option_and_founds_nothing(
    used: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"

    code = run(None, {"broker.dataDir": str(data), "broker.listeners.http": used}, None)

    told = capsys.readouterr()
    assert code == 2
    assert f"{used} is in use by another program" in told.err
    assert "--http" in told.err and "Errno" not in told.err + told.out
    assert not data.exists()


def test_the_port_for_peers_is_named_as_well_where_it_is_opened(used: str, tmp_path: Path) -> None:
    free = {"broker.dataDir": str(tmp_path), "broker.listeners.http": "127.0.0.1:0"}
    with_peers = {**free, "broker.listeners.internal": used}

    alone = load_config(None, overrides=with_peers)
    (tmp_path / "secret").write_text("s" * 64)
    secret = {"cluster.secretFile": str(tmp_path / "secret")}
    among_others = load_config(None, overrides={**with_peers, **secret})

    assert refusal(alone) == ""
    assert f"{used} is in use" in refusal(among_others)
    assert "--peer-listen" in refusal(among_others)
