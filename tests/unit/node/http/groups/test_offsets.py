"""Offsets and lag over HTTP: read, committed by who may, and reset with care."""

from __future__ import annotations

import pytest

GROUP = "/groups/team"


@pytest.fixture
def join(client, orders):
    """Joins `team`; what it was told."""

    async def send(**body):
        answer = await client.post(
            f"{GROUP}/join", {"client_id": "w", "topics": ["orders"], **body}
        )
        assert answer.status == 200, answer.body
        return answer.json

    return send


@pytest.fixture
def reset(client):
    """Resets `team` in `orders`; the answer."""

    async def send(**body):
        return await client.post(f"{GROUP}/offsets/reset", {"topic": "orders", **body})

    return send


async def test_offsets_are_told_by_topic_and_partition_under_both_names(client, join, put):
    member = (await join())["member_id"]
    await put(*[b"v"] * 5)
    await client.get(f"{GROUP}/poll?member_id={member}&limit=2&timeout=0")
    await client.post(f"{GROUP}/offsets", {"member_id": member, "offsets": {"orders": {"0": 1}}})

    told = (await client.get(f"{GROUP}/offsets")).json

    assert told["topics"] == told["offsets"] == {"orders": {"0": 1, "1": 0, "2": 0}}
    assert told["group"] == told["group_id"] == "team"
    assert told["generation"] == 1
    assert told["details"][0] == {
        "topic": "orders",
        "partition": 0,
        "committed_offset": 1,
        "end_offset": 5,
        "lag": 4,
        "lag_seconds": 0.0,
        "in_flight": 1,
        "owner": member,
    }


async def test_lag_is_told_in_messages_and_in_seconds(client, join, put, clock, broker):
    await join()
    await broker.topics.create_topic("payments", {"partitions": 1})
    await put(b"a", b"b")
    clock.now_ms += 1_500
    await put(b"c", partition=1)
    await put(b"later", partition=1, deliver_at_ms=[clock.now_ms + 60_000])

    told = (await client.get(f"{GROUP}/lag")).json
    here = (await client.get(f"{GROUP}/lag?topic=payments")).json

    assert (told["total_lag"], told["max_lag_seconds"]) == (3, 1.5)
    first, second, third = told["partitions"]
    assert (first["lag"], first["lag_seconds"], first["end_offset"]) == (2, 1.5, 2)
    assert (second["lag"], second["lag_seconds"], second["delayed"]) == (1, 0.0, 1)
    assert (third["lag"], third["lag_seconds"]) == (0, 0.0)
    assert first["generation"] == 1
    assert here == {
        "group": "team",
        "total_lag": 0,
        "max_lag_seconds": 0.0,
        "partitions": here["partitions"],
    }
    assert [place["topic"] for place in here["partitions"]] == ["payments"]


async def test_offsets_and_lag_of_a_group_or_topic_that_is_not_there_are_404(client, join):
    for path in ("/offsets", "/lag", "/rebalances", "/members", "/cooperative"):
        assert (await client.get(f"/groups/none{path}")).json["code"] == "unknown_group"
    await join()
    for path in ("/offsets", "/lag"):
        assert (await client.get(f"{GROUP}{path}?topic=none")).json["code"] == "unknown_topic"


@pytest.mark.parametrize(
    "offsets",
    [
        {"orders": {"0": 2, "1": 1}},
        [
            {"topic": "orders", "partition": 0, "offset": 2},
            {"topic": "orders", "partition": 1, "offset": 1},
        ],
    ],
)
async def test_offsets_are_committed_as_a_map_or_as_a_list(client, orders, put, offsets):
    await put(b"a", b"b", b"c")
    await put(b"a", partition=1)

    done = await client.post(f"{GROUP}/offsets", {"offsets": offsets, "member_id": None})

    assert done.json == {
        "status": "committed",
        "success": True,
        "committed": True,
        "group": "team",
        "group_id": "team",
        "offsets": {"orders": {"0": 2, "1": 1}},
    }


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "offsets: nothing to commit"),
        ({"offsets": {}}, "nothing to commit"),
        ({"offsets": {"orders": {}}}, "nothing to commit"),
        ({"offsets": {"orders": {"x": 1}}}, "'x' is not a partition"),
        ({"offsets": {"orders": {"0": -1}}}, "-1 is not an offset"),
        ({"offsets": {"-bad": {"0": 1}}}, "-bad"),
        ({"offsets": [{"topic": "orders", "partition": 0}]}, "offset is required"),
        ({"offsets": {"orders": {"0": 1}}, "generation": 3}, "generation needs a member"),
        ({"offsets": {"orders": {"0": 1}}, "generation": -1}, "generation: expected"),
        (
            {
                "offsets": [
                    {"topic": "orders", "partition": 0, "offset": 1},
                    {"topic": "orders", "partition": 0, "offset": 2},
                ]
            },
            "orders:0 is given twice",
        ),
    ],
)
async def test_a_commit_that_will_not_do_is_400_and_says_why(client, orders, body, problem):
    answer = await client.post(f"{GROUP}/offsets", body)

    assert answer.status == 400, answer.body
    assert problem in answer.json["error"]


