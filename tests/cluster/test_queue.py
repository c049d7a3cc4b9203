"""The queue on three real nodes: received and settled anywhere, whoever leads, whoever dies."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from functools import partial
from typing import Any

from tests.cluster.conftest import Start
from tests.cluster.processes import HOST, Cluster, Node, eventually, publish

VISIBLE_MS = 6000


def create(node: Node, topic: str, **settings: object) -> None:
    answer = node.ask("POST", "/topics", {"name": topic, "num_partitions": 1, **settings})
    assert answer.status == 201, answer.content


def receive(node: Node, group: str = "g", **what: object) -> list[dict[str, Any]]:
    body = {"topic": "t", "limit": 100, **what}
    answer = node.ask("POST", f"/v1/groups/{group}/receive", body, timeout_s=70)
    assert answer.status == 200, answer.content
    found: list[dict[str, Any]] = answer.body["messages"]
    return found


def settle(node: Node, messages: list[dict[str, Any]], action: str = "ack") -> list[dict[str, Any]]:
    receipts = [{"receipt": message["receipt"], "action": action} for message in messages]
    answer = node.ask("POST", "/v1/groups/g/settle", {"settles": receipts})
    assert answer.status == 200, answer.content
    results: list[dict[str, Any]] = answer.body["results"]
    return results


def survivor(cluster: Cluster) -> Node:
    """Kill the leader of t-0 and name a node that is left."""
    leader = cluster.leader("t")
    leader.kill()
    return next(node for node in cluster.nodes if node is not leader)


def test_messages_are_received_and_acked_once_through_any_node(start: Start) -> None:
    cluster = start()
    create(cluster[0], "t", num_partitions=6)
    publish(cluster[0], "t", [{"value": str(n), "partition": n % 6} for n in range(300)])
    seen: Counter[str] = Counter()

    for n in range(60):
        if sum(seen.values()) == 300:
            break
        found = receive(cluster[n % 3], limit=17, wait="2s")
        ends = settle(cluster[(n + 1) % 3], found)
        assert [end["success"] for end in ends] == [True] * len(found), ends
        seen.update(message["value"] for message in found)

    assert set(seen.values()) == {1}
    assert len(seen) == 300
    assert [receive(node) for node in cluster.nodes] == [[], [], []]


def test_a_long_poll_at_any_node_is_answered_when_any_leader_stores_something(
    start: Start,
) -> None:
    cluster = start()
    create(cluster[0], "t", num_partitions=6)
    for node in cluster.nodes:
        receive(node)

    for n in range(18):
        found: list[dict[str, Any]] = []
        poll = threading.Thread(
            target=lambda at=cluster[n % 3], into=found: into.extend(receive(at, wait="60s"))
        )
        poll.start()
        time.sleep(0.05)  # it waits by now; if it doesn't, it finds the message at once
        publish(cluster[0], "t", [{"value": "x", "partition": n % 6}])
        poll.join(50)  # before its wait is over
        assert [message["value"] for message in found] == ["x"]
        settle(cluster[0], found)


def test_a_long_poll_outlives_the_leaders_it_waits_on(start: Start) -> None:
    cluster = start()
    create(cluster[0], "t", num_partitions=3)
    receive(cluster[0])
    dying = next(node for p in range(3) if (node := cluster.leader("t", p)) is not cluster[0])
    found: list[dict[str, Any]] = []
    poll = threading.Thread(target=lambda: found.extend(receive(cluster[0], wait="60s")))
    poll.start()
    time.sleep(0.3)  # it waits by now; if it doesn't, it has a leader less to ask

    dying.kill()
    for partition in range(3):
        eventually(
            "a leader that lives",
            lambda p=partition: cluster.leader("t", p, ask=cluster[0]) is not dying,
        )
    publish(cluster[0], "t", [{"value": str(n), "partition": n} for n in range(3)])
    poll.join(50)  # before its wait is over

    assert found
    assert {message["attempt"] for message in found} == {1}


def test_leases_keep_their_remaining_time_when_their_leader_is_killed(start: Start) -> None:
    cluster = start()
    create(cluster[0], "t")
    publish(cluster[0], "t", [{"value": str(n)} for n in range(10)])
    taken = receive(cluster[0], visibility=VISIBLE_MS)
    began = time.monotonic()
    assert len(taken) == 10

    node = survivor(cluster)
    early = eventually("a receive after the failover", lambda: [receive(node)])[0]
    acked = settle(node, taken[:4])
    again: list[dict[str, Any]] = []
    while len(again) < 6 and time.monotonic() < began + 60:
        again += receive(node, wait="10s")
    ended = time.monotonic()

    assert early == []
    assert [end["success"] for end in acked] == [True] * 4, acked
    assert sorted(message["value"] for message in again) == ["4", "5", "6", "7", "8", "9"]
    assert {message["attempt"] for message in again} == {2}
    assert ended - began >= VISIBLE_MS / 1000 - 0.2


def test_delayed_messages_survive_their_leader_and_come_in_time(start: Start) -> None:
    cluster = start()
    create(cluster[0], "t")
    receive(cluster[0])
    publish(cluster[0], "t", [{"value": str(n), "delay": "4s"} for n in range(20)])
    published = time.monotonic()

    node = survivor(cluster)
    found: list[dict[str, Any]] = []
    while len(found) < 20 and time.monotonic() < published + 60:
        found += receive(node, wait="10s")
        assert not found or time.monotonic() - published >= 3.9

    assert sorted(int(message["value"]) for message in found) == list(range(20))
    assert {message["attempt"] for message in found} == {1}


def test_a_consumer_that_hangs_up_while_it_waits_has_leased_nothing(start: Start) -> None:
    cluster = start()
    create(cluster[0], "t", num_partitions=3)
    receive(cluster[0])
    body = json.dumps({"topic": "t", "wait": "30s", "limit": 10})
    headers = {"Content-Type": "application/json"}

    for n in range(30):
        waiting = http.client.HTTPConnection(HOST, cluster[n % 3].http_port, timeout=10)
        waiting.request("POST", "/v1/groups/g/receive", body=body, headers=headers)
        time.sleep(0.002 * n)  # before it is read, while leaders are asked, while it waits
        waiting.close()
    publish(cluster[0], "t", [{"value": str(n), "partition": n % 3} for n in range(30)])

    found: list[dict[str, Any]] = []
    end = time.monotonic() + 60
    while len(found) < 30 and time.monotonic() < end:
        found += receive(cluster[0], wait="1s")
    assert Counter(message["value"] for message in found) == {str(n): 1 for n in range(30)}
    assert {message["attempt"] for message in found} == {1}


def test_consumers_go_on_while_leaders_are_killed_and_every_ack_holds(start: Start) -> None:
    cluster = start()
    create(cluster[0], "t", num_partitions=3)
    acked: Counter[str] = Counter()
    published: set[str] = set()
    in_doubt: set[str] = set()
    stopped = threading.Event()
    leader = partial(cluster.leader, "t")
    lock = threading.Lock()

    def consume(number: int) -> None:
        while not stopped.is_set():
            node = cluster[number % 3]
            number += 1
            found: list[dict[str, Any]] = []
            try:
                found = receive(node, wait="1s", limit=20, visibility="5s")
                ends = settle(node, found) if found else []
            except (OSError, http.client.HTTPException, AssertionError):
                with lock:  # it is dead, or has no leader for the moment: it may have acked
                    in_doubt.update(message["value"] for message in found)
                continue
            with lock:
                for message, end in zip(found, ends, strict=True):
                    if end["success"]:
                        acked[message["value"]] += 1

    consumers = [threading.Thread(target=consume, args=(n,)) for n in range(3)]
    for consumer in consumers:
        consumer.start()
    for n in range(40):
        publish(cluster[0], "t", [{"value": str(n)}])
        published.add(str(n))
        if n in (10, 25):
            victim = next(node for node in map(leader, range(3)) if node is not cluster[0])
            cluster.wait_until_ready()
            victim.kill()
            victim.start()
    eventually("all is acked", lambda: published <= {*acked, *in_doubt}, deadline_s=40)
    stopped.set()
    for consumer in consumers:
        consumer.join()

    assert set(acked.values()) == {1}
