"""Metrics of a cluster, added up over its nodes, and work that moves those that work moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.group_members import Member, ok, soon
from tests.cluster.processes import Cluster, Node, publish

LANES = ("critical", "high", "normal", "low", "background")


def figures(node: Node, accept: str = "") -> dict[str, float]:
    """By name as it is declared; all its series added up, of a histogram its observations."""
    text = node.ask("GET", "/metrics", headers={"Accept": accept}).content.decode()
    found: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if family.type == "histogram":
                found[family.name] += sample.value if sample.name.endswith("_count") else 0
            else:
                found[sample.name] += abs(sample.value)
    return found


def work(cluster: Cluster, topic: str) -> None:
    """Publishes with keys, lanes and delays; receives, and settles in every way; a group whose
    members come, poll, commit and go; reads by offset."""
    for node in cluster.nodes:
        publish(node, topic, _messages(node.id))
    first = cluster[0]
    visible = {"topic": topic, "limit": 20, "visibility": "30s", "wait": "5s"}
    ok(first.ask("PUT", "/groups/workers", {"max_attempts": 2}))
    taken = ok(first.ask("POST", "/groups/workers/receive", visible))["messages"]
    ends = ["nack", "reject", "extend"] + ["ack"] * (len(taken) - 4)  # the last one stays leased
    _settle(first, "workers", list(zip(taken, ends, strict=False)))
    again = ok(cluster[1].ask("POST", "/groups/workers/receive", visible))["messages"]
    _settle(cluster[1], "workers", [(one, "ack") for one in again[:2]])
    ok(cluster[2].ask("POST", "/groups/workers/receive", {**visible, "topic": "idle"}))
    _crew(cluster, topic)
    for number in range(3):
        path = f"/topics/{topic}/partitions/{number}/messages?offset=0"
        ok(cluster[number].ask("GET", path))


def _crew(cluster: Cluster, topic: str) -> None:
    one, two = Member(cluster, "crew", "one"), Member(cluster, "crew", "two")
    soon("the first joins", lambda: one.join([topic]))
    soon("it has all", lambda: _hears(one, lambda: len(one.assigned) == 3))
    two.join([topic])
    soon("it is asked to let go", lambda: _hears(one, lambda: bool(one.revoking)))
    one.let_go(one.revoking)
    soon("the other has some", lambda: _hears(two, lambda: bool(two.assigned)))
    partition = str(one.assigned[0][1])
    body = {
        "member_id": one.id,
        "generation": one.generation,
        "offsets": {topic: {partition: 1}},
    }
    poll = f"poll?member_id={one.id}&generation={one.generation}&limit=5&timeout=1s"
    ok(one.ask("GET", poll))
    ok(one.ask("POST", "offsets", body))
    two.leave()


def _messages(sender: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"key": f"{sender}-{n}", "value": "x" * 100, "priority": LANES[n % 5]} for n in range(30)
    ]
    rows[0]["delay"], rows[1]["delay"] = "100ms", "1h"
    return rows


def _settle(node: Node, group: str, chosen: list[tuple[dict[str, Any], str]]) -> None:
    settles = [{"receipt": one["receipt"], "action": action} for one, action in chosen]
    ok(node.ask("POST", f"/groups/{group}/settle", {"settles": settles}))


def _hears(member: Member, condition: Callable[[], bool]) -> None:
    member.hear()
    assert condition()
