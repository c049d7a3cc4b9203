"""One healthy cluster of three: any node serves anything, in milliseconds, with one timeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from goqueue.wire.batch import Record, encode_batch
from node.metrics import Metrics
from tests.cluster.figures import figures, work
from tests.cluster.processes import Answer, Cluster, Node, eventually, publish, read_all


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("serving")
    settings = ["storage.retentionCheck=100ms"]
    with Cluster(folder, 3, settings, auto_create=False) as started:
        yield started.start()


def create(node: Node, topic: str, **settings: object) -> dict[str, Any]:
    answer = node.ask("POST", "/topics", {"name": topic, "num_partitions": 1, **settings})
    assert answer.status == 201, answer.content
    created: dict[str, Any] = answer.body
    return created


def post_batch(node: Node, topic: str, batch: bytes) -> Answer:
    return node.ask(
        "POST",
        f"/topics/{topic}/partitions/0/messages",
        content=batch,
        headers={"Content-Type": "application/vnd.goqueue.batch"},
    )


def test_a_message_forwarded_to_its_leader_takes_milliseconds(cluster: Cluster) -> None:
    create(cluster[0], "forwarded")
    leader = cluster.leader("forwarded")
    other = next(node for node in cluster.nodes if node is not leader)

    for number in range(30):
        publish(other, "forwarded", [{"value": str(number)}])

    assert [m["value"] for m in read_all(leader, "forwarded", 0)] == [str(n) for n in range(30)]


def test_keys_lanes_headers_and_bytes_survive_forwarding(cluster: Cluster) -> None:
    create(cluster[0], "whole")

    for node in cluster.nodes:
        publish(
            node,
            "whole",
            [
                {
                    "key": "k",
                    "value": "/wA=",
                    "value_encoding": "base64",
                    "priority": "high",
                    "headers": {"from": node.id},
                }
            ],
        )

    messages = read_all(cluster[1], "whole", 0)
    assert [m["headers"]["from"] for m in messages] == ["node-1", "node-2", "node-3"]
    assert {(m["key"], m["value"], m["value_encoding"], m["priority"]) for m in messages} == {
        ("k", "/wA=", "base64", "high")
    }


def test_topic_commands_are_taken_by_any_node(cluster: Cluster) -> None:
    create(cluster[2], "commands", retention_hours=1)

    altered = cluster[1].ask("PATCH", "/topics/commands", {"retention_hours": 2})
    assert altered.status == 200, altered.content
    again = cluster[0].ask("POST", "/topics", {"name": "commands"})
    assert (again.status, again.body["code"]) == (409, "topic_exists")
    eventually(
        "altered everywhere",
        lambda: all(
            node.ask("GET", "/topics/commands").body["retention_hours"] == 2
            for node in cluster.nodes
        ),
    )
    assert cluster[2].ask("DELETE", "/topics/commands").status == 200
    eventually(
        "deleted everywhere",
        lambda: all(node.ask("GET", "/topics/commands").status == 404 for node in cluster.nodes),
    )


def test_a_long_poll_at_one_node_is_woken_by_a_publish_at_another(cluster: Cluster) -> None:
    create(cluster[0], "polled")
    answers: list[Answer] = []
    path = "/topics/polled/partitions/0/messages?offset=0&timeout=60s&wait=60s"
    poll = threading.Thread(target=lambda: answers.append(cluster[1].ask("GET", path)))
    poll.start()

    publish(cluster[2], "polled", [{"value": "news"}])
    poll.join(50)  # before its wait is over

    assert [m["value"] for m in answers[0].body["messages"]] == ["news"]


def test_reads_by_time_are_exact_at_any_node(cluster: Cluster) -> None:
    create(cluster[0], "timed")
    for number in range(6):
        publish(cluster[number % 3], "timed", [{"value": str(number)}])
        time.sleep(0.003)  # another millisecond of log time
    times = [message["timestamp"] for message in read_all(cluster[0], "timed", 0)]

    for node in cluster.nodes:
        answer = node.ask(
            "GET",
            f"/topics/timed/partitions/0/messages?from_time={times[2]}&to_time={times[4]}",
        )
        assert [m["value"] for m in answer.body["messages"]] == ["2", "3"], answer.content


def test_the_timeline_names_who_published_what_and_which_nodes_hold_it(cluster: Cluster) -> None:
    create(cluster[0], "traced")
    batch = encode_batch(
        [Record(b"v", b"order-1", lane=0)], producer_id=7, producer_epoch=0, base_sequence=0
    )
    assert post_batch(cluster[0], "traced", batch).status == 200

    def timeline() -> dict[str, Any] | None:
        answer = cluster[2].ask("GET", "/messages/traced:0:0/timeline")
        assert answer.status == 200, answer.content
        events = {event["event_type"]: event for event in answer.body["events"]}
        nodes = events["REPLICATED"]["attributes"]["nodes"]
        return events if len(nodes) == 3 else None

    events = eventually("all three hold it", timeline)
    assert list(events) == ["PUBLISHED", "REPLICATED", "RETAINED"]
    published = events["PUBLISHED"]["attributes"]
    assert (published["key"], published["lane"], published["producer"]) == (
        "order-1",
        "critical",
        7,
    )
    assert events["REPLICATED"]["attributes"]["nodes"] == ["node-1", "node-2", "node-3"]


def test_a_repeated_batch_is_answered_with_its_original_offset(cluster: Cluster) -> None:
    create(cluster[0], "repeated")
    identity = cluster[1].ask("POST", "/producers/init", {}).body
    batch = encode_batch(
        [Record(b"a", None), Record(b"b", None)],
        producer_id=identity["producer_id"],
        producer_epoch=identity["epoch"],
        base_sequence=0,
    )

    first = post_batch(cluster[0], "repeated", batch)
    second = post_batch(cluster[2], "repeated", batch)

    assert first.status == second.status == 200
    assert len(read_all(cluster[1], "repeated", 0)) == 2
    assert '"duplicate":true' in second.content.decode()
    gap = encode_batch(
        [Record(b"z", None)],
        producer_id=identity["producer_id"],
        producer_epoch=identity["epoch"],
        base_sequence=9,
    )
    refused = post_batch(cluster[1], "repeated", gap)
    assert "out_of_order" in refused.content.decode()


def test_relaxed_topics_say_so_and_can_be_flushed(cluster: Cluster) -> None:
    created = create(cluster[0], "relaxed", durability="relaxed")
    assert any("relaxed" in warning for warning in created["warnings"])

    publish(cluster[1], "relaxed", [{"value": str(n)} for n in range(100)])
    told = [durability for node in cluster.nodes for durability in told_durability(node, "relaxed")]

    assert told == ["relaxed"] * 9  # at the leader, and through those who ask it
    assert cluster[2].ask("POST", "/topics/relaxed/flush").status == 200
    assert len(read_all(cluster[0], "relaxed", 0)) == 112


def test_answers_of_other_topics_say_that_a_majority_has_synced(cluster: Cluster) -> None:
    create(cluster[0], "strict")

    told = [durability for node in cluster.nodes for durability in told_durability(node, "strict")]

    assert told == ["majority"] * 9


def told_durability(node: Node, topic: str) -> list[str]:
    """What one node's answers say: to one message, to two, to a batch."""
    path = f"/topics/{topic}/messages"
    single = node.ask("POST", path, {"value": "x"}).body["durability"]
    several = node.ask("POST", path, {"messages": [{"value": "x"}] * 2}).body["durability"]
    (result,) = post_batch(node, topic, encode_batch([Record(b"x", None)])).body["results"]
    return [single, several, result["durability"]]


