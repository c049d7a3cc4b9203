"""Nodes are killed for real: what was acked is there, who is left says what it can do."""

from __future__ import annotations

import shutil
from typing import Any

from tests.cluster.conftest import Start
from tests.cluster.processes import Node, eventually, publish, read_all


def values(node: Node, topic: str, partition: int = 0) -> list[str]:
    return [message["value"] for message in read_all(node, topic, partition)]


def create(node: Node, topic: str, **settings: object) -> dict[str, Any]:
    answer = node.ask("POST", "/topics", {"name": topic, "num_partitions": 1, **settings})
    assert answer.status == 201, answer.content
    created: dict[str, Any] = answer.body
    return created


def number(prefix: str, count: int) -> list[dict[str, object]]:
    return [{"value": f"{prefix}-{n}", "partition": 0} for n in range(count)]


def health(node: Node) -> dict[str, Any]:
    body: dict[str, Any] = node.ask("GET", "/cluster/health").body
    return body


def test_any_node_publishes_and_any_other_reads_at_once(start: Start) -> None:
    cluster = start()
    create(cluster[0], "orders")

    for n in range(30):
        publish(cluster[n % 3], "orders", [{"value": f"v{n}", "partition": 0}])
        answer = cluster[(n + 1) % 3].ask("GET", f"/topics/orders/partitions/0/messages?offset={n}")
        assert [message["value"] for message in answer.body["messages"]] == [f"v{n}"]


def test_leaderships_are_spread_over_the_nodes(start: Start) -> None:
    cluster = start()
    create(cluster[0], "spread", num_partitions=6)

    def leaders() -> bool:
        answer = cluster[1].ask("GET", "/topics/spread/partitions")
        led = [str(partition["leader"]) for partition in answer.body["partitions"]]
        return sorted(led) == ["node-1", "node-1", "node-2", "node-2", "node-3", "node-3"]

    eventually("two leaderships each", leaders)


def test_kill_9_of_the_leader_loses_nothing_and_publishing_goes_on(start: Start) -> None:
    cluster = start()
    create(cluster[0], "orders")
    publish(cluster[0], "orders", number("before", 200))
    leader = cluster.leader("orders")
    others = [node for node in cluster.nodes if node is not leader]

    leader.kill()
    publish(others[0], "orders", number("after", 10))

    wanted = [m["value"] for m in (*number("before", 200), *number("after", 10))]
    assert values(others[1], "orders") == wanted
    eventually("degraded", lambda: health(others[0])["status"] == "degraded")
    eventually(
        "every node counts it", lambda: health(others[0])["under_replicated_partitions"] == 1
    )
    leader.start()
    cluster.wait_until_ready()
    assert values(leader, "orders") == wanted
    eventually("healthy again", lambda: health(others[1])["status"] == "healthy")


def test_a_paused_leader_is_passed_by_and_follows_when_it_wakes(start: Start) -> None:
    cluster = start()
    create(cluster[0], "orders")
    publish(cluster[0], "orders", number("before", 10))
    leader = cluster.leader("orders")
    other = next(node for node in cluster.nodes if node is not leader)

    leader.pause()
    publish(other, "orders", number("during", 10))
    leader.resume()

    wanted = [m["value"] for m in (*number("before", 10), *number("during", 10))]
    eventually("the woken node follows", lambda: values(leader, "orders") == wanted)
    publish(leader, "orders", number("after", 1))
    assert len(values(other, "orders")) == 21


def test_kill_9_of_all_and_restart_keeps_everything(start: Start) -> None:
    cluster = start()
    create(cluster[0], "orders")
    publish(cluster[1], "orders", number("kept", 500))

    cluster.kill_all()
    cluster.start()

    assert values(cluster[2], "orders") == [m["value"] for m in number("kept", 500)]
    publish(cluster[0], "orders", number("more", 1))
    assert len(values(cluster[1], "orders")) == 501


