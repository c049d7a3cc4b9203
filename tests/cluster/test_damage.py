"""Bits flip on the disks of real nodes: named, never served, and repaired from the other nodes."""

from __future__ import annotations

from collections.abc import Callable

from tests.cluster.conftest import Start
from tests.cluster.processes import Node, eventually, publish, read_all

MESSAGES = [{"value": f"message {n} {'x' * 50}", "partition": 0} for n in range(20)]


def flip(node: Node, number: int) -> None:
    """Flips a bit within one message, in the one segment of the topic's partition."""
    needle = f"message {number} ".encode()
    for path in node.data.glob("groups/*/*.segment"):
        data = path.read_bytes()
        at = data.find(needle)
        if at >= 0:
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            return
    raise AssertionError(f"{node.id} holds no message {number} in a segment")


def healthy(node: Node) -> Callable[[], bool]:
    return lambda: node.ask("GET", "/cluster/health").body["problems"] == []


def test_two_nodes_damaged_in_different_places_are_whole_again(start: Start) -> None:
    cluster = start()
    answer = cluster[0].ask("POST", "/topics", {"name": "t", "num_partitions": 1})
    assert answer.status == 201
    for message in MESSAGES:
        publish(cluster[0], "t", [message])
    for node in cluster.nodes:  # twice: only then is everything in segments, and nothing in the log
        assert node.stop() == 0
    cluster.start()
    for node in cluster.nodes:
        assert node.stop() == 0

    flip(cluster[0], 5)
    flip(cluster[1], 12)
    cluster.start()
    expected = [message["value"] for message in MESSAGES]
    for node in cluster.nodes:
        eventually(f"{node.id} without a problem", healthy(node))
        read = [message["value"] for message in read_all(node, "t", 0)]
        assert read[: len(expected)] == expected
        publish(node, "t", [{"value": "after", "partition": 0}])

    for node in cluster.nodes[:2]:
        assert "entries_repaired" in node.log.read_text()

    cluster[2].kill()  # the two that were damaged are voters like any other
    publish(cluster[0], "t", [{"value": "last", "partition": 0}])
