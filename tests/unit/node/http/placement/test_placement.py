"""Growing, shrinking and moving over HTTP: what is answered, what is refused, and that a refusal
changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.errors import Overtaken
from node.placement.moves import MoveProgress
from tests.three_brokers import ThreeBrokers
from tests.unit.node.http.conftest import Client

ADMIN = "/admin/topics/orders"
SHAPES = [None, True, 5, -1, 1.5, "x", "", [], [1], [[]], {}, {"a": 1}, "9" * 400, 10**30]


def content(cluster: ThreeBrokers) -> bytes:
    """The cluster's whole state but for the number of commands that it has seen."""
    state = cluster.state
    applied, state.applied_index = state.applied_index, type(state.applied_index)(0)
    found = state.snapshot()
    state.applied_index = applied
    return found


def holders(answer: Any) -> list[list[str]]:
    return [one["replicas"] for one in answer.json["partitions"]]


# growing a topic


async def test_added_partitions_are_answered_as_goqueue_answers_them(client: Client, cluster):
    cluster.down = {"node-2", "node-3"}  # it is node-1 that gets them

    answer = await client.post(ADMIN + "/partitions", {"count": 5})

    assert answer.status == 200
    assert answer.json == {
        "success": True,
        "topic_name": "orders",
        "old_partition_count": 3,
        "new_partition_count": 5,
        "partitions_added": [3, 4],
    }
    topic = await client.get("/topics/orders")
    assert topic.json["partitions"] == topic.json["config"]["partitions"] == 5
    published = await client.post("/topics/orders/messages", {"value": "v", "partition": 4})
    assert [(one["partition"], one["offset"]) for one in published.json["results"]] == [(4, 0)]


async def test_as_many_partitions_as_there_are_adds_none(client: Client, cluster):
    answer = await client.post(ADMIN + "/partitions", {"count": 3})

    assert (answer.status, answer.json["partitions_added"]) == (200, [])


@pytest.mark.parametrize(
    "given", [{"3": ["node-2"], "4": ["node-3"]}, [["node-2"], ["node-3"]]], ids=["map", "list"]
)
async def test_added_partitions_go_where_they_are_told_to(client: Client, cluster, given):
    await client.post(ADMIN + "/partitions", {"count": 5, "replica_assignments": given})

    assert holders(await client.get("/topics/orders/partitions"))[3:] == [["node-2"], ["node-3"]]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"count": 2}, "invalid_config"),
        ({"count": 10_001}, "invalid_config"),
        ({}, "bad_request"),
        ({"count": 0}, "bad_request"),
        ({"count": "5"}, "bad_request"),
        ({"count": 4, "replica_assignments": {"0": ["node-1"]}}, "bad_request"),
        ({"count": 4, "replica_assignments": {"3": ["node-1"], "4": ["node-1"]}}, "bad_request"),
        ({"count": 3, "replica_assignments": {"3": ["node-1"]}}, "bad_request"),
        ({"count": 4, "replica_assignments": [["node-9"]]}, "invalid_config"),
        ({"count": 4, "replica_assignments": [["node-1", "node-2"]]}, "invalid_config"),
        ({"count": 5, "replica_assignments": [["node-1"]]}, "invalid_config"),
    ],
)
async def test_what_cannot_be_added_is_refused_and_changes_nothing(client, cluster, body, code):
    before = content(cluster)

    answer = await client.post(ADMIN + "/partitions", body)

    assert (answer.status, answer.json["code"]) == (400, code)
    assert (answer.json["success"], answer.json["topic_name"]) == (False, "orders")
    assert content(cluster) == before


async def test_an_unknown_topic_does_not_grow(client: Client, cluster):
    answer = await client.post("/admin/topics/nothing/partitions", {"count": 5})

    assert (answer.status, answer.json["code"]) == (404, "unknown_topic")
    assert answer.json["success"] is False
    status = await client.get("/admin/topics/nothing/scaling-status")
    assert (status.status, status.json["code"]) == (404, "unknown_topic")


# the replication factor


