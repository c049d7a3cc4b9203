"""Groups of members on three real nodes: who owns what is fenced, whoever pauses, asks or dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.group_crew import Worker
from tests.cluster.group_members import Member, Place, Pulse, ok, places
from tests.cluster.processes import Answer, Cluster, Node, eventually, publish, stand_still
from tests.unit.node.http.compat.published_client import work_through

SESSION_S = 2.5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("groups"), auto_create=False) as started:
        yield started.start()


def create(cluster: Cluster, topic: str, partitions: int) -> list[Place]:
    body = {"name": topic, "num_partitions": partitions}
    answer = cluster[0].ask("POST", "/topics", body)
    assert answer.status == 201, answer.content
    for node in cluster.nodes:
        eventually("known", lambda n=node: n.ask("GET", f"/topics/{topic}").status == 200)
    return [(topic, partition) for partition in range(partitions)]


def store(cluster: Cluster, topic: str, partitions: int, count: int) -> list[str]:
    """Values that tell their numbers; partitions in turn."""
    values = [f"{topic}-{n}" for n in range(count)]
    wanted: list[dict[str, object]] = [
        {"value": value, "partition": n % partitions} for n, value in enumerate(values)
    ]
    publish(cluster[1], topic, wanted)
    return values


def joined(cluster: Cluster, group: str, name: str, topics: list[str], **how: Any) -> Member:
    member = Member(cluster, group, name)
    member.join(topics, **{"wait": "5s", **how})
    return member


def has(member: Member, wanted: list[Place]) -> bool:
    hears(member)
    return member.assigned == wanted


def received(answer: Answer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ok(answer)["messages"]
    return found


def everything_of(member: Member, count: int, *, wait: str = "5s") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while len(found) < count:
        found += received(member.receive(wait=wait))
    return found


def values(messages: list[dict[str, Any]]) -> list[str]:
    return sorted(message["value"] for message in messages)


def settled(answer: Answer) -> Counter[str]:
    results = ok(answer)["results"]
    return Counter(one["state"] if one["success"] else one["code"] for one in results)


def refused(answer: Answer, group_has: int) -> None:
    """409, with the generation that holds now."""
    assert answer.status == 409, answer.content
    assert answer.body["code"] == "stale_generation", answer.body
    assert answer.body["generation"] >= group_has


# -- fencing


def test_a_member_that_wakes_after_twice_its_session_is_refused_everywhere(
    cluster: Cluster,
) -> None:
    both = create(cluster, "paused", 2)
    store(cluster, "paused", 2, 20)
    sleeper = joined(cluster, "paused", "sleeper", ["paused"], session_timeout=f"{SESSION_S}s")
    taken = everything_of(sleeper, 20)
    heir = joined(cluster, "paused", "heir", ["paused"])

    woken = time.monotonic() + 2 * SESSION_S
    eventually("the heir has all", lambda: has(heir, both))
    again = everything_of(heir, 20)
    eventually("it wakes", lambda: time.monotonic() >= woken)

    assert values(again) == values(taken)
    assert {(m["attempt"], m["last_reason"]) for m in again} == {(2, "consumer lost")}
    for _ in cluster.nodes:  # each request goes through another one
        refused(sleeper.receive(both), heir.generation)
        assert settled(sleeper.settle(taken)) == {"stale_generation": 20}
        refused(commit(sleeper, "paused", {"0": 10, "1": 10}), heir.generation)
        gone = sleeper.ask("POST", "heartbeat", {"member_id": sleeper.id})
        assert (gone.status, gone.body["code"]) == (404, "unknown_member")
    assert {row["committed_offset"] for row in lag(heir)} == {0}
    assert settled(heir.settle(again)) == {"acked": 20}
    assert {row["committed_offset"] for row in lag(heir)} == {10}


def test_a_claim_of_a_former_generation_holds_where_nothing_moved(cluster: Cluster) -> None:
    four = create(cluster, "unmoved", 4)
    store(cluster, "unmoved", 4, 40)
    first = joined(cluster, "unmoved", "first", ["unmoved"])
    generation = first.generation
    taken = everything_of(first, 40)

    second = joined(cluster, "unmoved", "second", ["unmoved"], wait=0)
    eventually("half of it", lambda: has(first, four[:2]))
    eventually("the other half", lambda: has(second, four[2:]))

    assert first.generation > generation
    first.generation = generation
    stayed = [message for message in taken if message["partition"] < 2]
    went = [message for message in taken if message["partition"] >= 2]
    assert settled(first.settle(stayed)) == {"acked": 20}
    assert settled(first.settle(went)) == {"stale_generation": 20}
    assert received(first.receive(four[:2])) == []
    refused(first.receive(four[2:]), second.generation)
    again = everything_of(second, 20)
    assert values(again) == values(went)
    assert {message["attempt"] for message in again} == {1}


def test_a_generation_that_is_yet_to_come_is_refused(cluster: Cluster) -> None:
    create(cluster, "early", 1)
    member = joined(cluster, "early", "member", ["early"])

    answer = member.ask("POST", "heartbeat", {"member_id": member.id, "generation": 99})

    refused(answer, member.generation)


def test_who_is_no_member_gets_nothing_of_what_members_own(cluster: Cluster) -> None:
    create(cluster, "owned", 2)
    store(cluster, "owned", 2, 4)
    member = joined(cluster, "owned", "member", ["owned"])

    refused(member.ask("POST", "receive", {"topic": "owned"}), member.generation)
    assert len(everything_of(member, 4)) == 4


async def test_a_consumer_process_that_was_stopped_goes_on_as_a_new_member(
    cluster: Cluster, tmp_path: Path
) -> None:
    create(cluster, "stopped", 2)
    told = {"group": "stopped", "topic": "stopped", "session_s": SESSION_S, "work_s": 0.2}
    told["urls"] = [node.url for node in cluster.nodes]
    worker, heir = Worker("worker", tmp_path), Worker("heir", tmp_path)
    try:
        await worker.start(told)
        await worker.join()
        values = store(cluster, "stopped", 2, 200)
        eventually("it works", lambda: kinds(worker)["settled"] >= 10)

        stand_still(worker.pid)
        until = time.monotonic() + 2 * SESSION_S
        await heir.start(told)
        await heir.join()
        eventually("the heir works", lambda: kinds(heir)["settled"] >= 10)
        eventually("it was silent for long enough", lambda: time.monotonic() >= until)
        os.kill(worker.pid, signal.SIGCONT)
        eventually("it has lost all", lambda: kinds(worker)["lost"] >= 1)
        eventually("all is acked", lambda: len(acked(worker) + acked(heir)) >= 200)

        assert Counter(acked(worker) + acked(heir)) == Counter(values)
        assert "stale_generation" in codes(worker)
        await worker.leave()
        await heir.leave()
    finally:
        await worker.end()
        await heir.end()


# -- the coordinator, and any node


def test_the_coordinators_death_costs_nobody_their_partitions(cluster: Cluster) -> None:
    six = create(cluster, "headless", 6)
    with Pulse(cluster) as pulse:
        members = [joined(cluster, "headless", f"m{n}", ["headless"], wait=0) for n in range(3)]
        eventually("two each", lambda: {hears(member) for member in members} == {2})
        generation = members[0].generation
        had = [member.assigned for member in members]
        assert sorted(place for one in had for place in one) == six
        for member in members:
            member.join(["headless"], member_id=member.id, session_timeout="3s")
            pulse.keep(member)

        dead = eventually("a coordinator", lambda: controller(cluster))
        dead.kill()
        eventually("another one", lambda: controller(cluster), deadline_s=30)
        survivor = next(node for node in cluster.nodes if node.is_running())
        stored: list[dict[str, object]] = [{"value": str(n), "partition": n} for n in range(6)]
        publish(survivor, "headless", stored)
        found = [everything_of(member, 2) for member in members]
        ends = [settled(m.settle(one)) for m, one in zip(members, found, strict=True)]
        time.sleep(4)  # longer than a session: were it to run out, it would now
        dead.start()
        cluster.wait_until_ready()

        for member in members:
            member.hear()
        assert [member.assigned for member in members] == had
        assert [member.generation for member in members] == [generation] * 3
        assert ends == [{"acked": 2}] * 3
        assert [sorted(places(one)) for one in found] == had


def test_a_poll_through_any_node_brings_what_any_leader_has(cluster: Cluster) -> None:
    create(cluster, "polled", 6)
    member = joined(cluster, "polled", "member", ["polled"])
    stored = store(cluster, "polled", 6, 60)

    found: list[dict[str, Any]] = []
    for n in range(30):
        found += received(poll(cluster[n % 3], member, "2s", limit=7))
        if len(found) == 60:
            break

    assert values(found) == sorted(stored)
    assert {message["partition"] for message in found} == set(range(6))
    assert settled(member.settle(found)) == {"acked": 60}


def test_a_long_poll_at_any_node_is_answered_when_any_leader_stores_something(
    cluster: Cluster,
) -> None:
    create(cluster, "waiting", 6)
    member = joined(cluster, "waiting", "member", ["waiting"])

    for n in range(12):
        answers: list[Answer] = []
        waiting = threading.Thread(
            target=lambda at=cluster[n % 3], into=answers: into.append(poll(at, member, "40s"))
        )
        waiting.start()
        time.sleep(0.05)  # it waits by now; if it doesn't, it finds the message at once
        publish(cluster[0], "waiting", [{"value": str(n), "partition": n % 6}])
        waiting.join(30)  # before its wait is over
        assert values(received(answers[0])) == [str(n)]


def test_a_heartbeat_that_waits_is_answered_as_soon_as_something_is_to_be_let_go(
    cluster: Cluster,
) -> None:
    create(cluster, "heard", 2)
    first = joined(cluster, "heard", "first", ["heard"])
    revision = first.hear()["revision"]
    told: list[dict[str, Any]] = []
    waiting = threading.Thread(
        target=lambda: told.append(first.hear(revision=revision, wait="25s"))
    )
    waiting.start()

    joined(cluster, "heard", "second", ["heard"], wait=0)
    waiting.join()

    assert told[0]["rebalance_required"] and len(told[0]["revoking"]) == 1


# -- positions


def test_lag_tells_what_is_left_and_for_how_long_it_has_waited(cluster: Cluster) -> None:
    create(cluster, "behind", 2)
    member = joined(cluster, "behind", "member", ["behind"])
    store(cluster, "behind", 2, 20)
    published = time.time()

    found = everything_of(member, 20)
    done = [message for message in found if message["partition"] == 0]
    assert settled(member.settle(done)) == {"acked": 10}
    eventually("the other one is old", lambda: lag(member)[1]["lag_seconds"] >= 0.5)

    first, second = lag(member)
    assert (first["committed_offset"], first["end_offset"], first["lag"]) == (10, 10, 0)
    assert first["lag_seconds"] == 0
    assert (second["committed_offset"], second["lag"], second["in_flight"]) == (0, 10, 10)
    assert second["lag_seconds"] <= time.time() - published + 1
    assert {row["owner"] for row in (first, second)} == {member.id}
    offsets = ok(member.ask("GET", "offsets"))
    assert offsets["offsets"] == offsets["topics"] == {"behind": {"0": 10, "1": 0}}


def test_a_member_commits_what_is_its_own(cluster: Cluster) -> None:
    create(cluster, "mine", 2)
    store(cluster, "mine", 2, 20)
    member = joined(cluster, "mine", "member", ["mine"])
    everything_of(member, 20)

    answer = ok(commit(member, "mine", {"0": 7, "1": 3}))

    assert answer["offsets"] == {"mine": {"0": 7, "1": 3}}
    assert [row["committed_offset"] for row in lag(member)] == [7, 3]


def test_positions_are_reset_when_nobody_is_active_or_by_force(cluster: Cluster) -> None:
    create(cluster, "again", 2)
    stored = store(cluster, "again", 2, 20)
    member = joined(cluster, "again", "member", ["again"])
    member.settle(everything_of(member, 20))

    active = reset(member, to="earliest")
    assert (active.status, active.body["code"]) == (409, "group_active")
    member.leave()
    plan = ok(reset(member, to="earliest", dry_run=True))["offsets"]
    still = [row["committed_offset"] for row in lag(member)]
    done = ok(reset(member, to="earliest"))["offsets"]

    assert [(row["before"], row["after"], row["replayed"]) for row in plan] == [(10, 0, 10)] * 2
    assert still == [10, 10]
    assert done == plan
    assert [row["lag"] for row in lag(member)] == [10, 10]
    second = joined(cluster, "again", "second", ["again"])
    assert values(everything_of(second, 20)) == sorted(stored)
    forced = ok(reset(second, offset=8, partitions=[1], force=True))["offsets"]
    assert [(row["partition"], row["after"]) for row in forced] == [(1, 8)]


def test_a_group_with_members_is_not_deleted_unless_it_is_forced(cluster: Cluster) -> None:
    create(cluster, "kept", 1)
    member = joined(cluster, "kept", "member", ["kept"])

    kept = member.ask("DELETE", "")
    assert (kept.status, kept.body["code"]) == (409, "group_active")
    gone = member.node().ask("DELETE", "/groups/kept?force=true")

    assert gone.status == 200, gone.content
    answer = member.ask("POST", "heartbeat", {"member_id": member.id})
    assert answer.status == 404


def test_members_of_a_shared_group_take_from_any_partition(cluster: Cluster) -> None:
    two = create(cluster, "shared", 2)
    members = [joined(cluster, "shared", f"m{n}", ["shared"], mode="shared") for n in range(3)]
    store(cluster, "shared", 2, 30)

    found: list[dict[str, Any]] = []
    for n in range(60):
        members[n % 3].generation = 0
        some = received(members[n % 3].receive(limit=4))
        if some:
            assert settled(members[n % 3].settle(some)) == {"acked": len(some)}
        found += some

    assert [member.assigned for member in members] == [two] * 3
    assert Counter(values(found)) == Counter({f"shared-{n}": 1 for n in range(30)})


# -- other clients


async def test_the_client_that_goqueue_published_works_a_group_through_any_node(
    cluster: Cluster,
) -> None:
    for number, node in enumerate(cluster.nodes):
        wanted = [f"order-{n}" for n in range(20)]
        name = f"published-{number}"

        answers = await work_through(node.url, name, name, wanted)

        assert len(answers["ack"]) == 20
        assert all(ack["success"] for ack in answers["ack"])
        assert sum(answers["get_offsets"][0]["offsets"][name].values()) == 20


# -- beneath


def kinds(worker: Worker) -> Counter[str]:
    return Counter(event["type"] for event in worker.events())


def acked(worker: Worker) -> list[str]:
    """The values whose acks were accepted."""
    events = worker.events()
    done = {e["receipt"] for e in events if e["type"] == "settled" and e["outcome"] == "acked"}
    return [e["value"] for e in events if e["type"] == "received" and e["receipt"] in done]


def codes(worker: Worker) -> set[str]:
    return {event["code"] for event in worker.events() if event["type"] == "settled"}


def hears(member: Member) -> int:
    """How many partitions it has; it lets go of what it is asked for."""
    member.hear()
    if member.revoking:
        member.let_go(member.revoking)
    return len(member.assigned)


def controller(cluster: Cluster) -> Node | None:
    """The running node that leads the cluster group, as all that run say."""
    running = [node for node in cluster.nodes if node.is_running()]
    said = {ok(node.ask("GET", "/cluster"))["controller"] for node in running}
    found = [node for node in running if said == {node.id}]
    return found[0] if found else None


def poll(node: Node, member: Member, timeout: str, limit: int = 100) -> Answer:
    query = f"member_id={member.id}&generation={member.generation}&timeout={timeout}&limit={limit}"
    return node.ask("GET", f"/groups/{member.group}/poll?{query}", timeout_s=70)


def commit(member: Member, topic: str, offsets: dict[str, int]) -> Answer:
    body = {"member_id": member.id, "generation": member.generation, "offsets": {topic: offsets}}
    return member.ask("POST", "offsets", body)


def lag(member: Member) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ok(member.ask("GET", "lag"))["partitions"]
    return sorted(found, key=lambda row: row["partition"])


def reset(member: Member, **what: Any) -> Answer:
    return member.ask("POST", "offsets/reset", {"topic": member.group, **what})
