"""Finding messages in a cluster of three: from any node, in time, whoever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Any
from urllib.parse import quote

from benchmarks.lookups import batch, key, message_id, trace_id
from goqueue.wire.batch import BATCH_MEDIA_TYPE
from tests.cluster.conftest import Start
from tests.cluster.processes import Cluster, Node, eventually

COUNT = 20_000


def fill(node: Node) -> None:
    created = {"name": "t", "num_partitions": 2, "replication_factor": 3}
    assert node.ask("POST", "/topics", created).status == 201
    for first in range(0, COUNT, 1000):
        answer = node.ask(
            "POST",
            "/topics/t/partitions/0/messages",
            content=batch(first, 1000),
            headers={"Content-Type": BATCH_MEDIA_TYPE},
        )
        assert answer.status == 200, answer.content


def find(node: Node, query: str) -> dict[str, Any]:
    answer = node.ask("GET", f"/messages?topic=t&{query}")
    assert answer.status == 200, answer.content
    found: dict[str, Any] = answer.body
    return found


def offsets(node: Node, query: str) -> list[int] | None:
    """None where not all could be searched."""
    found = find(node, query)
    if found["not_searched"]:
        return None
    return [message["offset"] for message in found["messages"]]


def soon(node: Node, query: str) -> list[int]:
    """Once all can be searched. An answer that claims to be whole must be."""
    return eventually(f"all is searched for {query}", lambda: _boxed(offsets(node, query)))[0]


def _boxed(found: list[int] | None) -> list[list[int]] | None:
    return None if found is None else [found]


def others(cluster: Cluster, node: Node) -> list[Node]:
    return [one for one in cluster.nodes if one.id != node.id]


def test_every_node_finds_the_same_in_time_and_so_does_the_next_leader(start: Start) -> None:
    cluster = start(3)
    fill(cluster[0])
    wanted = {
        f"message_id={message_id(12_345)}": [12_345],
        f"trace_id={trace_id(777)}": [777],
        "header=order:19999": [19_999],
        f"key={quote(key(4_321))}": [4_321],
        "message_id=none": [],
    }
    for node in cluster.nodes:
        for query, found in wanted.items():
            assert soon(node, query) == found, (node.id, query)
    for number in range(0, COUNT, COUNT // 40):
        assert offsets(cluster[1], f"message_id={message_id(number)}") == [number]

    leader = cluster.leader("t")
    leader.kill()

    for node in others(cluster, leader):
        for query, found in wanted.items():
            assert soon(node, query) == found, (node.id, query)
        timeline = eventually("the timeline", partial(_timeline, node, message_id(12_345)))
        assert timeline["id"] == "t:0:12345"


def test_what_no_leader_answers_for_is_named_and_never_left_out_in_silence(start: Start) -> None:
    cluster = start(3)
    fill(cluster[0])
    for node in cluster.nodes[1:]:
        node.kill()

    def named() -> dict[str, Any] | None:
        found = find(cluster[0], f"message_id={message_id(5)}")
        assert not found["complete"] or found["messages"], "it claims that nothing is there"
        return found if len(found["not_searched"]) == 2 else None

    missing = eventually("both partitions are named", named)["not_searched"]

    assert {one["partition"] for one in missing} == {0, 1}


def test_following_a_message_survives_the_death_of_its_leader(start: Start) -> None:
    cluster = start(3)
    fill(cluster[0])
    leader = cluster.leader("t")
    rest = others(cluster, leader)
    servers = ",".join(node.url for node in [leader, *rest])
    (taken,) = _post(rest[0], "receive", topic="t", limit=1, visibility_timeout="1h")["messages"]
    command = ["-m", "cli", "--server", servers, "trace", taken["id"]]
    process = subprocess.Popen(
        [sys.executable, *command, "--follow", "--group", "g", "-o", "json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(3)]
        leader.kill()

        def acked() -> bool | None:
            answer = rest[0].ask("POST", "/groups/g/ack", {"receipts": [taken["receipt"]]})
            return True if answer.status == 200 and answer.body["settled"] else None

        eventually("the ack", acked)
        told += [json.loads(line) for line in process.communicate(timeout=30)[0].splitlines()]
    finally:
        process.kill()

    assert [event["event_type"] for event in told] == [
        "PUBLISHED",
        "REPLICATED",
        "DELIVERED",
        "ACKNOWLEDGED",
    ]
    assert process.returncode == 0


def _timeline(node: Node, id: str) -> dict[str, Any] | None:
    answer = node.ask("GET", f"/messages/{id}/timeline?topic=t")
    return answer.body if answer.status == 200 else None


def _post(node: Node, what: str, **body: object) -> dict[str, Any]:
    answer = node.ask("POST", f"/groups/g/{what}", body)
    assert answer.status == 200, answer.content
    found: dict[str, Any] = answer.body
    return found