def test_retention_moves_the_log_start_on_every_replica(cluster: Cluster) -> None:
    create(cluster[0], "short", config={"retention_ms": 300})
    publish(cluster[0], "short", [{"value": "old"}] * 10)

    def starts() -> list[int]:
        return [
            node.ask("GET", "/topics/short").body["partition_offsets"]["0"]["earliest"]
            for node in cluster.nodes
        ]

    eventually("the old ones are gone", lambda: starts() == [10, 10, 10])
    publish(cluster[1], "short", [{"value": "new"}])
    first = cluster[2].ask("GET", "/topics/short/partitions/0/messages?offset=0").body
    assert [m["offset"] for m in first["messages"]] in ([10], [])  # or gone again already


def test_unknown_topics_are_not_created_where_that_is_off(cluster: Cluster) -> None:
    answer = cluster[0].ask("POST", "/topics/never/messages", {"messages": [{"value": "x"}]})

    assert (answer.status, answer.body["code"]) == (404, "unknown_topic")


def test_every_node_tells_figures_that_agree_with_what_happened(cluster: Cluster) -> None:
    create(cluster[0], "counted")
    publish(cluster[1], "counted", [{"value": "x"}] * 25)

    def published() -> float:
        return sum(
            float(line.split()[-1])
            for node in cluster.nodes
            for line in node.ask("GET", "/metrics").content.decode().splitlines()
            if line.startswith('goqueue_broker_messages_published_total{topic="counted"}')
        )

    assert published() == 25
    health = cluster[2].ask("GET", "/cluster/health").body
    assert health["status"] == "healthy", health


def test_after_work_of_every_kind_no_metric_that_work_moves_is_zero(cluster: Cluster) -> None:
    declared = Metrics().families
    moved = [name for name, family in declared.items() if family.meaning.moves.under_load]

    def still() -> list[str]:
        found = [figures(node) for node in cluster.nodes]
        assert {name for one in found for name in one} <= declared.keys()
        return [name for name in moved if not any(one[name] for one in found)]

    assert still() != [], "else the work would prove nothing"
    create(cluster[0], "worked", num_partitions=3, replication_factor=3)
    create(cluster[0], "idle")

    work(cluster, "worked")

    with suppress(AssertionError):
        eventually("all have moved", lambda: not still())
    assert still() == []


def test_openmetrics_is_told_to_who_asks_for_it(cluster: Cluster) -> None:
    asked = {"Accept": "application/openmetrics-text; version=1.0.0"}

    answer = cluster[0].ask("GET", "/metrics", headers=asked)

    assert answer.content.endswith(b"# EOF\n")
    assert b"# TYPE goqueue_broker_messages_published counter" in answer.content