async def test_only_the_owner_commits_and_who_forces_it(client, join, put):
    await put(b"a", b"b")
    member = await join()
    offsets = {"offsets": {"orders": {"0": 1}}}

    stranger = await client.post(f"{GROUP}/offsets", offsets)
    unknown = await client.post(f"{GROUP}/offsets", {**offsets, "member_id": "stranger"})
    ahead = await client.post(
        f"{GROUP}/offsets", {**offsets, "member_id": member["member_id"], "generation": 5}
    )
    forced = await client.post(f"{GROUP}/offsets", {**offsets, "force": True})
    own = await client.post(
        f"{GROUP}/offsets",
        {"offsets": {"orders": {"0": 2}}, "member_id": member["member_id"], "generation": 1},
    )

    assert (stranger.status, stranger.json["code"]) == (409, "stale_generation")
    assert stranger.json["generation"] == 1
    assert stranger.json["partitions"] == ["orders:0"]
    assert (unknown.status, unknown.json["code"]) == (404, "unknown_member")
    assert (ahead.status, ahead.json["code"]) == (409, "stale_generation")
    assert forced.json["offsets"] == {"orders": {"0": 1}}
    assert own.json["offsets"] == {"orders": {"0": 2}}


async def test_members_of_a_shared_group_commit_in_whatever_generation_they_say(client, join, put):
    await put(b"a", b"b")
    member = await join(mode="shared")

    done = await client.post(
        f"{GROUP}/offsets",
        {
            "member_id": member["member_id"],
            "generation": member["generation"],
            "offsets": {"orders": {"0": 1}},
        },
    )

    assert done.status == 200


async def test_a_commit_over_topics_tells_what_was_done_before_it_failed(client, orders, put):
    await put(b"a")

    answer = await client.post(
        f"{GROUP}/offsets", {"offsets": {"orders": {"0": 1}, "payments": {"0": 1}}}
    )

    assert (answer.status, answer.json["code"]) == (404, "unknown_topic")
    assert answer.json["committed"] == {"orders": {"0": 1}}


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 6),
        ({"to": 2}, 2),
        ({"to": "2"}, 2),
        ({"offset": 2}, 2),
        ({"offset": 99}, 6),
        ({"shift": -1}, 3),
        ({"shift": 1}, 5),
        ({"shift": -99}, 0),
        ({"time": 1_736_866_801_000}, 3),
        ({"time": "2025-01-14T15:00:01Z"}, 3),
        ({"to": "2025-01-14T15:00:01Z"}, 3),
        ({"duration": "1s"}, 3),
        ({"duration": 2_000}, 0),
    ],
)
async def test_positions_are_reset_to_places_times_and_by_steps(
    client, clock, put, reset, to, after
):
    await put(b"a", b"b", b"c")
    clock.now_ms += 1_000
    await put(b"d", b"e", b"f")
    clock.now_ms += 1_000
    await client.post(f"{GROUP}/offsets", {"offsets": {"orders": {"0": 4}}})

    tried = await reset(**to, partitions=[0], dry_run=True)
    unchanged = (await client.get(f"{GROUP}/offsets?topic=orders")).json["offsets"]["orders"]["0"]
    done = await reset(**to, partition=0)
    changed = (await client.get(f"{GROUP}/offsets?topic=orders")).json["offsets"]["orders"]["0"]

    told = {"topic": "orders", "partition": 0, "before": 4, "after": after}
    told |= {"replayed": max(0, 4 - after), "skipped": max(0, after - 4)}
    assert tried.json["offsets"] == done.json["offsets"] == [told]
    assert (tried.json["dry_run"], done.json["dry_run"]) == (True, False)
    assert (unchanged, changed) == (4, after)


