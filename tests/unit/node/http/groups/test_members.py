"""Members over HTTP: who joins gets partitions, is told what to let go of, and may leave."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from tests.one_node import until

GROUP = "/groups/team"
ORDERS = {"client_id": "worker-1", "topics": ["orders"]}


@pytest.fixture
def join(client, orders):
    """Joins `team`; what it was told."""

    async def send(**body):
        answer = await client.post(f"{GROUP}/join", {**ORDERS, **body})
        assert answer.status == 200, answer.body
        return answer.json

    return send


@pytest.fixture
def beat(client):
    """A heartbeat in `team`; what it was told."""

    async def send(member, **body):
        answer = await client.post(f"{GROUP}/heartbeat", {"member_id": member["member_id"], **body})
        assert answer.status == 200, answer.body
        return answer.json

    return send


async def test_the_first_member_gets_all_partitions_and_leads(join):
    joined = await join()

    assert joined["partitions"] == [0, 1, 2]
    assert joined["assigned_partitions"] == ["0", "1", "2"]
    assert joined["assignment"] == [{"topic": "orders", "partition": n} for n in range(3)]
    assert joined["leader"] == joined["leader_id"] == joined["member_id"]
    assert joined["members"] == [joined["member_id"]]
    assert joined["member_id"].startswith("worker-1-")
    assert (joined["generation"], joined["state"], joined["mode"]) == (1, "stable", "exclusive")
    assert (joined["protocol"], joined["rebalance_required"]) == ("cooperative", False)
    assert joined["session_timeout_ms"] == 30_000
    assert joined["group"] == joined["group_id"] == "team"


async def test_partitions_of_several_topics_are_told_with_their_topics(join, broker):
    await broker.topics.create_topic("payments", {"partitions": 1})

    joined = await join(topics=["orders", "payments"])

    assert joined["assigned_partitions"] == ["orders:0", "orders:1", "orders:2", "payments:0"]
    assert joined["partitions"] == [0, 1, 2, 0]


async def test_one_topic_may_be_named_alone_and_patterns_match_those_to_come(join, beat, broker):
    one = await join(topics=None, topic="orders")
    many = await join(topics=None, patterns=["pay*"])

    await broker.topics.create_topic("payments", {"partitions": 2})
    told = await until(
        lambda: beat(many, revision=many["revision"]), lambda told: len(told["assignment"]) == 2
    )

    assert one["partitions"] == [0, 1, 2]
    assert many["partitions"] == []
    assert told["assignment"] == [{"topic": "payments", "partition": n} for n in range(2)]
    assert told["rebalance_required"]


async def test_nulls_and_fields_of_other_clients_are_accepted(join):
    joined = await join(session_timeout=None, member_id=None, protocol="range")

    assert joined["partitions"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ({"session_timeout": "10s"}, 10_000),
        ({"session_timeout": 10_000}, 10_000),
        ({"session_timeout_ms": 10_000}, 10_000),
        ({"session_timeout": "10s", "session_timeout_ms": 10_000}, 10_000),
        ({"session_timeout": ""}, 30_000),
    ],
)
async def test_a_session_timeout_is_text_or_milliseconds(join, given, ms):
    assert (await join(**given))["session_timeout_ms"] == ms


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "client_id is required; topics is required"),
        ({"client_id": "", "topics": ["orders"]}, "client_id is required"),
        ({"client_id": "w", "topics": []}, "topics is required"),
        ({"client_id": "w", "topics": "orders"}, "topics: expected `array"),
        ({"client_id": 7, "topics": ["orders"]}, "client_id: expected `str"),
        ({**ORDERS, "topics": ["-bad"]}, "-bad"),
        ({**ORDERS, "topic": "payments"}, "topic or topics, not both"),
        ({**ORDERS, "session_timeout": "soon"}, "session_timeout: 'soon' is not a duration"),
        ({**ORDERS, "session_timeout": "5s", "session_timeout_ms": 6}, "session_timeout"),
        ({**ORDERS, "session_timeout": "1ms"}, "session_timeout_ms: 1 is out of range"),
        ({**ORDERS, "session_timeout": "2h"}, "out of range"),
        ({**ORDERS, "rebalance_timeout": "2h"}, "rebalance_timeout_ms"),
        ({**ORDERS, "mode": "some"}, "mode: want one of exclusive, shared"),
        ({**ORDERS, "assignor": "best"}, "assignor: want one of sticky"),
        ({**ORDERS, "patterns": [""]}, "patterns"),
        ({**ORDERS, "wait": "-1s"}, "wait"),
    ],
)
async def test_a_join_that_will_not_do_is_400_and_says_why(client, orders, body, problem):
    answer = await client.post(f"{GROUP}/join", body)

    assert answer.status == 400, answer.body
    assert problem in answer.json["error"]


async def test_a_join_for_a_topic_that_is_not_there_is_404_and_makes_no_group(client):
    answer = await client.post(f"{GROUP}/join", ORDERS)

    assert (answer.status, answer.json["code"]) == (404, "unknown_topic")
    assert (await client.get(GROUP)).status == 404


async def test_a_group_is_created_with_the_mode_and_assignor_of_its_first_member(join, client):
    first = await join(mode="shared", assignor="range")
    second = await join()

    assert first["mode"] == second["mode"] == "shared"
    assert first["partitions"] == second["partitions"] == [0, 1, 2]
    shown = (await client.get(GROUP)).json
    assert (shown["mode"], shown["assignor"]) == ("shared", "range")


async def test_a_member_that_does_not_let_go_itself_is_not_waited_for_once_it_has_nothing(join):
    first = await join()
    second = await join()

    assert len(second["partitions"]) == 1
    assert second["leader"] == ""
    assert second["leader_id"] == first["member_id"]


async def test_a_member_that_lets_go_keeps_what_it_was_asked_for_until_it_says_so(join, beat):
    first = await join(lets_go=True)
    second = await join(wait="1ms")
    asked = await beat(first, generation=1)

    done = await beat(first, let_go=asked["revoking"])
    given = await until(lambda: beat(second), lambda told: told["assignment"])

    assert second["partitions"] == []
    assert second["state"] == "rebalancing"
    assert asked["rebalance_required"]
    assert asked["revoking"] == asked["partitions_to_revoke"] != []
    assert asked["revocation_deadline"] == "2025-01-14T15:01:00.000Z"
    assert "revocation_deadline" not in done
    assert done["revoking"] == []
    assert given["state"] == "stable"
    assert given["assignment"] == asked["revoking"]


async def test_a_heartbeat_waits_for_news_of_its_revision_and_no_longer(join, beat):
    first = await join(lets_go=True)
    waiting = asyncio.ensure_future(beat(first, revision=first["revision"], wait="60s"))

    await join(wait=0)
    told = await asyncio.wait_for(waiting, 30)

    assert told["revoking"]
    assert told["revision"] != first["revision"]


async def test_a_heartbeat_without_a_revision_does_not_wait(join, beat):
    told = await asyncio.wait_for(beat(await join(), wait="60s"), 30)

    assert (told["status"], told["state"], told["rebalance_required"]) == ("ok", "stable", False)


async def test_a_stop_ends_a_heartbeat_that_waits(join, beat, front, eventually):
    first = await join()
    waiting = asyncio.ensure_future(beat(first, revision=first["revision"], wait="60s"))
    await eventually(lambda: front.requests_in_flight)

    front.begin_stop()
    told = await asyncio.wait_for(waiting, 30)

    assert told["revision"] == first["revision"]


async def test_hanging_up_is_no_sign_of_life(client, join, front, broker, eventually):
    first = await join()
    beats, heartbeat = [], broker.members.heartbeat

    async def watched(*arguments, **options):
        beats.append(options)
        return await heartbeat(*arguments, **options)

    broker.members.heartbeat = watched
    body = json.dumps(
        {"member_id": first["member_id"], "revision": first["revision"], "wait": "60s"}
    ).encode()
    head = f"POST {GROUP}/heartbeat HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(head.encode() + body)
    await eventually(lambda: front.requests_in_flight)

    writer.close()
    await eventually(lambda: not front.requests_in_flight and front.connections == 1)

    assert (await client.get(GROUP)).status == 200
    assert len(beats) == 1


async def test_heartbeats_keep_a_member_and_silence_ends_it(join, beat, client, clock):
    first, second = await join(session_timeout="10s"), await join(session_timeout="10s")
    for _ in range(5):
        await clock.pass_ms(6_000)
        await beat(first)

    gone = await until(
        lambda: client.post(f"{GROUP}/heartbeat", {"member_id": second["member_id"]}),
        lambda answer: answer.status != 200,
    )
    told = await beat(first)

    assert (gone.status, gone.json["code"]) == (404, "unknown_member")
    assert "join again" in gone.json["error"]
    assert told["partitions"] == [0, 1, 2]


async def test_an_old_generation_is_told_the_new_one_and_one_to_come_is_409(join, beat, client):
    first = await join()
    await join()

    told = await beat(first, generation=1)
    newer = await client.post(
        f"{GROUP}/heartbeat", {"member_id": first["member_id"], "generation": 9}
    )

    assert (told["generation"], told["rebalance_required"]) == (2, False)
    assert (newer.status, newer.json["code"]) == (409, "stale_generation")
    assert newer.json["generation"] == 2


async def test_a_node_that_is_behind_catches_up_before_it_refuses_a_generation(
    join, beat, broker, monkeypatch
):
    first = await join()
    second = await join()
    known, told, tell = [], broker.members.heartbeat, broker.members.membership

    async def behind(*named, **more):
        found = await told(*named, **more)
        return found if known else replace(found, generation=first["generation"])

    async def membership(group):
        known.append(group)
        return await tell(group)

    monkeypatch.setattr(broker.members, "heartbeat", behind)
    monkeypatch.setattr(broker.members, "membership", membership)

    answer = await beat(second, generation=second["generation"])

    assert second["generation"] > first["generation"]
    assert answer["generation"] == second["generation"]
    assert known == ["team"]


async def test_a_member_subscribes_anew_under_its_id(join, broker):
    await broker.topics.create_topic("payments", {"partitions": 1})
    first = await join()

    again = await join(member_id=first["member_id"], topics=["payments"])

    assert again["member_id"] == first["member_id"]
    assert again["assignment"] == [{"topic": "payments", "partition": 0}]


async def test_an_instance_that_comes_again_takes_its_own_place(join, client):
    first = await join(instance_id="pod-1")
    await join(instance_id="pod-2")

    again = await join(instance_id="pod-1")
    old = await client.post(f"{GROUP}/heartbeat", {"member_id": first["member_id"]})
    shown = await client.get(f"{GROUP}/rebalances")

    assert again["member_id"] != first["member_id"]
    assert len(again["partitions"]) == 2
    assert old.status == 404
    assert shown.json["totals"]["by_cause"] == {"join": 2}


async def test_who_leaves_is_gone_and_the_others_have_its_partitions(join, beat, client):
    first, second = await join(), await join()

    left = await client.post(f"{GROUP}/leave", {"member_id": first["member_id"]})
    again = await client.post(f"{GROUP}/leave", {"member_id": first["member_id"]})

    assert left.json == {
        "status": "left",
        "left": True,
        "success": True,
        "group": "team",
        "member_id": first["member_id"],
    }
    assert (again.status, again.json["code"]) == (404, "unknown_member")
    await until(lambda: beat(second), lambda told: told["partitions"] == [0, 1, 2])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/heartbeat"),
        ("POST", "/leave"),
        ("GET", "/poll"),
        ("GET", "/assignment"),
        ("POST", "/heartbeat/cooperative"),
        ("POST", "/leave/cooperative"),
    ],
)
async def test_a_member_must_be_named_and_be_there(client, join, method, path):
    await join()

    nobody = await client(method, GROUP + path, {})
    query = "?member_id=stranger" if method == "GET" else ""
    stranger = await client(method, GROUP + path + query, {"member_id": "stranger"})
    no_group = await client(method, "/groups/none" + path + query, {"member_id": "stranger"})

    assert (nobody.status, nobody.json["error"]) == (400, "member_id is required")
    assert (stranger.status, stranger.json["code"]) == (404, "unknown_member")
    assert (no_group.status, no_group.json["code"]) == (404, "unknown_group")


async def test_a_client_that_hung_up_before_it_was_told_is_no_member(
    client, front, broker, orders, eventually
):
    gone, join = asyncio.Event(), broker.members.join
    joined = []

    async def slow(*arguments, **options):
        told = await join(*arguments, **options)
        joined.append(told.member)
        await gone.wait()
        return told

    broker.members.join = slow
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    body = b'{"client_id": "w", "topics": ["orders"]}'
    writer.write(b"POST /groups/team/join HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n" + body)
    await eventually(lambda: joined)

    writer.close()
    await eventually(lambda: all(c.transport is None for c in front._server.connections))
    gone.set()

    await until(lambda: client.get(f"{GROUP}/members"), lambda a: a.json["members"] == [])


async def test_a_group_shows_its_members(join, client, clock):
    joined = await join(instance_id="pod-1")
    await clock.pass_ms(4_000)

    shown = (await client.get(GROUP)).json
    listed = (await client.get("/groups")).json
    members = (await client.get(f"{GROUP}/members")).json

    (member,) = shown["members"]
    assert member == {
        "id": joined["member_id"],
        "member_id": joined["member_id"],
        "client_id": "worker-1",
        "instance_id": "pod-1",
        "host": "127.0.0.1",
        "topics": ["orders"],
        "patterns": [],
        "joined_at": "2025-01-14T15:00:00.000Z",
        "last_heartbeat": member["last_heartbeat"],
        "silent_ms": 4_000,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 60_000,
        "assigned_partitions": ["0", "1", "2"],
        "partitions": ["0", "1", "2"],
        "assignment": [{"topic": "orders", "partition": n} for n in range(3)],
        "revoking": [],
    }
    assert (shown["state"], shown["generation"], shown["protocol"]) == ("stable", 1, "cooperative")
    assert shown["leader_id"] == joined["member_id"]
    assert shown["topics"] == ["orders"]
    assert listed["groups"] == ["team"]
    (detail,) = listed["details"]
    assert (detail["state"], detail["members"], detail["generation"]) == ("stable", 1, 1)
    assert detail["topics"] == ["orders"]
    assert [m["id"] for m in members["members"]] == [joined["member_id"]]


async def test_a_group_with_members_is_deleted_only_by_force(join, client):
    await join()

    refused = await client("DELETE", GROUP)
    forced = await client("DELETE", f"{GROUP}?force=true")

    assert (refused.status, refused.json["code"]) == (409, "group_active")
    assert forced.json == {"deleted": True, "group": "team", "group_id": "team"}
    assert (await client.get(GROUP)).status == 404


async def test_the_mode_of_a_group_stays_while_it_has_members(join, client):
    await join()

    refused = await client("PATCH", GROUP, {"mode": "shared"})
    same = await client("PATCH", GROUP, {"mode": "exclusive", "session_timeout": "10s"})

    assert (refused.status, refused.json["code"]) == (409, "group_active")
    assert same.json["settings"]["session_timeout"] == "10s"


async def test_an_assignment_is_told_without_a_heartbeat(join, client, clock):
    joined = await join(session_timeout="10s")
    await clock.pass_ms(9_000)

    told = await client.get(f"{GROUP}/assignment?member_id={joined['member_id']}")
    await clock.pass_ms(2_000)
    gone = await until(
        lambda: client.get(f"{GROUP}/assignment?member_id={joined['member_id']}"),
        lambda answer: answer.status != 200,
    )

    assert told.json["partitions"] == joined["assignment"]
    assert (told.json["generation"], told.json["revoking"]) == (1, [])
    assert gone.status == 404


async def test_the_cooperative_routes_say_the_same_in_their_words(client, orders):
    body = {**ORDERS, "lets_go": True, "protocol": "cooperative"}
    first = (await client.post(f"{GROUP}/join/cooperative", body)).json
    id = {"member_id": first["member_id"]}
    calm = (await client.post(f"{GROUP}/heartbeat/cooperative", {**id, "generation": 1})).json
    second = (await client.post(f"{GROUP}/join/cooperative", {**body, "wait": 0})).json

    asked = (await client.post(f"{GROUP}/heartbeat/cooperative", {**id, "generation": 1})).json
    waiting = await client.post(
        f"{GROUP}/heartbeat/cooperative", {"member_id": second["member_id"]}
    )
    shown = (await client.get(f"{GROUP}/cooperative")).json
    revoked = await client.post(
        f"{GROUP}/revoke", {**id, "revoked_partitions": asked["partitions_to_revoke"]}
    )
    after = await until(
        lambda: client.post(f"{GROUP}/heartbeat/cooperative", {**id, "generation": 1}),
        lambda answer: answer.json["state"] != "pending_assign",
    )

    assert (calm["state"], calm["rebalance_required"]) == ("none", False)
    assert (asked["state"], asked["rebalance_required"]) == ("pending_revoke", True)
    assert waiting.json["state"] == "pending_assign"
    assert shown["rebalance_state"] == "pending_revoke"
    assert shown["member_assignments"][first["member_id"]] == asked["partitions_assigned"]
    assert shown["assignment_strategy"] == "sticky"
    assert shown["rebalance_metrics"]["total_rebalances"] == 2
    assert (revoked.json["status"], revoked.json["pending_count"]) == ("acknowledged", 0)
    assert after.json["state"] == "complete"
    assert len(after.json["partitions_assigned"]) == 2


async def test_a_revoke_says_which_partitions(client, join):
    member = await join()

    answer = await client.post(f"{GROUP}/revoke", {"member_id": member["member_id"]})

    assert (answer.status, answer.json["error"]) == (400, "revoked_partitions is required")
