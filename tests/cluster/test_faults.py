"""What others' queues got wrong, asked of real nodes over HTTP (docs/internals/faults.md)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import Answer, Cluster, Node, eventually, publish, read_all

POLL_S = 32


def create(node: Node, topic: str, **settings: object) -> None:
    answer = node.ask("POST", "/topics", {"name": topic, "num_partitions": 1, **settings})
    assert answer.status == 201, answer.content


def ok(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.content
    body: dict[str, Any] = answer.body
    return body


def receive(node: Node, group: str, topic: str, **how: object) -> list[dict[str, Any]]:
    body = {"topic": topic, "limit": 1000, **how}
    found: list[dict[str, Any]] = ok(
        node.ask("POST", f"/v1/groups/{group}/receive", body, timeout_s=70)
    )["messages"]
    return found


def settle(
    node: Node, group: str, action: str, messages: Sequence[dict[str, Any]], **how: object
) -> list[dict[str, Any]]:
    settles = [{"receipt": one["receipt"], "action": action, **how} for one in messages]
    found: list[dict[str, Any]] = ok(
        node.ask("POST", f"/v1/groups/{group}/settle", {"settles": settles})
    )["results"]
    return found


def ack(node: Node, group: str, messages: Sequence[dict[str, Any]]) -> None:
    assert all(one["success"] for one in settle(node, group, "ack", messages))


def values(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [message["value"] for message in messages]


@dataclass
class Poll:
    """A receive of more than half a minute, begun before the other tests."""

    thread: threading.Thread
    answers: list[Answer]
    took_s: list[float]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder: Path = tmp_path_factory.mktemp("faults")
    with Cluster(folder, 3, auto_create=False) as started:
        yield started.start()


@pytest.fixture(scope="module", autouse=True)
def poll(cluster: Cluster) -> Poll:
    create(cluster[0], "silent")
    found = Poll(threading.Thread(), [], [])

    def wait() -> None:
        began = time.monotonic()
        body = {"topic": "silent", "wait": f"{POLL_S}s"}
        path = "/v1/groups/patient/receive"
        found.answers.append(cluster[1].ask("POST", path, body, timeout_s=60))
        found.took_s.append(time.monotonic() - began)

    found.thread = threading.Thread(target=wait, daemon=True)
    found.thread.start()
    return found


# -- the Go system


def test_a_new_cluster_is_empty_and_serves(tmp_path: Path) -> None:
    with Cluster(tmp_path / "not" / "there", 1, auto_create=False) as alone:
        node = alone.start()[0]

        assert ok(node.ask("GET", "/topics"))["topics"] == []
        assert ok(node.ask("GET", "/groups"))["groups"] == []
        create(node, "first")
        publish(node, "first", [{"value": "v"}])
        assert values(receive(node, "g", "first")) == ["v"]


def test_delay_lane_and_headers_survive_forwarding(cluster: Cluster) -> None:
    create(cluster[0], "forwarded")
    leader = cluster.leader("forwarded")
    other = next(node for node in cluster.nodes if node is not leader)
    message = {"value": "v", "delay": "300ms", "priority": "high", "headers": {"h": "1"}}

    (result,) = publish(other, "forwarded", [message])

    assert (result["delayed"], result["priority"]) == (True, "high")
    (found,) = receive(other, "g", "forwarded", wait="10s", visibility="30s")
    leased_at = datetime.fromisoformat(found["visible_until"]) - timedelta(seconds=30)
    assert leased_at >= datetime.fromisoformat(found["deliver_at"])
    assert (found["priority"], found["headers"]) == ("high", {"h": "1"})
    assert found["deliver_at"] == result["deliverAt"]


def test_five_normal_and_one_critical_read_back_as_six(cluster: Cluster) -> None:
    create(cluster[0], "six")
    publish(cluster[0], "six", [{"value": str(n)} for n in range(5)])
    publish(cluster[0], "six", [{"value": "critical", "priority": "critical"}])

    assert values(read_all(cluster[0], "six", 0)) == ["0", "1", "2", "3", "4", "critical"]
    assert values(receive(cluster[1], "g", "six")) == ["critical", "0", "1", "2", "3", "4"]


def test_acked_messages_do_not_come_again(cluster: Cluster) -> None:
    create(cluster[0], "acked")
    publish(cluster[0], "acked", [{"value": str(n)} for n in range(3)])
    messages = receive(cluster[0], "g", "acked", visibility="3s")

    results = settle(cluster[0], "g", "ack", messages)

    assert [one["committed_offset"] for one in results] == [3, 3, 3]
    assert receive(cluster[0], "g", "acked", wait="4s") == []


def test_a_commit_settles_what_is_in_flight_below_it(cluster: Cluster) -> None:
    create(cluster[0], "committed")
    publish(cluster[0], "committed", [{"value": str(n)} for n in range(4)])
    held = receive(cluster[0], "g", "committed", limit=2, visibility="3s")

    ok(cluster[2].ask("POST", "/groups/g/commit", {"topic": "committed", "offsets": {"0": 3}}))

    late = settle(cluster[1], "g", "ack", held)
    assert [(one["success"], one["code"]) for one in late] == [(False, "not_in_flight")] * 2
    assert values(receive(cluster[0], "g", "committed", wait="1s")) == ["3"]
    assert receive(cluster[0], "g", "committed", wait="4s") == []
    counts = ok(cluster[0].ask("GET", "/groups/g/dlq/counts?topic=committed"))
    assert counts["total"] == 0


def test_a_group_receives_what_another_one_holds(cluster: Cluster) -> None:
    create(cluster[0], "shared")
    publish(cluster[0], "shared", [{"value": "v"}])

    assert values(receive(cluster[0], "a", "shared")) == ["v"]
    assert values(receive(cluster[1], "b", "shared")) == ["v"]


def test_one_in_flight_blocks_nothing_behind_it(cluster: Cluster) -> None:
    create(cluster[0], "behind")
    publish(cluster[0], "behind", [{"value": "a"}, {"value": "b"}])

    assert values(receive(cluster[0], "g", "behind", limit=1)) == ["a"]
    assert values(receive(cluster[0], "g", "behind")) == ["b"]


def test_a_nacks_delay_is_kept(cluster: Cluster) -> None:
    create(cluster[0], "nacked")
    publish(cluster[0], "nacked", [{"value": "v"}])
    began = time.monotonic()
    messages = receive(cluster[0], "g", "nacked")

    settle(cluster[1], "g", "nack", messages, delay="1s", reason="busy")

    (again,) = receive(cluster[2], "g", "nacked", wait="10s")
    assert time.monotonic() - began >= 1
    assert (again["attempt"], again["last_reason"]) == (2, "busy")


def test_a_delayed_message_is_not_lost_to_a_cursor(cluster: Cluster) -> None:
    create(cluster[0], "cursor")
    publish(cluster[0], "cursor", [{"value": "later", "delay": "5s"}, {"value": "now"}])
    path = "/topics/cursor/partitions/0/messages"

    page = ok(cluster[0].ask("GET", f"{path}?offset=0&visible=true"))
    found = values(page["messages"])
    assert "later" not in found

    def follow() -> bool:
        nonlocal page
        page = ok(cluster[0].ask("GET", f"{path}?offset={page['next_offset']}&visible=true"))
        found.extend(values(page["messages"]))
        return "later" in found and "now" in found

    eventually("a reader that follows next_offset has both", follow)


def test_no_route_writes_past_the_leader(cluster: Cluster) -> None:
    create(cluster[0], "guarded")

    for path in ("/topics/guarded/messages/forward", "/debug/pprof/"):
        for method in ("GET", "POST"):
            answer = cluster[0].ask(method, path, {"partition": 0, "value": "dg=="})
            assert answer.status in (404, 405), (method, path, answer.content)
    assert read_all(cluster[0], "guarded", 0) == []


def test_delayed_messages_tell_how_long_they_still_wait(cluster: Cluster) -> None:
    create(cluster[0], "remaining")
    publish(cluster[0], "remaining", [{"value": "v", "delay": "1d"}])

    (one,) = ok(cluster[1].ask("GET", "/topics/remaining/delayed"))["messages"]

    assert one["state"] == "pending"
    assert one["time_remaining"].startswith("23h59m")


def test_one_receive_takes_from_several_topics(cluster: Cluster) -> None:
    for topic in ("one", "two"):
        create(cluster[0], topic)
        publish(cluster[0], topic, [{"value": topic}])

    body = {"topics": ["one", "two"], "limit": 10, "wait": "5s"}
    found: list[str] = []

    def both() -> bool:
        answer = cluster[1].ask("POST", "/v1/groups/several/receive", body)
        found.extend(values(ok(answer)["messages"]))
        return sorted(found) == ["one", "two"]

    eventually("a message of each", both)


def test_a_rejected_message_is_dead_and_the_group_goes_on(cluster: Cluster) -> None:
    create(cluster[0], "rejected")
    publish(cluster[0], "rejected", [{"value": "bad", "key": "k"}, {"value": "good"}])
    bad = receive(cluster[0], "g", "rejected", limit=1)

    settle(cluster[1], "g", "reject", bad, reason="cannot be read")

    assert values(receive(cluster[2], "g", "rejected")) == ["good"]
    (dead,) = ok(cluster[2].ask("GET", "/groups/g/dlq?topic=rejected"))["messages"]
    assert (dead["value"], dead["key"], dead["reason"]) == ("bad", "k", "cannot be read")
    assert dead["original_id"] == "rejected:0:0"
    view = "/topics/rejected.dlq/partitions/0/messages"
    assert values(ok(cluster[0].ask("GET", view))["messages"]) == ["bad"]


def test_delays_are_bounded_listed_and_cancelled(cluster: Cluster) -> None:
    create(cluster[0], "bounded")
    delayed = [{"value": str(n), "delay": f"{n}h"} for n in (3, 1, 2)]
    publish(cluster[0], "bounded", delayed)

    too_long = {"messages": [{"value": "v", "delay": "8d"}]}
    answer = cluster[0].ask("POST", "/topics/bounded/messages", too_long)
    assert b"delay_too_long" in answer.content

    listed = ok(cluster[1].ask("GET", "/topics/bounded/delayed"))["messages"]
    assert [one["offset"] for one in listed] == [1, 2, 0]
    page = ok(cluster[1].ask("GET", "/topics/bounded/delayed?limit=1&skip=1"))["messages"]
    assert [one["offset"] for one in page] == [2]
    cancelled = ok(cluster[2].ask("DELETE", "/topics/bounded/delayed/0/2"))
    assert cancelled["canceled"] is cancelled["cancelled"] is True
    assert ok(cluster[0].ask("GET", "/topics/bounded/delayed/2"))["state"] == "cancelled"
    assert len(ok(cluster[0].ask("GET", "/topics/bounded/delayed"))["messages"]) == 2


def test_any_node_settles_what_another_delivered(cluster: Cluster) -> None:
    create(cluster[0], "anywhere")
    publish(cluster[0], "anywhere", [{"value": str(n)} for n in range(6)])

    for number in range(6):
        message = receive(cluster[number % 3], "g", "anywhere", limit=1)
        assert values(message) == [str(number)]
        ack(cluster[(number + 1) % 3], "g", message)


def test_settling_answers_hold_what_every_client_reads(cluster: Cluster) -> None:
    create(cluster[0], "clients")
    publish(cluster[0], "clients", [{"value": str(n)} for n in range(4)])
    one, two, three, four = receive(cluster[0], "g", "clients")

    def ask(path: str, message: dict[str, Any], **more: object) -> dict[str, Any]:
        body = {"receipt_handle": message["receipt_handle"], **more}
        return ok(cluster[1].ask("POST", path, body))

    acked = ask("/messages/ack", one, consumer_id=None)
    assert acked["success"] is acked["acknowledged"] is acked["offset_advanced"] is True
    assert (acked["topic"], acked["partition"], acked["offset"]) == ("clients", 0, 0)
    assert (acked["committed_offset"], acked["in_flight_count"]) == (1, 3)
    nacked = ask("/messages/nack", two, reason=None, delay="1h")
    assert (nacked["action"], nacked["requeued"], nacked["delivery_count"]) == ("requeued", True, 1)
    assert nacked["next_visible_at"]
    rejected = ask("/messages/reject", three)
    assert (rejected["action"], rejected["dlq_topic"]) == ("rejected", "clients.dlq")
    extended = ask("/messages/visibility", four, timeout="60s")
    assert extended["extended"] is True
    assert extended["new_deadline"]
    assert ask("/messages/visibility", four, extension_seconds=90)["extended_by"]
    stats = ok(cluster[2].ask("GET", "/reliability/stats"))
    assert stats["acks_total"] >= 1
    assert stats["ack_manager"]["total_acks"] >= 1


# -- the small queues


def test_messages_that_come_one_by_one_are_received_at_once(cluster: Cluster) -> None:
    create(cluster[0], "trickle")
    receive(cluster[1], "g", "trickle")
    found: list[str] = []

    def consume() -> None:
        while len(found) < 20:
            messages = receive(cluster[1], "g", "trickle", wait="60s")
            found.extend(values(messages))
            ack(cluster[1], "g", messages)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    for number in range(20):
        publish(cluster[0], "trickle", [{"value": str(number)}])
    consumer.join(50)  # before any of its waits is over

    assert found == [str(number) for number in range(20)]


def syncs(cluster: Cluster, *, acked: int) -> float:
    """What every entry waits for, and what batches share, on all nodes, once so many messages of
    the topic `batched` are acked. A node answers with metrics that are up to a second old, and
    counts what is acked while it leads."""
    settled = 'goqueue_broker_messages_acked_total{consumer_group="g",topic="batched"} '
    synced = "goqueue_storage_fsync_latency_seconds_count "

    def counted() -> list[float]:
        texts = [node.ask("GET", "/metrics").content.decode() for node in cluster.nodes]
        told = sum(figure(text, settled) for text in texts)
        return [sum(figure(text, synced) for text in texts)] if told == acked else []

    return eventually(f"metrics that tell of {acked} acks", counted)[0]


def take(node: Node, count: int, limit: int) -> None:
    """Receive and ack so many messages of `batched`, at most `limit` a turn."""
    while count:
        messages = receive(node, "g", "batched", limit=min(limit, count), wait="10s")
        ack(node, "g", messages)
        count -= len(messages)


def figure(text: str, series: str) -> float:
    """What the metrics say of it; 0 where they don't name it."""
    found = (line for line in text.splitlines() if line.startswith(series))
    return next((float(line.removeprefix(series).split()[0]) for line in found), 0.0)


