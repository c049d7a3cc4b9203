"""A running cluster takes new nodes, and takes back nodes that have lost their disks."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.conftest import Start
from tests.cluster.processes import Cluster, Node, eventually, publish, read_all


def standing(node: Node) -> dict[str, str]:
    """Who is alive, dead or wiped, as one node tells."""
    found: dict[str, str] = node.ask("GET", "/cluster/health").body["nodes"]
    return found


class Publisher(threading.Thread):
    """Publishes one message after the other until it is stopped; `acked` are those answered."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(daemon=True)
        self._nodes, self._topic = list(cluster.nodes), topic
        self._done = threading.Event()
        self.acked: list[str] = []
        self.failed: list[str] = []

    def run(self) -> None:
        count = 0
        while not self._done.wait(0.002):
            value = f"m{count}"
            node = self._nodes[count % len(self._nodes)]
            count += 1
            answer = node.ask("POST", f"/topics/{self._topic}/messages", {"value": value})
            (self.acked if answer.status < 300 else self.failed).append(value)

    def finish(self) -> None:
        self._done.set()
        self.join(30)


@contextmanager
def publishing(cluster: Cluster, topic: str) -> Iterator[Publisher]:
    publisher = Publisher(cluster, topic)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.finish()


def stored(node: Node, topic: str, partitions: int) -> list[str]:
    return [m["value"] for number in range(partitions) for m in read_all(node, topic, number)]


def create(node: Node, topic: str, partitions: int, factor: int) -> None:
    body = {"name": topic, "partitions": partitions, "replication_factor": factor}
    answer = node.ask("POST", "/topics", body)
    assert answer.status in (200, 201), answer.content


def test_a_fourth_node_joins_while_others_publish_and_takes_part_for_good(start: Start) -> None:
    cluster = start()
    create(cluster[0], "orders", 2, 3)
    with publishing(cluster, "orders") as publisher:
        (fourth,) = cluster.add(seeds=cluster.nodes[:1])
        fourth.start()
        cluster.wait_until_ready()
    assert publisher.failed == []
    assert sorted(stored(fourth, "orders", 2)) == sorted(publisher.acked)
    assert standing(cluster[2]) == {f"node-{number}": "alive" for number in (1, 2, 3, 4)}

    create(fourth, "wide", 4, 4)
    publish(fourth, "wide", [{"value": "through the new one", "partition": 3}])
    fourth.kill()
    publish(cluster[0], "wide", [{"value": "while it was away", "partition": 3}])
    fourth.start()
    cluster.wait_until_ready()

    values = [m["value"] for m in read_all(fourth, "wide", 3)]
    assert values == ["through the new one", "while it was away"]


def test_a_wiped_node_comes_back_as_a_voter_and_is_in_sync_again(start: Start) -> None:
    cluster = start()
    create(cluster[0], "orders", 1, 3)
    publish(cluster[0], "orders", [{"value": f"kept {n}"} for n in range(20)])
    first, second, wiped = cluster.nodes
    wiped.kill()
    shutil.rmtree(wiped.data)

    wiped.start()
    cluster.wait_until_ready()
    eventually("in sync again", lambda: in_sync(first, "orders") == {"node-1", "node-2", "node-3"})
    eventually("the cluster is whole", lambda: set(standing(second).values()) == {"alive"})
    eventually("three vote", lambda: voters(second) == 3)

    first.kill()
    create(second, "later", 1, 1)  # two of three voters are there: the wiped one is one again
    publish(second, "orders", [{"value": "still acked"}])
    assert "still acked" in stored(wiped, "orders", 1)
    assert len(stored(wiped, "orders", 1)) == 21


def test_a_cluster_of_one_grows_to_three_that_survive_its_founder(start: Start) -> None:
    cluster = start(1)
    founder = cluster[0]
    founder.stop()
    founder.arguments += ["--secret-file", str(cluster.secret)]
    founder.start()
    cluster.wait_until_ready()
    create(founder, "alone", 1, 1)
    publish(founder, "alone", [{"value": "first"}])

    for node in cluster.add(2):
        node.start()
    cluster.wait_until_ready()
    create(cluster[1], "together", 1, 3)
    eventually("all follow", lambda: len(standing(founder)) == 3)
    eventually("three vote", lambda: voters(founder) == 3)
    publish(cluster[2], "together", [{"value": "of three"}])
    founder.kill()

    create(cluster[1], "without-the-founder", 1, 2)
    assert stored(cluster[2], "together", 1) == ["of three"]


def in_sync(node: Node, topic: str) -> set[str]:
    answer = node.ask("GET", f"/topics/{topic}/partitions")
    return set(answer.body["partitions"][0]["isr"]) if answer.status == 200 else set()


def voters(node: Node) -> int:
    """How many vote in the cluster group, as one node tells."""
    return len(node.ask("GET", "/cluster").body["voters"])
