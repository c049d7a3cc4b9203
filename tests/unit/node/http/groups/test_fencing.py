"""Claims over HTTP: what is another member's is neither received, settled nor committed."""

from __future__ import annotations

import pytest

GROUP = "/groups/team"


@pytest.fixture
async def first(client, orders):
    return await joined(client)


@pytest.fixture
def receive(client):
    """Receives as a member from what it was assigned; the answer."""

    async def send(member, **body):
        wanted = {
            "member": member["member_id"],
            "generation": member["generation"],
            "assignment": member["assignment"],
        }
        return await client.post(f"{GROUP}/receive", {**wanted, **body})

    return send


async def test_a_member_receives_from_what_it_was_assigned(first, receive, put):
    await put(b"v")

    found = await receive(first)

    assert [m["value"] for m in found.json["messages"]] == ["v"]


async def test_what_members_have_is_not_for_others(client, first, receive, put):
    await put(b"v")

    nobody = await client.post(f"{GROUP}/receive", {"topic": "orders"})
    stranger = await receive({**first, "member_id": "stranger"})
    nameless = await client.post(f"{GROUP}/receive", {"topic": "orders", "generation": 1})

    assert (nobody.status, nobody.json["code"]) == (409, "stale_generation")
    assert sorted(nobody.json["partitions"]) == ["orders:0", "orders:1", "orders:2"]
    assert nobody.json["generation"] == 1
    assert stranger.status == 409
    assert (nameless.status, nameless.json["error"]) == (
        400,
        "generation needs a member: give member_id, too",
    )


async def test_partitions_that_stay_go_on_in_the_old_generation(client, first, receive, put):
    for partition in range(3):
        await put(b"v", partition=partition)
    second = await joined(client)

    found = await receive(first)

    kept = {place["partition"] for place in first["assignment"]} - set(second["partitions"])
    assert {m["partition"] for m in found.json["messages"]} == kept
    refused = await receive({**first, "assignment": second["assignment"]})
    assert refused.status == 409
    assert refused.json["generation"] == 2


@pytest.mark.parametrize("action", ["ack", "nack", "reject", "extend"])
async def test_receipts_of_a_lost_partition_are_stale(client, first, receive, put, clock, action):
    await put(b"v")
    taken = (await receive(first, visibility="1h")).json["messages"]
    await clock.pass_ms(32_000)
    second = await joined(client)

    late = await client.post(f"{GROUP}/{action}", {"receipts": [taken[0]["receipt"]]})
    published = await client.post(
        "/messages/ack", {"receipt_handle": taken[0]["receipt"], "consumer_id": None}
    )
    again = await receive(second)

    (result,) = late.json["results"]
    assert (result["status"], result["code"]) == (409, "stale_generation")
    assert (published.status, published.json["code"]) == (409, "stale_generation")
    (message,) = again.json["messages"]
    assert (message["attempt"], message["last_reason"]) == (2, "consumer lost")


async def test_a_graceful_handover_counts_no_attempt(client, first, receive, put):
    await put(b"v")
    await receive(first, visibility="1h")
    await client.post(f"{GROUP}/leave", {"member_id": first["member_id"]})

    again = await receive(await joined(client))

    assert [m["attempt"] for m in again.json["messages"]] == [1]


async def test_a_settle_that_claims_another_generation_is_stale_as_a_whole(
    client, first, receive, put
):
    await put(b"a", b"b")
    receipts = [m["receipt"] for m in (await receive(first)).json["messages"]]
    settles = [{"receipt": receipt, "action": "ack"} for receipt in receipts]
    claim = {"member": "stranger", "generation": 1}

    wrong = await client.post(f"{GROUP}/settle", {**claim, "settles": settles})
    wrong_one = await client.post("/messages/ack", {**claim, "receipt": receipts[0]})
    claim["member"] = first["member_id"]
    right = await client.post(f"{GROUP}/settle", {**claim, "settles": settles[:1]})
    right_one = await client.post("/messages/ack", {**claim, "receipt": receipts[1]})
    nameless = await client.post(f"{GROUP}/settle", {"generation": 1, "settles": settles})

    assert [r["code"] for r in wrong.json["results"]] == ["stale_generation"] * 2
    assert wrong_one.status == 409
    assert right.json["settled"] == 1
    assert right_one.status == 200
    assert nameless.status == 400


async def test_a_commit_is_judged_by_its_claim(client, first, put):
    await put(b"a", b"b")
    body = {"topic": "orders", "offsets": {"0": 1}}
    claim = {"member": first["member_id"], "generation": 1}

    nobody = await client.post(f"{GROUP}/commit", body)
    own = await client.post(f"{GROUP}/commit", {**body, **claim})
    forced = await client.post(f"{GROUP}/commit", {**body, "force": True})

    assert (nobody.status, nobody.json["code"]) == (409, "stale_generation")
    assert own.json["offsets"] == {"0": 1}
    assert forced.status == 200


async def test_members_of_a_shared_group_receive_side_by_side(client, orders, receive, put):
    first, second = [await joined(client, mode="shared") for _ in range(2)]
    await put(*[b"v"] * 4)

    taken = [
        (await receive({**member, "generation": 0}, limit=2)).json["messages"]
        for member in (first, second)
    ]

    assert [len(messages) for messages in taken] == [2, 2]
    assert len({m["offset"] for messages in taken for m in messages}) == 4


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("limit", {"topic": "orders", "limit": -1}),
        ("generation", {"topic": "orders", "generation": -1}),
        ("assignment[0].partition", {"assignment": [{"topic": "orders", "partition": "x"}]}),
    ],
)
async def test_a_bad_field_is_named_before_what_is_wrong_with_it(client, orders, field, body):
    answer = await client.post(f"{GROUP}/receive", body)

    assert answer.status == 400
    assert answer.json["error"].startswith(f"{field}: expected `int`")


async def joined(client, **body):
    answer = await client.post(f"{GROUP}/join", {"client_id": "w", "topics": ["orders"], **body})
    assert answer.status == 200, answer.body
    return answer.json