def test_a_batch_of_a_hundred_takes_fewer_syncs_per_message_than_singles(cluster: Cluster) -> None:
    create(cluster[0], "batched")
    node = cluster.leader("batched")
    publish(node, "batched", [{"value": "v"}] * 220)
    take(node, 20, limit=20)

    before = syncs(cluster, acked=20)
    take(node, 100, limit=100)
    batched = syncs(cluster, acked=120) - before
    take(node, 100, limit=1)
    single = syncs(cluster, acked=220) - before - batched

    assert batched < single / 4


def test_delays_work_in_topics_with_dashes_and_dots(cluster: Cluster) -> None:
    create(cluster[0], "a-topic.with-all_signs")
    publish(cluster[0], "a-topic.with-all_signs", [{"value": "v", "delay": "200ms"}])

    assert values(receive(cluster[1], "a-group.x", "a-topic.with-all_signs", wait="10s")) == ["v"]


def test_a_receive_without_a_topic_is_refused_and_the_node_lives(cluster: Cluster) -> None:
    for body in ({}, {"topics": []}, {"topic": ""}, {"topic": None}, {"topics": [""]}):
        answer = cluster[0].ask("POST", "/v1/groups/g/receive", body)
        assert 400 <= answer.status < 500, (body, answer.content)
    assert cluster[0].is_ready()


