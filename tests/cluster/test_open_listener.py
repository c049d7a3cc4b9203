"""A node without keys that listens beyond loopback: refused, meant, or a heritage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import Cluster, Node, eventually


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Cluster(tmp_path, 1) as cluster:
        yield cluster[0]


def listen(node: Node, host: str) -> None:
    node.arguments[node.arguments.index("--http") + 1] = f"{host}:{node.http_port}"


def refused(node: Node) -> int:
    """How the process that is started ends by itself."""
    node.start()
    assert node.process is not None
    return node.process.wait(30)


def served(node: Node) -> list[str]:
    """Warnings of a node that is started, and stopped again."""
    node.start()
    eventually("it serves", node.is_up)
    health = node.ask("GET", "/cluster/health").body
    assert node.stop() == 0
    assert health["status"] == "healthy" and health["problems"] == []
    found: list[str] = health["warnings"]
    return found


def test_an_open_listener_is_meant_or_inherited_or_refused(node: Node) -> None:
    # given a new node that would listen for anybody
    listen(node, "0.0.0.0")
    assert refused(node) == 2
    assert not node.data.exists() and "--insecure-open" in node.log.read_text()

    # when that is meant, it serves; and goes on when it is no longer said
    node.arguments.append("--insecure-open")
    assert served(node) == []
    node.arguments.remove("--insecure-open")
    (warning,) = served(node)
    assert "asks for no API keys" in warning and "listens_openly" in node.log.read_text()

    # then the directory has been closed once, and is not opened again by an oversight
    listen(node, "127.0.0.1")
    assert served(node) == []
    listen(node, "0.0.0.0")
    assert refused(node) == 2
