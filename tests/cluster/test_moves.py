"""Partitions move between real nodes that are killed on the way, under publishing and receiving."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goqueue.wire.types import CLUSTER_GROUP, Index
from log.config import StorageConfig
from log.disk.files import OsDisk
from log.store.directory import Store
from tests.cluster.processes import Answer, Cluster, Node, eventually, read_all

MOVED_S = 40.0
KEYS = 8
GROUP = "readers"
BROKEN = (OSError, http.client.HTTPException)


@dataclass
class Traffic:
    """One publisher a topic, which waits for each ack, and one that receives as a group."""

    cluster: Cluster
    topics: Sequence[str]
    acked: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    received: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    problems: list[str] = field(default_factory=list[str])
    stopped: threading.Event = field(default_factory=threading.Event)

    def publish(self, topic: str) -> None:
        """Each key's messages tell their order; one whose fate is unknown is sent again."""
        number = 0
        while not self.stopped.is_set():
            value = f"{number % KEYS}:{number}"
            message = {"key": f"key-{number % KEYS}", "value": value, "message_id": value}
            body = {"messages": [message]}
            answer = self._ask(number, "POST", f"/topics/{topic}/messages", body)
            if answer is not None and answer.status == 200 and "error" not in _result(answer):
                self.acked[topic].append(value)
                number += 1

    def receive(self) -> None:
        """Until it has everything that was acked."""
        turn = 0
        while not (self.stopped.is_set() and self.has_all()):
            turn += 1
            body = {"topics": list(self.topics), "limit": 500, "wait": "200ms"}
            answer = self._ask(turn, "POST", f"/groups/{GROUP}/receive", body)
            if answer is None or answer.status != 200 or not answer.body["messages"]:
                continue
            found: list[dict[str, Any]] = answer.body["messages"]
            settles = [{"receipt": one["receipt"], "action": "ack"} for one in found]
            self._ask(turn, "POST", f"/groups/{GROUP}/settle", {"settles": settles})
            for one in found:
                self.received[one["topic"]].add(one["value"])

    def has_all(self) -> bool:
        return all(set(self.acked[topic]) <= self.received[topic] for topic in self.topics)

    def _ask(self, turn: int, method: str, path: str, body: object) -> Answer | None:
        running = [node for node in self.cluster.nodes if node.is_running()]
        try:
            return running[turn % len(running)].ask(method, path, body, timeout_s=8)
        except BROKEN:
            return None


def _result(answer: Answer) -> dict[str, Any]:
    result: dict[str, Any] = answer.body["results"][0]
    return result


@contextmanager
def traffic(cluster: Cluster, topics: Sequence[str]) -> Iterator[Traffic]:
    """Goes on all the time; at the end all that was acked has been received."""
    found = Traffic(cluster, topics)
    for topic in topics:
        found.acked[topic], found.received[topic] = [], set()
    threads = [threading.Thread(target=found.publish, args=(topic,)) for topic in topics]
    threads.append(threading.Thread(target=found.receive))
    for thread in threads:
        thread.start()
    try:
        yield found
        goes_on(found)
    finally:
        found.stopped.set()
        for thread in threads:
            thread.join(MOVED_S)
    assert found.has_all()


def goes_on(found: Traffic) -> None:
    """Every topic takes messages."""
    before = {topic: len(found.acked[topic]) for topic in found.topics}
    eventually(
        "published", lambda: all(len(found.acked[t]) > n for t, n in before.items()), deadline_s=20
    )


