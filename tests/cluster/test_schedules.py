"""Nodes are killed for real, one after the other: runs and redrives go on, each message once."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.cluster.conftest import Start
from tests.cluster.processes import Cluster, Node, eventually, publish, read_all


def schedule(node: Node, name: str = "tick") -> dict[str, Any]:
    answer = node.ask("GET", f"/v1/schedules/{name}")
    assert answer.status == 200, answer.content
    body: dict[str, Any] = answer.body
    return body


def runs(node: Node) -> int:
    """-1 where the node can't say now."""
    answer = node.ask("GET", "/v1/schedules/tick")
    return int(answer.body["runs"]) if answer.status == 200 else -1


def kill_each(cluster: Cluster, meanwhile: Any) -> None:
    """Every node dies in turn, and comes back once `meanwhile` of a survivor has returned."""
    for node in cluster.nodes:
        survivor = next(other for other in cluster.nodes if other is not node)
        node.kill()
        meanwhile(survivor)
        node.start()
        cluster.wait_until_ready()


def run_ms(message: dict[str, Any]) -> int:
    return int(message["message_id"].rpartition(":")[2])


def test_each_run_of_a_schedule_is_one_message_and_none_is_early(start: Start) -> None:
    cluster = start()
    assert cluster[0].ask("POST", "/topics", {"name": "jobs", "num_partitions": 3}).status == 201
    wanted = {"name": "tick", "topic": "jobs", "every": "1s", "value": "go"}
    assert cluster[0].ask("POST", "/v1/schedules", wanted).status == 201
    eventually("the first run", lambda: runs(cluster[1]) >= 1)

    def two_more(survivor: Node) -> None:
        before = max(runs(survivor), 0)
        eventually("runs go on", lambda: runs(survivor) >= before + 2)

    kill_each(cluster, two_more)
    assert cluster[0].ask("POST", "/v1/schedules/tick/pause").status == 200

    def published() -> list[dict[str, Any]]:
        return [message for number in range(3) for message in read_all(cluster[1], "jobs", number)]

    eventually("all are there", lambda: len(published()) == schedule(cluster[1])["runs"])
    found = sorted(published(), key=run_ms)
    times = [run_ms(message) for message in found]
    assert times == list(range(times[0], times[-1] + 1, 1000))
    for message in found:
        stored_at = datetime.fromisoformat(message["timestamp"]).timestamp() * 1000
        assert stored_at >= run_ms(message) - 1000, "the log times of two groups agree within 1 s"


def test_a_redrive_goes_on_under_every_leader_and_moves_each_message_once(start: Start) -> None:
    cluster = start()
    assert cluster[0].ask("POST", "/topics", {"name": "orders", "num_partitions": 3}).status == 201
    values = {f"v{number}" for number in range(90)}
    publish(cluster[0], "orders", [{"value": value} for value in sorted(values)])
    taken = receive(cluster[0], 90)
    receipts = [message["receipt"] for message in taken]
    rejected = cluster[0].ask("POST", "/v1/groups/g/reject", {"receipts": receipts})
    assert rejected.body["settled"] == 90, rejected.content
    started = cluster[0].ask("POST", "/v1/groups/g/dlq/redrive", {"topic": "orders", "rate": 10})
    assert (started.status, started.body["matched"]) == (202, 90)
    job = started.body["job"]

    def state(node: Node) -> dict[str, Any]:
        answer = node.ask("GET", f"/v1/groups/g/dlq/redrives/{job}")
        return answer.body if answer.status == 200 else {"state": "unknown", "moved": -1}

    def more_moved(survivor: Node) -> None:
        before = max(0, int(state(survivor)["moved"]))
        eventually(
            "the job goes on",
            lambda: state(survivor)["moved"] > before or state(survivor)["state"] == "done",
        )

    kill_each(cluster, more_moved)

    eventually("the job is done", lambda: state(cluster[1])["state"] == "done")
    again = receive(cluster[1], 90)
    assert sorted(message["value"] for message in again) == sorted(values)
    assert {(message["attempt"], message["redrives"]) for message in again} == {(1, 1)}
    counts = cluster[2].ask("GET", "/v1/groups/g/dlq/counts?topic=orders")
    assert counts.body["total"] == 0


def receive(node: Node, count: int) -> list[dict[str, Any]]:
    """Messages of all partitions, until there are so many, and what comes with the last of them."""
    found: list[dict[str, Any]] = []
    wanted = {"topic": "orders", "limit": 1000, "visibility": "10m"}

    def all_there() -> bool:
        answer = node.ask("POST", "/v1/groups/g/receive", wanted)
        assert answer.status == 200, answer.content
        found.extend(answer.body["messages"])
        return len(found) >= count

    eventually(f"{count} messages", all_there)
    found.extend(node.ask("POST", "/v1/groups/g/receive", wanted).body["messages"])
    return found