async def test_a_new_replication_factor_is_planned_and_reached(client: Client, cluster):
    altered = await client("PATCH", "/topics/orders", {"replication_factor": 3})

    assert altered.status == 200
    assert altered.json["replication_factor"] == 3
    status = (await client.get(ADMIN + "/scaling-status")).json
    assert status["scaling_in_progress"] is True
    assert status["replication_factor"] == 3
    first = status["moving"][0]
    assert (first["partition"], first["from"]) == (0, ["node-1"])
    assert set(first["to"]) == {"node-1", "node-2", "node-3"}
    (plan,) = (await client.get("/admin/reassignment?running=true")).json["reassignments"]
    assert (plan["cause"], plan["partitions_left"]) == ("replication_factor", 3)

    await cluster.move(3)

    status = (await client.get(ADMIN + "/scaling-status")).json
    assert (status["scaling_in_progress"], status["moving"]) == (False, [])
    details = (await client.get("/topics/orders")).json["partition_details"]
    assert all(set(one["voters"]) == {"node-1", "node-2", "node-3"} for one in details)
    assert [one["isr"] for one in details] == [["node-1"]] * 3  # the others are not there


@pytest.mark.parametrize(("factor", "code"), [(4, "too_few_brokers"), (8, "invalid_config")])
async def test_a_factor_that_cannot_be_is_refused(client: Client, cluster, factor, code):
    before = content(cluster)

    answer = await client("PATCH", "/topics/orders", {"replication_factor": factor})

    assert (answer.status, answer.json["code"]) == (400, code)
    assert content(cluster) == before


# reassignments


async def test_a_dry_run_tells_what_would_move_with_its_bytes_and_moves_nothing(client, cluster):
    await client.post("/topics/orders/messages", {"value": "x" * 1000, "partition": 0})
    size = 0
    while size < 1000:  # an acknowledged message is in the node's common log, and then in a segment
        size = (await client.get("/topics/orders")).json["partition_details"][0]["size_bytes"]
    wanted = [
        {"topic": "orders", "partition": 0, "new_replicas": ["node-2"]},
        {"topic": "orders", "partition": 1, "new_replicas": ["node-1"], "old_replicas": ["node-1"]},
    ]
    before = content(cluster)

    answer = await client.post("/admin/reassignment", {"partitions": wanted, "dry_run": True})

    assert answer.status == 200
    assert answer.json == {
        "dry_run": True,
        "moves": [
            {
                "topic": "orders",
                "partition": 0,
                "from": ["node-1"],
                "to": ["node-2"],
                "bytes": size,
            },
            {"topic": "orders", "partition": 1, "from": ["node-1"], "to": ["node-1"], "bytes": 0},
        ],
        "replicas_moved": 1,
        "bytes": size,
        "bytes_unknown": 0,
        "complete": True,
    }
    assert content(cluster) == before


async def test_bytes_that_nobody_tells_are_unknown(client: Client, cluster):
    wanted = one_move(new_replicas=["node-2"])
    await client.post("/admin/reassignment", wanted)
    await cluster.move(1)
    wanted = one_move(new_replicas=["node-3"])

    plan = await client.post("/admin/reassignment", {**wanted, "dry_run": True})

    assert (plan.json["moves"][0]["bytes"], plan.json["bytes_unknown"]) == (None, 1)


async def test_a_reassignment_is_followed_to_its_end(client: Client, cluster):
    wanted = [
        {"topic": "orders", "partition": number, "new_replicas": ["node-2"]} for number in (0, 1)
    ]
    body = {"partitions": wanted, "throttle_bytes_per_sec": 1000, "timeout_per_partition_sec": 9}
    cluster.told = MoveProgress("node-2 is catching up", bytes_left=70, rate_bytes_s=0)

    begun = await client.post("/admin/reassignment", body)

    assert begun.status == 202
    assert begun.json["success"] is True
    id = begun.json["reassignment_id"]
    assert begun.json["message"] == f"reassignment {id}: 2 partitions to move"

    await cluster.move(1)
    found = (await client.get(f"/admin/reassignment/{id}")).json
    assert (found["id"], found["state"], found["cause"]) == (id, "running", "reassign")
    assert (found["partitions_total"], found["partitions_left"], found["progress"]) == (2, 1, 0.5)
    assert (found["throttle_bytes_per_sec"], found["bytes_left"]) == (1000, 70)
    assert found["waiting"] == ["orders:1: node-2 is catching up"]
    assert [one["state"] for one in found["partitions"]] == ["arrived", "moving"]
    assert found["partitions"][1]["waiting"] == "node-2 is catching up"
    assert found["ended_at"] is None

    await cluster.move(1)
    found = (await client.get(f"/admin/reassignment/{id}")).json
    assert (found["state"], found["progress"], found["bytes_left"]) == ("done", 1.0, 0)
    assert found["ended_at"] is not None
    assert holders(await client.get("/topics/orders/partitions"))[:2] == [["node-2"], ["node-2"]]


