"""Connections of clients that say nothing do not take from a node the files that its log needs."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.certificates import LOOPBACK, Authority
from tests.cluster.processes import HOST, Cluster, Node, eventually, publish, tail

SMALL_FILES = ("storage.walFileBytes=1MiB", "storage.segmentBytes=1MiB")


def start(node: Node, soft: int, hard: int) -> None:
    """Its process may open as few files as this."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        node.has_interpreter = True
        node.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert node.process is not None
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(("soft", "hard"), [(256, 4096), (640, 640)])
def test_node_writes_on_under_more_connections_than_files(
    tmp_path: Path, soft: int, hard: int
) -> None:
    with Cluster(tmp_path, 1, SMALL_FILES) as cluster, ExitStack() as held:
        node = cluster[0]
        start(node, soft, hard)
        cluster.wait_until_ready()
        for number in range(10):
            publish(node, f"t{number}", [{"value": "first"}])
        link = http.client.HTTPConnection(HOST, node.http_port, timeout=20)
        link.request("GET", "/topics/t0")  # who was served once is not taken for an idle one
        assert link.getresponse().read()

        for _ in range(soft + 200):
            silent = held.enter_context(socket.socket())
            silent.connect((HOST, node.http_port))

        body = json.dumps({"messages": [{"value": "x" * 100_000}]})
        for number in range(40):  # several write-ahead files
            link.request("POST", f"/topics/t{number % 10}/messages", body)
            answer = link.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
        assert node.is_running(), tail(node.log)
        link.close()


def test_node_writes_on_under_more_tls_handshakes_than_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost", *LOOPBACK)
    tls = ("tls.enabled=true", f"tls.certFile={certificate}", f"tls.keyFile={key}")
    files = 640
    with Cluster(tmp_path / "nodes", 1, (*SMALL_FILES, *tls)) as cluster, ExitStack() as held:
        node = cluster[0]
        start(node, files, files)
        trust = authority.trust()
        eventually("the node is ready", lambda: status(node, trust, "/readyz") == 200)
        link = http.client.HTTPSConnection(HOST, node.http_port, timeout=20, context=trust)
        link.connect()

        for _ in range(files + 200):
            silent = held.enter_context(socket.socket())
            silent.connect((HOST, node.http_port))

        body = json.dumps({"messages": [{"value": "x" * 100_000}]})
        for number in range(20):  # several write-ahead files
            link.request("POST", f"/topics/t{number % 10}/messages", body)
            answer = link.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
        assert status(node, trust, "/readyz") == 200, "a new connection is served, too"
        assert node.is_running(), tail(node.log)
        link.close()


def status(node: Node, trust: ssl.SSLContext, path: str) -> int | None:
    """Of the answer on a connection of its own; None where there is none."""
    link = http.client.HTTPSConnection(HOST, node.http_port, timeout=20, context=trust)
    try:
        link.request("GET", path)
        return link.getresponse().status
    except OSError:
        return None
    finally:
        link.close()
