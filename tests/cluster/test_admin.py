"""A cluster of real processes is grown, shrunk and moved by the commands that people type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.processes import ROOT, Cluster, eventually, publish, read_all

MESSAGES = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for all of these tests; the last one takes the third away."""
    with Cluster(tmp_path_factory.mktemp("cluster"), 3) as started:
        yield started.start()


def shell(cluster: Cluster, *words: str, ok: bool = True) -> list[dict[str, Any]]:
    """The objects that a command of `goqueue-cli` printed."""
    servers = ",".join(node.url for node in cluster.nodes if node.is_running())
    ran = subprocess.run(
        [sys.executable, "-m", "cli", "-s", servers, *words],
        cwd=ROOT,
        env={**os.environ, "GOQUEUE_CONFIG": os.devnull},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode == 0) == ok, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def create(cluster: Cluster, topic: str, **settings: int) -> None:
    made = cluster[0].ask("POST", "/topics", {"name": topic, **settings})
    assert made.status == 201, made.content


def voters(cluster: Cluster, topic: str) -> list[set[str]]:
    (node, *_) = [node for node in cluster.nodes if node.is_running()]
    partitions = node.ask("GET", f"/topics/{topic}/partitions").body["partitions"]
    return [set(one["voters"]) for one in partitions]


def stored(cluster: Cluster, topic: str) -> list[str]:
    (node, *_) = [node for node in cluster.nodes if node.is_running()]
    count = len(voters(cluster, topic))
    return sorted(m["value"] for p in range(count) for m in read_all(node, topic, p))


def test_a_topic_gets_partitions_and_copies_and_a_group_misses_nothing_of_the_new_ones(
    cluster: Cluster,
) -> None:
    create(cluster, "grown", partitions=2, replication_factor=1)
    shell(cluster, "group", "create", "late", "--start", "latest")
    publish(cluster[0], "grown", [{"value": "old", "partition": 1}])

    (added,) = shell(cluster, "topic", "partitions", "grown", "--count", "4")
    assert added["partitions_added"] == [2, 3]
    publish(cluster[1], "grown", [{"value": "new", "partition": 3}])
    (*_, status) = shell(cluster, "topic", "alter", "grown", "--replication-factor", "3", "--wait")

    assert (status["scaling_in_progress"], status["replication_factor"]) == (False, 3)
    everybody = {"node-1", "node-2", "node-3"}
    assert voters(cluster, "grown") == [everybody] * 4
    assert stored(cluster, "grown") == ["new", "old"]
    body = {"topic": "grown", "limit": 10, "wait": "10s"}
    taken = cluster[2].ask("POST", "/groups/late/receive", body).body["messages"]
    assert [message["value"] for message in taken] == ["new"], "nothing of a new partition is old"
    shell(cluster, "topic", "alter", "grown", "--replication-factor", "2", "--wait")
    assert [len(found) for found in voters(cluster, "grown")] == [2] * 4


def test_a_cancelled_move_goes_back_and_publishing_never_stops(cluster: Cluster) -> None:
    create(cluster, "moved", partitions=1, replication_factor=2)
    (before,) = voters(cluster, "moved")
    (outside,) = {"node-1", "node-2", "node-3"} - before
    cluster.node(outside).pause()
    try:
        asked = next(node for node in cluster.nodes if node.id in before)
        row = {"topic": "moved", "partition": 0, "new_replicas": [sorted(before)[0], outside]}
        begun = asked.ask("POST", "/v1/admin/reassignment", {"partitions": [row]})
        assert begun.status == 202, begun.content
        publish(asked, "moved", [{"value": "amid"}])
        ended = asked.ask("DELETE", f"/v1/admin/reassignment/{begun.body['id']}")
        assert ended.status == 200, ended.content
    finally:
        cluster.node(outside).resume()

    path = f"/v1/admin/reassignment/{begun.body['id']}"
    eventually("it is cancelled", lambda: asked.ask("GET", path).body["state"] == "cancelled")
    assert voters(cluster, "moved") == [before]
    assert stored(cluster, "moved") == ["amid"]


def test_a_node_is_drained_and_removed_and_nothing_it_held_is_lost(cluster: Cluster) -> None:
    create(cluster, "orders", partitions=6, replication_factor=1)
    values = sorted(f"v{number}" for number in range(MESSAGES))
    publish(cluster[0], "orders", [{"value": value, "key": value} for value in values])
    assert {"node-3"} in voters(cluster, "orders")

    (plan,) = shell(cluster, "cluster", "drain", "node-3", "--dry-run")
    assert all("node-3" in move["from"] and "node-3" not in move["to"] for move in plan["moves"])
    assert plan["bytes"] > plan["bytes_unknown"] == 0
    (*_, drained) = shell(cluster, "cluster", "drain", "node-3", "--wait")
    assert (drained["state"], drained["held"]) == ("drained", 0)
    create(cluster, "later")  # with as many copies as there are brokers that take some
    (gone,) = shell(cluster, "cluster", "remove", "node-3", "--yes")

    assert gone == {"id": "node-3", "state": "gone"}
    assert {"node-3"} not in voters(cluster, "orders")
    assert cluster.node("node-3").stop() == 0
    (found,) = shell(cluster, "cluster", "status")
    assert [one["id"] for one in found["brokers"]] == ["node-1", "node-2"]
    assert found["reassignments"] == []
    publish(cluster[0], "orders", [{"value": "w", "partition": number} for number in range(6)])
    assert stored(cluster, "orders") == sorted([*values, *["w"] * 6])