async def test_reassignments_are_listed_newest_first_and_running_ones_alone(client, cluster):
    for number in (0, 1):
        wanted = [{"topic": "orders", "partition": number, "new_replicas": ["node-2"]}]
        await client.post("/admin/reassignment", {"partitions": wanted})
    await cluster.move(1)

    every = (await client.get("/admin/reassignment")).json
    running = (await client.get("/admin/reassignment?running=true")).json

    assert every["count"] == 2
    assert [one["state"] for one in every["reassignments"]] == ["running", "done"]
    assert running["reassignments"] == every["reassignments"][:1]


async def test_a_cancelled_reassignment_goes_back_and_what_arrived_stays(client, cluster):
    wanted = [
        {"topic": "orders", "partition": number, "new_replicas": ["node-2"]} for number in (0, 1)
    ]
    id = (await client.post("/admin/reassignment", {"partitions": wanted})).json["id"]
    await cluster.move(1)

    cancelled = await client("DELETE", f"/admin/reassignment/{id}")

    assert cancelled.status == 200
    assert cancelled.json["state"] == "cancelled"
    assert [one["state"] for one in cancelled.json["partitions"]] == ["arrived", "returned"]
    again = await client("DELETE", f"/admin/reassignment/{id}")
    assert (again.status, again.json["state"]) == (200, "cancelled")
    assert holders(await client.get("/topics/orders/partitions"))[:2] == [["node-2"], ["node-1"]]


def one_move(**fields: Any) -> dict[str, Any]:
    move = {"topic": "orders", "partition": 0, "new_replicas": ["node-2"], **fields}
    return {"partitions": [move]}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"partitions": []}, 400, "invalid_config"),
        ({"partitions": one_move()["partitions"] * 2}, 400, "invalid_config"),
        (one_move(new_replicas=[]), 400, "invalid_config"),
        (one_move(new_replicas=["node-9"]), 400, "invalid_config"),
        (one_move(new_replicas=["node-2", "node-3"]), 400, "invalid_config"),
        (one_move(topic="nothing"), 404, "unknown_topic"),
        (one_move(partition=3), 404, "unknown_partition"),
        (one_move(partition=-1), 400, "bad_request"),
        (one_move(old_replicas=["node-3"]), 409, "overtaken"),
        ({**one_move(), "throttle_bytes_per_sec": -1}, 400, "bad_request"),
        ({}, 400, "bad_request"),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_plan_that_makes_no_sense_is_refused_dry_or_not(
    client: Client, cluster, body, status, code, dry_run
):
    before = content(cluster)

    answer = await client.post("/admin/reassignment", {**body, "dry_run": dry_run})

    assert (answer.status, answer.json["code"]) == (status, code)
    assert content(cluster) == before


async def test_unknown_reassignments_are_404_and_what_is_no_number_400(client: Client, cluster):
    for method in ("GET", "DELETE"):
        unknown = await client(method, "/admin/reassignment/99")
        assert (unknown.status, unknown.json["code"]) == (404, "unknown_reassignment")
        assert (await client(method, "/admin/reassignment/first")).status == 400


# rebalancing


async def test_a_rebalance_does_what_its_dry_run_told(client: Client, cluster):
    plan = (await client.post("/admin/cluster/rebalance", {"dry_run": True})).json
    assert (plan["dry_run"], plan["replicas_moved"], plan["complete"]) == (True, 2, True)

    begun = await client.post("/admin/cluster/rebalance", {"throttle_bytes_per_sec": 5})

    assert begun.status == 202
    assert (begun.json["cause"], begun.json["throttle_bytes_per_sec"]) == ("rebalance", 5)
    moves = [(one["partition"], one["new_replicas"]) for one in begun.json["partitions"]]
    assert moves == [(one["partition"], one["to"]) for one in plan["moves"]]
    await cluster.move(9)
    even = await client.post("/admin/cluster/rebalance", {})
    assert (even.status, even.json["moves"]) == (200, [])
    assert even.json["dry_run"] is False
    counts = {
        one["id"]: one["replicas"] for one in (await client.get("/admin/brokers")).json["brokers"]
    }
    assert counts == {"node-1": 1, "node-2": 1, "node-3": 1}


async def test_a_limit_leaves_the_rest_for_later(client: Client, cluster):
    plan = (await client.post("/admin/cluster/rebalance", {"dry_run": True, "limit": 1})).json

    assert (len(plan["moves"]), plan["complete"]) == (1, False)


