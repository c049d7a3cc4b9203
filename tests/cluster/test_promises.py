"""What docs/reference/guarantees.md promises of the queue over time, on real nodes."""

from __future__ import annotations

from typing import Any

from tests.cluster.conftest import Start
from tests.cluster.processes import Cluster, eventually, publish, read_all
from tests.cluster.test_faults import create, ok, receive, settle, values


def log_starts(cluster: Cluster, topic: str) -> list[int]:
    return [
        ok(node.ask("GET", f"/topics/{topic}"))["partition_offsets"]["0"]["earliest"]
        for node in cluster.nodes
    ]


def test_delays_and_dead_letters_outlive_retention_and_kill_9_with_their_ids(start: Start) -> None:
    cluster = start(3, "storage.retentionCheck=100ms")
    create(cluster[0], "short", config={"retention_ms": 500})
    publish(cluster[0], "short", [{"value": "later", "delay": "8s", "key": "k"}])
    publish(cluster[0], "short", [{"value": "bad"}, {"value": "plain"}])
    bad = receive(cluster[1], "g", "short", limit=1)
    settle(cluster[1], "g", "reject", bad, reason="cannot be read")

    eventually("the log begins behind them", lambda: log_starts(cluster, "short") == [3, 3, 3])
    cluster.kill_all()
    for node in cluster.nodes:
        node.start()
    cluster.wait_until_ready()

    (dead,) = ok(cluster[2].ask("GET", "/groups/g/dlq?topic=short"))["messages"]
    assert (dead["id"], dead["value"]) == ("short:0:1", "bad")
    found: list[dict[str, Any]] = []

    def came() -> bool:
        found.extend(receive(cluster[1], "g", "short", wait="5s"))
        return bool(found)

    eventually("the delayed message", came)
    assert [(one["id"], one["key"]) for one in found] == [("short:0:0", "k")]
    assert values(found) == ["later"]


def test_the_last_value_of_each_key_outlives_kill_9_in_the_middle_of_compaction(
    start: Start,
) -> None:
    settings = ("storage.segmentBytes=64KiB", "storage.retentionCheck=50ms")
    cluster = start(3, *settings)
    create(cluster[0], "table", config={"cleanup.policy": "compact"})
    expected: dict[str, str | None] = {}
    for round_ in range(12):
        rows: list[dict[str, object]] = []
        for number in range(20):
            value = None if (round_ + number) % 7 == 0 else f"{round_}:" + "x" * 500
            rows.append({"key": f"k{number}", "value": value})
            expected[f"k{number}"] = value
        publish(cluster[0], "table", rows)
        if round_ in (5, 8, 11):
            victim = cluster.leader("table")
            victim.kill()
            cluster[0 if victim is not cluster[0] else 1].ask("POST", "/topics/table/compaction")
            victim.start()
            cluster.wait_until_ready()

    def compacted() -> bool:
        found = ok(cluster[1].ask("GET", "/topics/table/compaction"))["partitions"][0]
        return found["runs"] > 0 and found["state"] == "idle"

    eventually("a run that ends", compacted)
    for node in cluster.nodes:
        rows_read = read_all(node, "table", 0)
        offsets = [row["offset"] for row in rows_read]
        assert offsets == sorted(set(offsets)) and len(offsets) < 12 * 20
        assert {row["key"]: row["value"] for row in rows_read} == expected