def test_deleting_foo_leaves_foobar_alone(cluster: Cluster) -> None:
    for topic in ("foo", "foobar"):
        create(cluster[0], topic)
        publish(cluster[0], topic, [{"value": topic}, {"value": topic, "delay": "300ms"}])

    assert cluster[1].ask("DELETE", "/topics/foo").status == 200

    assert "foo" not in ok(cluster[1].ask("GET", "/topics"))["topics"]
    found: list[str] = []

    def both() -> bool:
        found.extend(values(receive(cluster[2], "g", "foobar", wait="1s")))
        return len(found) == 2

    eventually("both messages of foobar", both)


def test_several_delayed_messages_come_in_order(cluster: Cluster) -> None:
    create(cluster[0], "ordered")
    publish(cluster[0], "ordered", [{"value": str(n), "delay": "300ms"} for n in range(5)])
    found: list[str] = []

    def all_of_them() -> bool:
        found.extend(values(receive(cluster[0], "g", "ordered", wait="5s")))
        return len(found) == 5

    eventually("five messages", all_of_them)
    assert found == ["0", "1", "2", "3", "4"]


# -- kill -9 of every node


@dataclass
class Survivor:
    """A cluster whose nodes were all killed at once, and what was known before."""

    cluster: Cluster
    in_flight: dict[str, Any]
    delayed_at: str


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survivor]:
    with Cluster(tmp_path_factory.mktemp("survivor"), 3, auto_create=False) as started:
        node = started.start()[0]
        create(node, "kept", retention_hours=7, config={"delay_ms_max": 30 * 86_400_000})
        for topic in ("flying", "position", "lanes", "ids", "delays"):
            create(node, topic)
        publish(node, "flying", [{"value": "v"}])
        (in_flight,) = receive(node, "g", "flying", visibility="2s")
        publish(node, "position", [{"value": str(n)} for n in range(4)])
        ack(node, "g", receive(node, "g", "position", limit=2))
        publish(node, "lanes", [{"value": str(n), "priority": "low"} for n in range(5)])
        publish(node, "lanes", [{"value": "high", "priority": "high"}])
        ack(node, "g", receive(node, "g", "lanes", limit=1))
        publish(node, "ids", [{"value": "v", "message_id": "order-1"}])
        (delayed,) = publish(node, "delays", [{"value": "v", "delay": "1h"}])
        started.kill_all()
        for one in started.nodes:
            one.start()
        yield Survivor(started.wait_until_ready(), in_flight, delayed["deliverAt"])