async def test_leaders_alone_move_no_replica(client: Client, cluster):
    await client("PATCH", "/topics/orders", {"replication_factor": 3})
    await cluster.move(3)

    plan = (
        await client.post("/admin/cluster/rebalance", {"dry_run": True, "leaders_only": True})
    ).json

    assert (plan["replicas_moved"], plan["bytes"], plan["bytes_unknown"]) == (0, 0, 0)


# brokers


async def test_brokers_are_listed_with_what_they_hold(client: Client, cluster):
    cluster.down = {"node-3"}

    first, second, third = (await client.get("/admin/brokers")).json["brokers"]

    assert (first["id"], first["state"], first["up"]) == ("node-1", "active", True)
    assert (first["replicas"], first["leaders"], first["held"], first["drain"]) == (3, 3, 3, None)
    assert (second["zone"], second["url"], second["peer_address"]) == (
        "zone-2",
        "http://n2:8080",
        "n2:7000",
    )
    assert (third["up"], third["status"]) == (False, "dead")
    assert (await client.get("/admin/brokers/node-2")).json == second


async def test_a_drain_is_followed_to_its_end_and_the_broker_removed(client: Client, cluster):
    plan = await client.post("/admin/brokers/node-1/drain", {"dry_run": True})
    assert plan.status == 200
    assert [one["from"] for one in plan.json["moves"]] == [["node-1"]] * 3

    begun = await client.post("/admin/brokers/node-1/drain", {"throttle_bytes_per_sec": 99})

    assert begun.status == 202
    assert (begun.json["state"], begun.json["replicas_left"]) == ("draining", 3)
    refused = await client("DELETE", "/admin/brokers/node-1")
    assert (refused.status, refused.json["code"]) == (409, "broker_not_empty")
    assert refused.json["error"] == "node-1 is being drained (replicas left: 3)"

    await cluster.move(2)
    drain = (await client.get("/admin/brokers/node-1")).json["drain"]
    assert (drain["replicas_at_start"], drain["replicas_left"]) == (3, 1)
    assert (drain["throttle_bytes_per_sec"], drain["problem"]) == (99, None)

    await cluster.move(1)
    drained = (await client.get("/admin/brokers/node-1")).json
    assert (drained["state"], drained["held"]) == ("drained", 0)
    removed = await client("DELETE", "/admin/brokers/node-1")
    assert (removed.status, removed.json) == (200, {"id": "node-1", "state": "gone"})
    gone = await client.get("/admin/brokers/node-1")
    assert (gone.status, gone.json["code"]) == (404, "unknown_broker")


async def test_a_drain_is_called_off(client: Client, cluster):
    await client.post("/admin/brokers/node-1/drain")
    await cluster.move(1)

    answer = await client("DELETE", "/admin/brokers/node-1/drain")

    assert (answer.status, answer.json["state"], answer.json["held"]) == (200, "active", 2)
    (one,) = (await client.get("/admin/reassignment")).json["reassignments"]
    assert (one["cause"], one["state"]) == ("drain", "cancelled")


async def test_a_drains_reassignment_is_not_cancelled_by_itself(client: Client, cluster):
    await client.post("/admin/brokers/node-1/drain")
    (one,) = (await client.get("/admin/reassignment")).json["reassignments"]
    before = content(cluster)

    answer = await client("DELETE", f"/admin/reassignment/{one['id']}")

    assert (answer.status, answer.json["code"]) == (409, "conflict")
    assert "undrain the broker instead" in answer.json["error"]
    assert content(cluster) == before


async def test_a_drain_that_leaves_too_few_brokers_is_refused_dry_or_not(client, cluster):
    await client("PATCH", "/topics/orders", {"replication_factor": 3})
    await cluster.move(3)
    before = content(cluster)

    for dry_run in (True, False):
        answer = await client.post("/admin/brokers/node-1/drain", {"dry_run": dry_run})
        assert (answer.status, answer.json["code"]) == (400, "too_few_brokers")
        assert answer.json["error"] == "2 brokers would be left for 3 replicas of a partition"

    assert content(cluster) == before


