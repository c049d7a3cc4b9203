"""A tail of real lines, over the death of the node that serves it."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from tests.cluster.conftest import Start
from tests.cluster.processes import HOST, Node, eventually
from tests.cluster.test_real_lines import expected, goqueue_cli, sample_files

WAIT_S = 60.0


class Tail:
    """A program that reads one stream after another, as `curl` would, and remembers ids."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.last_id = ""
        self.ids: list[str] = []
        self.events: list[bytes] = []

    def read(self, node: Node, enough: int) -> None:
        """Until there are so many messages, or the node is gone."""
        with socket.create_connection((HOST, node.http_port), timeout=WAIT_S) as connection:
            resume = f"Last-Event-ID: {self.last_id}\r\n" if self.last_id else ""
            target = f"/v1/topics/{self.topic}/tail?offset=earliest"
            connection.sendall(f"GET {target} HTTP/1.0\r\nHost: x\r\n{resume}\r\n".encode())
            text = b""
            while len(self.events) < enough and (piece := received(connection)):
                *blocks, text = (text + piece).split(b"\n\n")
                for block in blocks:
                    self._take(block)

    def _take(self, block: bytes) -> None:
        lines = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
        self.last_id = lines.get(b"id", b"").decode() or self.last_id
        if b"data" in lines and b"event" not in lines:
            self.ids.append(self.last_id)
            self.events.append(lines[b"data"])


def received(connection: socket.socket) -> bytes:
    """What comes next; empty after the last, whoever has ended it."""
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


def test_real_lines_are_tailed_once_each_while_the_serving_node_is_killed(
    start: Start, tmp_path: Path
) -> None:
    files = sample_files(tmp_path)
    wanted = sum(map(len, expected(files).values()))
    cluster = start()
    goqueue_cli(cluster[0], "topic", "create", "lines", "--partitions", "3")
    tail = Tail("lines")

    def follow() -> None:
        tail.read(cluster[2], wanted)  # it is killed in the middle
        tail.read(cluster[1], wanted)

    reader = threading.Thread(target=follow)
    reader.start()
    for number, path in enumerate(files):
        goqueue_cli(cluster[0], "produce", "lines", "--file", str(path))
        if number == len(files) // 2:
            eventually("the tail has begun", lambda: tail.events)
            cluster[2].kill()
    reader.join(WAIT_S)

    assert not reader.is_alive()
    assert len(tail.events) == len(set(tail.events)) == wanted
    assert len(set(tail.ids)) == wanted, "each has an id of its own"
    assert sum(int(part.partition(":")[2]) for part in tail.last_id.split(",")) == wanted