async def test_all_partitions_are_reset_unless_some_are_named(client, put, reset, orders):
    await client("PUT", GROUP)

    done = await reset(to="latest")
    some = await reset(to="latest", partitions=[2, 0, 2])

    assert [place["partition"] for place in done.json["offsets"]] == [0, 1, 2]
    assert [place["partition"] for place in some.json["offsets"]] == [0, 2]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "give one of to, offset, time, duration, shift"),
        ({"to": "earliest", "shift": 1}, "to, shift are given"),
        ({"to": "first"}, "'first' is none of earliest"),
        ({"to": -3}, "-3 is not an offset"),
        ({"to": "9" * 5000}, "to: '9999"),
        ({"offset": -1}, "offset: -1 is not an offset"),
        ({"time": "noon"}, "time: 'noon'"),
        ({"duration": "long"}, "duration: 'long'"),
        ({"shift": 2**63}, "too far"),
        ({"to": "latest", "partitions": []}, "names none"),
        ({"to": "latest", "partitions": [-1]}, "partitions[0]: expected"),
        ({"to": "latest", "partition": 1, "partitions": [1]}, "partition or partitions"),
        ({"to": "latest", "topic": None}, "topic is required"),
        ({"to": "latest", "topic": "-bad"}, "-bad"),
    ],
)
async def test_a_reset_that_will_not_do_is_400_and_says_why(reset, orders, body, problem):
    answer = await reset(**body)

    assert answer.status == 400, answer.body
    assert problem in answer.json["error"]


async def test_a_reset_of_a_group_or_partition_that_is_not_there_is_404(client, reset, orders):
    no_group = await reset(to="latest")
    await client("PUT", GROUP)
    no_partition = await reset(to="latest", partition=7)

    assert (no_group.status, no_group.json["code"]) == (404, "unknown_group")
    assert (no_partition.status, no_partition.json["code"]) == (404, "unknown_partition")


async def test_positions_of_active_members_are_theirs_unless_it_is_forced(client, join, put, reset):
    await put(b"a", b"b")
    member = (await join())["member_id"]

    refused = await reset(to="latest")
    own = await reset(to="latest", member_id=member)
    other = (await join())["member_id"]
    not_all_its_own = await reset(to="latest", member_id=other)
    await client.post(f"{GROUP}/leave", {"member_id": other})
    forced = await reset(to="earliest", force=True)
    await client.post(f"{GROUP}/leave", {"member_id": member})
    free = await reset(to="latest")

    assert (refused.status, refused.json["code"]) == (409, "group_active")
    assert refused.json["members"] == 1
    assert not_all_its_own.json["code"] == "stale_generation"
    assert own.json["offsets"][0]["after"] == 2
    assert forced.json["offsets"][0]["after"] == 0
    assert free.status == 200


async def test_a_dry_run_answers_whoever_has_the_group_and_says_what_stands_in_the_way(
    client, join, put, reset
):
    await put(b"a", b"b")
    await join()
    other = (await join())["member_id"]

    told = await reset(to="latest", dry_run=True)
    of_a_member = await reset(to="latest", dry_run=True, member_id=other)
    forced = await reset(to="latest", dry_run=True, force=True)

    assert (told.status, told.json["offsets"]) == (200, forced.json["offsets"])
    assert told.json["refusal"]["code"] == "group_active"
    assert "2 active members" in told.json["refusal"]["error"]
    assert of_a_member.json["refusal"]["code"] == "stale_generation"
    assert "refusal" not in forced.json
    assert (await reset(to="latest")).status == 409


async def test_positions_of_a_shared_group_are_its_members_too(client, join, put, reset):
    members = [(await join(mode="shared"))["member_id"] for _ in range(2)]

    refused = [await reset(to="latest", **by) for by in ({}, {"member_id": members[0]})]
    for member in members:
        await client.post(f"{GROUP}/leave", {"member_id": member})
    free = await reset(to="latest")

    assert [answer.json["code"] for answer in refused] == ["group_active"] * 2
    assert free.status == 200


async def test_a_seek_is_held_back_by_members_likewise(client, join, put):
    await put(b"a")
    member = await join()
    body = {"topic": "orders", "to": "latest"}

    refused = await client.post(f"{GROUP}/seek", body)
    own = await client.post(
        f"{GROUP}/seek", {**body, "member": member["member_id"], "generation": 1}
    )
    forced = await client.post(f"{GROUP}/seek", {**body, "to": "earliest", "force": True})

    assert (refused.status, refused.json["code"]) == (409, "group_active")
    assert own.json["offsets"]["0"] == 1
    assert forced.json["offsets"]["0"] == 0