def test_a_topic_keeps_its_settings_over_kill_9(survivor: Survivor) -> None:
    topic = ok(survivor.cluster[1].ask("GET", "/topics/kept"))

    assert topic["retention_hours"] == 7


def test_a_message_in_flight_at_kill_9_is_redelivered(survivor: Survivor) -> None:
    (again,) = receive(survivor.cluster[1], "g", "flying", wait="20s")

    assert (again["attempt"], again["last_reason"]) == (2, "visibility timeout")
    late = settle(survivor.cluster[0], "g", "ack", [survivor.in_flight])
    assert (late[0]["success"], late[0]["code"]) == (False, "receipt_expired")
    ack(survivor.cluster[2], "g", [again])


def test_a_group_goes_on_after_kill_9_of_every_node(survivor: Survivor) -> None:
    assert values(receive(survivor.cluster[2], "g", "position", wait="10s")) == ["2", "3"]


def test_lanes_are_whole_after_kill_9(survivor: Survivor) -> None:
    found = values(receive(survivor.cluster[1], "g", "lanes", wait="10s"))

    assert found == ["0", "1", "2", "3", "4"]


def test_the_dedup_window_survives_kill_9(survivor: Survivor) -> None:
    again = [{"value": "v", "message_id": "order-1"}]

    (result,) = publish(survivor.cluster[1], "ids", again)

    assert (result["offset"], result["duplicate"]) == (0, True)
    assert len(read_all(survivor.cluster[2], "ids", 0)) == 1


def test_a_delay_survives_the_death_of_its_leader(survivor: Survivor) -> None:
    cluster = survivor.cluster
    leader = cluster.leader("delays")

    leader.kill()

    other = next(node for node in cluster.nodes if node is not leader)
    assert cluster.leader("delays", ask=other) is not leader
    assert receive(other, "g", "delays", wait="1s") == []
    (one,) = ok(other.ask("GET", "/topics/delays/delayed"))["messages"]
    assert (one["state"], one["deliver_at"]) == ("pending", survivor.delayed_at)


# -- begun before all others


def test_a_poll_of_more_than_thirty_seconds_is_answered(poll: Poll) -> None:
    poll.thread.join(60)

    assert ok(poll.answers[0])["messages"] == []
    assert poll.took_s[0] >= POLL_S - 1