def test_a_lone_survivor_refuses_writes_says_why_and_serves_what_it_has(start: Start) -> None:
    cluster = start()
    create(cluster[0], "orders")
    publish(cluster[0], "orders", number("kept", 20))
    survivor = cluster[0]
    eventually("all applied here", lambda: len(values(survivor, "orders")) == 20)

    cluster[1].kill()
    cluster[2].kill()

    eventually(
        "publishes are refused for want of a quorum",
        lambda: (
            survivor.ask("POST", "/topics/orders/messages", {"messages": number("x", 1)})
            .body["results"][0]
            .get("code")
            == "no_quorum"
        ),
    )
    refused = survivor.ask("POST", "/topics", {"name": "other"})
    assert (refused.status, refused.body["code"]) == (503, "no_quorum")
    assert int(refused.headers["retry-after"]) >= 1
    assert values(survivor, "orders")[:20] == [m["value"] for m in number("kept", 20)]
    assert health(survivor)["has_quorum"] is False
    cluster[1].start()
    cluster.wait_until_ready()
    publish(survivor, "orders", number("again", 1))


def test_delete_and_recreate_while_a_node_is_down_resurrects_nothing(start: Start) -> None:
    cluster = start()
    first = create(cluster[0], "orders")
    publish(cluster[0], "orders", number("old", 50))
    sleeper = cluster[2]
    sleeper.kill()

    assert cluster[0].ask("DELETE", "/topics/orders").status == 200
    second = create(cluster[1], "orders")
    publish(cluster[1], "orders", number("new", 5))
    sleeper.start()
    cluster.wait_until_ready()

    assert first["id"] != second["id"]
    wanted = [m["value"] for m in number("new", 5)]
    eventually("the sleeper has the new topic", lambda: values(sleeper, "orders") == wanted)
    groups = sleeper.data / "groups"
    eventually(
        "the old topic's files are gone everywhere",
        lambda: not [path for node in cluster.nodes for path in directories(node, first["id"])],
    )
    assert groups.exists()


def directories(node: Node, topic_id: str) -> list[str]:
    return [
        path.name for path in (node.data / "groups").iterdir() if path.name.startswith(topic_id)
    ]


def test_a_wiped_node_takes_no_part_until_a_majority_has_let_it_in(start: Start) -> None:
    cluster = start()
    create(cluster[0], "orders")
    publish(cluster[0], "orders", number("kept", 10))
    eventually("all applied here", lambda: len(values(cluster[0], "orders")) == 10)
    wiped = cluster[2]
    cluster[1].kill()
    wiped.kill()
    shutil.rmtree(wiped.data)

    wiped.start()
    eventually("told apart", lambda: health(cluster[0])["nodes"]["node-3"] == "wiped")

    assert not wiped.is_ready()
    assert "wiped" in wiped.ask("GET", "/readyz").body["message"]
    assert health(cluster[0])["status"] != "healthy"
    refused = eventually(
        "two of three voters are gone: the wiped one's vote does not count",
        lambda: not_acked(cluster[0]),
    )
    assert refused
    assert values(cluster[0], "orders")[:10] == [m["value"] for m in number("kept", 10)]

    cluster[1].start()
    cluster.wait_until_ready()
    publish(wiped, "orders", number("again", 1))
    assert values(wiped, "orders")[-1] == "again-0"


def not_acked(node: Node) -> bool:
    answer = node.ask("POST", "/topics/orders/messages", {"messages": number("x", 1)})
    result = answer.body["results"][0] if "results" in answer.body else answer.body
    return result.get("code") == "no_quorum"


def test_sigterm_hands_leaderships_over_and_exits_0(start: Start) -> None:
    cluster = start()
    create(cluster[0], "orders")
    publish(cluster[0], "orders", number("before", 10))
    leader = cluster.leader("orders")
    other = next(node for node in cluster.nodes if node is not leader)

    assert leader.stop() == 0
    publish(other, "orders", number("after", 1))

    assert "leaderships_not_handed_over" not in leader.log.read_text()
    assert len(values(other, "orders")) == 11


def test_one_node_is_a_cluster_of_its_own(start: Start) -> None:
    cluster = start(1)
    publish(cluster[0], "orders", number("alone", 3))

    cluster.kill_all()
    cluster.start()

    assert values(cluster[0], "orders") == [m["value"] for m in number("alone", 3)]
    assert health(cluster[0])["status"] == "healthy"


def test_a_second_process_on_the_same_data_is_told_who_holds_it(start: Start) -> None:
    cluster = start(1)
    holder = cluster[0]
    assert holder.process is not None
    second = Node("node-1", 0, 0, holder.folder, list(holder.arguments))
    at = second.arguments.index("--http") + 1
    second.arguments[at] = "127.0.0.1:0"

    second.start()
    assert second.process is not None

    assert second.process.wait(20) == 3
    assert f"pid {holder.process.pid}" in holder.log.read_text()
    assert holder.is_ready()