def ask(cluster: Cluster, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Of any node that answers; a refusal is not retried."""

    def answered() -> Answer | None:
        for node in cluster.nodes:
            if node.is_running():
                try:
                    answer = node.ask(method, path, body)
                except BROKEN:
                    continue
                if answer.status < 500:
                    return answer
        return None

    answer = eventually(f"{method} {path}", answered)
    assert answer.status in (200, 201, 202), answer.content
    found: dict[str, Any] = answer.body
    return found


def placed(cluster: Cluster, topic: str) -> list[list[str]]:
    rows = ask(cluster, "GET", f"/topics/{topic}/partitions")["partitions"]
    return [row["replicas"] for row in rows]


def rotate(cluster: Cluster, topics: Sequence[str]) -> None:
    """Every replica is to be on the next node."""
    after = {node.id: cluster[(at + 1) % 3].id for at, node in enumerate(cluster.nodes)}
    rows = [
        {"topic": topic, "partition": number, "new_replicas": [after[name] for name in replicas]}
        for topic in topics
        for number, replicas in enumerate(placed(cluster, topic))
    ]
    ask(cluster, "POST", "/admin/reassignment", {"partitions": rows})


def arrived(cluster: Cluster, topics: Sequence[str]) -> None:
    """Every partition is where it should be, and only there."""

    def is_there() -> bool:
        running = ask(cluster, "GET", "/admin/reassignment?running=true")["count"]
        states = [ask(cluster, "GET", f"/admin/topics/{t}/scaling-status") for t in topics]
        return not running and not any(one["scaling_in_progress"] for one in states)

    eventually("moved", is_there, deadline_s=MOVED_S)


def killed_meanwhile(cluster: Cluster, node: Node, steps: Callable[[], object]) -> None:
    """kill -9 in the middle of what is begun, and a new start."""
    steps()
    time.sleep(0.3)  # of a move that takes about one second
    node.kill()
    time.sleep(0.5)
    node.start()
    cluster.wait_until_ready()


def test_partitions_move_while_their_nodes_are_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    topics = ("one", "two")
    settings = ("storage.segmentBytes=1MiB", "storage.reservePercent=0")
    with Cluster(tmp_path, settings=settings) as cluster:
        cluster.start()
        for factor, topic in enumerate(topics, 1):
            body = {"name": topic, "num_partitions": 3, "replication_factor": factor}
            ask(cluster, "POST", "/topics", body)
        with traffic(cluster, topics) as found:
            goes_on(found)
            source = cluster.node(placed(cluster, "one")[0][0])
            killed_meanwhile(cluster, source, lambda: rotate(cluster, topics))
            arrived(cluster, topics)

            target = cluster.nodes[(cluster.nodes.index(source) + 2) % 3]
            killed_meanwhile(cluster, target, lambda: rotate(cluster, topics))
            arrived(cluster, topics)

            leaving = cluster[2].id
            ask(cluster, "POST", f"/admin/brokers/{leaving}/drain")
            eventually("drained", lambda: state(cluster, leaving) == "drained", deadline_s=MOVED_S)
            assert all(leaving not in held for topic in topics for held in placed(cluster, topic))
            ask(cluster, "DELETE", f"/admin/brokers/{leaving}/drain")

            ask(cluster, "PATCH", "/topics/one", {"replication_factor": 3})
            ask(cluster, "POST", "/admin/topics/two/partitions", {"count": 5})
            arrived(cluster, topics)
            assert [len(held) for held in placed(cluster, "one")] == [3, 3, 3]
        for topic in topics:
            check_topic(cluster, topic, found.acked[topic])
        for node in cluster.nodes:
            assert node.stop() == 0
        replicas_are_equal(cluster, runs=3 * 3 + 5 * 2)


def state(cluster: Cluster, broker: str) -> str:
    rows = ask(cluster, "GET", "/admin/brokers")["brokers"]
    found: str = next(row["state"] for row in rows if row["id"] == broker)
    return found


def check_topic(cluster: Cluster, topic: str, acked: Sequence[str]) -> None:
    """All that was acked is there once, and each key's in its order within a partition."""
    stored: list[str] = []
    for number in range(len(placed(cluster, topic))):
        values = [message["value"] for message in read_all(cluster[0], topic, number)]
        stored += values
        for key in range(KEYS):
            order = [int(v.split(":")[1]) for v in values if v.startswith(f"{key}:")]
            assert order == sorted(order)
    assert len(stored) == len(set(stored))
    assert set(acked) <= set(stored)
    assert len(stored) <= len(acked) + 1, "one may be stored whose ack nobody saw"


def replicas_are_equal(cluster: Cluster, runs: int) -> None:
    """Where two nodes hold the same entry of a partition, it is the same; sealed segments too."""
    entries: dict[object, object] = {}
    held = 0
    for node in cluster.nodes:
        store = Store.open(OsDisk(), str(node.data), StorageConfig(segment_bytes=1 << 20))
        try:
            for partition_id in store.partition_ids():
                log = store.partition_log(partition_id)
                if partition_id == CLUSTER_GROUP or not log.last_index:
                    continue
                held += 1
                for index in range(log.first_index, log.last_index + 1):
                    identity = log.identity(Index(index))
                    assert entries.setdefault((partition_id, index), identity) == identity
                for segment in log.segments():
                    if segment.sealed:
                        name = (partition_id, segment.first_index, "segment")
                        digest = log.disk_segments.hash(segment.first_index)
                        assert entries.setdefault(name, digest) == digest
        finally:
            store.close()
    assert held == runs, "no orphan, and none is missing"