async def test_a_drain_that_cannot_go_on_says_why(client: Client, cluster):
    brokers = cluster.state.layout.brokers
    for name in ("node-1", "node-2", "node-3"):  # as when others are drained before it is planned
        brokers.put(brokers.named(name), state="draining")

    drain = (await client.get("/admin/brokers/node-1")).json["drain"]

    assert drain["problem"] == "0 brokers take replicas: too few for the 1 of a partition"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/drain"),
        ("DELETE", "/drain"),
    ],
)
async def test_unknown_brokers_are_404_and_names_that_cannot_be_400(client, cluster, method, path):
    unknown = await client(method, f"/admin/brokers/nobody{path}")
    bad = await client(method, f"/admin/brokers/-x{path}")

    assert (unknown.status, unknown.json["code"]) == (404, "unknown_broker")
    assert (bad.status, bad.json["code"]) == (400, "invalid_name")


async def test_the_overview_has_brokers_and_running_moves(client: Client, cluster):
    await client.post("/v1/admin/brokers/node-1/drain")

    found = (await client.get("/v1/admin/cluster")).json

    assert [one["id"] for one in found["brokers"]] == ["node-1", "node-2", "node-3"]
    assert [one["cause"] for one in found["reassignments"]] == ["drain"]
    assert found["controller"] == "node-1"
    nodes = (await client.get("/cluster/nodes")).json["nodes"]
    assert [one["state"] for one in nodes] == ["draining", "active", "active"]


async def test_without_a_leader_what_is_known_is_shown_and_nothing_is_called_unknown(
    client: Client, cluster
):
    await client.post("/admin/brokers/node-1/drain")
    cluster.led = False

    known = await client.get("/admin/brokers/node-1")
    assert (known.status, known.json["drain"]["replicas_left"]) == (200, 3)
    assert known.json["drain"]["bytes_left"] is None
    (plan,) = (await client.get("/admin/reassignment")).json["reassignments"]
    assert (plan["state"], plan["bytes_left"]) == ("running", None)
    for method, path in (
        ("GET", "/admin/brokers/node-9"),
        ("GET", "/admin/reassignment/99"),
        ("GET", "/admin/topics/nothing/scaling-status"),
        ("POST", "/admin/brokers/node-2/drain"),
        ("DELETE", "/admin/brokers/node-1"),
    ):
        answer = await client(method, path)
        assert (answer.status, answer.json["retriable"]) == (503, True), (path, answer.body)


async def test_a_rebalance_that_was_overtaken_is_planned_again(client, cluster, monkeypatch):
    command, refused = cluster.cluster.command, [Overtaken(), Overtaken()]

    async def late(asked: Any, deadline_s: float) -> Any:
        if refused:
            raise refused.pop()
        return await command(asked, deadline_s)

    monkeypatch.setattr(cluster.cluster, "command", late)

    assert (await client.post("/admin/cluster/rebalance", {})).status == 202
    await cluster.move(9)
    await client("PATCH", "/topics/orders", {"replication_factor": 2})
    await cluster.add("node-4")
    refused += [Overtaken() for _ in range(9)]
    answer = await client.post("/admin/cluster/rebalance", {})
    assert (answer.status, answer.json["code"]) == (409, "overtaken")


@pytest.mark.parametrize("shape", SHAPES)
async def test_no_shape_of_any_field_breaks_the_front(client: Client, cluster, shape):
    bodies = {
        "/admin/topics/orders/partitions": {"count": 4, "replica_assignments": None},
        "/admin/reassignment": {**one_move(), "throttle_bytes_per_sec": 1, "dry_run": True},
        "/admin/cluster/rebalance": {"dry_run": True, "leaders_only": False, "limit": 3},
        "/admin/brokers/node-1/drain": {"dry_run": True, "throttle_bytes_per_sec": 0},
    }
    for path, body in bodies.items():
        sent = [{**body, field: shape} for field in body]
        if "partitions" in body:
            sent += [{"partitions": [shape]}]
            sent += [one_move(**{field: shape}) for field in one_move()["partitions"][0]]
            sent += [one_move(new_replicas=[shape]), one_move(old_replicas=shape)]
        for one in sent:
            answer = await client.post(path, one)
            assert answer.status < 500, (path, one, answer.body)
            assert answer.json is not None


async def test_upgrade_with_a_field_that_is_not_known_finishes_nothing(client: Client, cluster):
    """A level can't be taken back: a misspelt `dry_run` must not finish it."""
    for name in ("node-2", "node-3"):
        await cluster.add(name, level=2)

    refused = await client.post("/admin/cluster/upgrade", {"dryRun": True})

    assert (refused.status, refused.json["code"]) == (400, "unknown_field")
    assert refused.json["nearest"] == "dry_run"
    assert (await client.get("/cluster/version")).json["finished_level"] == 1
