"""Connections of clients that say nothing do not take from a node the files that its log needs."""

from __future__ import annotations

import http.client
import json
import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.processes import HOST, Cluster, Node, publish, tail

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
        link.connect()

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
