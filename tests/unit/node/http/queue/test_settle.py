"""Settling by receipt, singly and in batches: every receipt has its own end, or its own error."""

from __future__ import annotations

import pytest

from goqueue.wire.errors import NoQuorum

SETTLE = "/groups/workers/settle"


def receipts(messages):
    return [message["receipt"] for message in messages]


async def test_each_receipt_of_a_batch_has_an_end_of_its_own(client, clock, put, take):
    await put(b"a", b"b", b"c", b"d", b"e")
    ack, nack, reject, extend, release = receipts(await take())

    answer = await client.post(
        SETTLE,
        {
            "settles": [
                {"receipt": ack, "action": "ack"},
                {"receipt": nack, "action": "nack", "reason": "busy", "delay": "5s"},
                {"receipt_handle": reject, "action": "reject", "reason": "bad"},
                {"receipt": extend, "action": "extend", "visibility": "10m"},
                {"receipt": release, "action": "release"},
            ]
        },
    )

    assert answer.status == 200
    assert answer.json["settled"] == 5
    first, second, third, fourth, fifth = answer.json["results"]
    assert first == {
        "receipt": ack,
        "success": True,
        "action": "ack",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "state": "acked",
        "attempts": 1,
        "committed_offset": 1,
        "offset_advanced": True,
        "in_flight": 4,
    }
    assert (second["state"], second["visible_at"]) == ("requeued", "2025-01-14T15:00:05.000Z")
    assert (third["state"], third["receipt"]) == ("dead", reject)
    assert (fourth["state"], fourth["visible_at"]) == ("extended", "2025-01-14T15:10:00.000Z")
    assert (fifth["state"], fifth["attempts"]) == ("released", 0)


async def test_a_bad_item_costs_its_neighbours_nothing(client, clock, put, take):
    await put(b"a", b"b", b"c")
    good, late, done = receipts(await take())
    await client.post("/groups/workers/ack", {"receipt": done})
    clock.now_ms += 30_000
    (fresh,) = receipts(await take(limit=1, wait="30s"))

    answer = await client.post(
        SETTLE,
        {
            "settles": [
                {"receipt": late, "action": "ack"},
                {"receipt": done, "action": "ack"},
                {"receipt": "no receipt", "action": "ack"},
                {"receipt": fresh, "action": "drop"},
                {"action": "ack"},
                {"receipt": 5, "action": "ack"},
                {"receipt": fresh, "action": "ack", "delay": "5s"},
                {"receipt": fresh, "action": "nack", "position": "middle", "delay": "soon"},
                {"receipt": fresh, "action": "ack"},
                "ack",
                None,
            ]
        },
    )

    assert answer.status == 200
    results = answer.json["results"]
    assert [(r["success"], r.get("status"), r.get("code")) for r in results] == [
        (False, 409, "receipt_expired"),
        (False, 404, "not_in_flight"),
        (False, 400, "invalid_receipt"),
        (False, 400, "bad_request"),
        (False, 400, "bad_request"),
        (False, 400, "bad_request"),
        (False, 400, "bad_request"),
        (False, 400, "bad_request"),
        (True, None, None),
        (False, 400, "bad_request"),
        (False, 400, "bad_request"),
    ]
    assert answer.json["settled"] == 1
    assert all(r["outcome"] == "none" and not r["retriable"] for r in results if not r["success"])
    assert "position 'middle'" in results[7]["error"]
    assert "delay: 'soon'" in results[7]["error"]
    assert good != fresh


async def test_foreign_receipts_settle_nothing(client, put, take):
    await put(b"v")
    (receipt,) = receipts(await take())
    await client("PUT", "/groups/others", {})

    foreign = await client.post("/groups/others/ack", {"receipts": [receipt]})
    own = await client.post("/groups/workers/ack", {"receipts": [receipt]})

    assert foreign.json["results"][0]["status"] == 404
    assert own.json["results"][0]["success"] is True


@pytest.mark.parametrize(
    ("action", "options", "state"),
    [
        ("ack", {}, "acked"),
        ("nack", {"reason": "busy", "delay": 1000, "position": "back"}, "requeued"),
        ("reject", {"reason": "bad"}, "dead"),
        ("extend", {"visibility": "1m"}, "extended"),
        ("extend", {"visibility_timeout": 60_000}, "extended"),
        ("extend", {}, "extended"),
    ],
)
async def test_many_receipts_have_one_end(client, put, take, action, options, state):
    await put(b"a", b"b", b"c")
    taken = receipts(await take())

    many = await client.post(f"/groups/workers/{action}", {"receipts": taken[:2], **options})
    one = await client.post(f"/groups/workers/{action}", {"receipt_handle": taken[2], **options})

    assert [r["state"] for r in many.json["results"]] == [state, state]
    assert many.json["settled"] == 2
    assert [r["receipt"] for r in many.json["results"]] == taken[:2]
    assert one.json["results"][0]["state"] == state


async def test_receipts_that_are_no_strings_fail_alone(client, put, take):
    await put(b"v")
    (receipt,) = receipts(await take())

    answer = await client.post(
        "/groups/workers/ack", {"receipts": [None, 7, "", {}, "x", receipt], "reason": None}
    )

    assert answer.status == 200
    assert [r.get("code") for r in answer.json["results"]] == ["invalid_receipt"] * 5 + [None]
    assert answer.json["settled"] == 1


@pytest.mark.parametrize(
    ("action", "body", "problem"),
    [
        ("ack", {}, "nothing to settle"),
        ("ack", {"receipts": []}, "nothing to settle"),
        ("ack", {"receipts": ["x"], "receipt": "x"}, "not both"),
        ("ack", {"receipt": "x", "receipt_handle": "y"}, "different"),
        ("ack", {"receipts": ["x"], "delay": "1s"}, "with action 'nack'"),
        ("ack", {"receipts": ["x"], "visibility": "1s"}, "with action 'extend'"),
        ("nack", {"receipts": ["x"], "position": "side"}, "front or back"),
        ("nack", {"receipts": ["x"], "delay": "later"}, "delay"),
        ("extend", {"receipts": ["x"], "visibility": "13h"}, "12 hours"),
        ("extend", {"receipts": ["x"] * 10_001, "visibility": "1s"}, "receipts"),
        ("settle", {"settles": []}, "nothing to settle"),
        ("settle", {}, "settles"),
        ("settle", {"settles": {}}, "settles"),
    ],
)
async def test_a_body_that_makes_no_sense_is_a_400(client, orders, action, body, problem):
    answer = await client.post(f"/groups/workers/{action}", body)

    assert answer.status == 400
    assert problem in answer.json["error"]


async def test_a_batch_that_met_no_quorum_is_503_with_its_results(client, broker, put, take):
    await put(b"a", b"b")
    taken = receipts(await take())

    async def settle(requests, group, claim):
        return [NoQuorum() for _ in requests]

    broker.receipts.settle = settle
    answer = await client.post("/groups/workers/ack", {"receipts": taken})

    assert (answer.status, answer.json["code"]) == (503, "no_quorum")
    assert [r["code"] for r in answer.json["results"]] == ["no_quorum"] * 2
    assert answer.headers["Retry-After"]


async def test_a_batch_that_met_no_quorum_in_part_is_200(client, broker, put, take):
    await put(b"a", b"b")
    taken = receipts(await take())
    settle = broker.receipts.settle

    async def settle_first(requests, group, claim):
        return [*await settle(requests[:1], group, claim), NoQuorum()]

    broker.receipts.settle = settle_first
    answer = await client.post("/groups/workers/ack", {"receipts": taken})

    assert answer.status == 200
    assert [r["success"] for r in answer.json["results"]] == [True, False]
    assert answer.json["results"][1]["retriable"] is True


async def test_a_nack_to_the_back_lets_others_first_and_one_to_the_front_does_not(
    client, put, take
):
    await put(b"a", b"b", b"c")
    (first,) = await take(limit=1)
    await client.post("/groups/workers/nack", {"receipt": first["receipt"], "position": "back"})
    (second,) = await take(limit=1)
    await client.post("/groups/workers/nack", {"receipt": second["receipt"]})

    order = [message["value"] for message in await take()]

    assert second["value"] == "b"
    assert order == ["b", "c", "a"]


async def test_three_nacks_make_a_dead_letter(client, put, take):
    await put(b"v")
    states = []
    for _ in range(3):
        (message,) = await take()
        answer = await client.post("/groups/workers/nack", {"receipt": message["receipt"]})
        states.append(answer.json["results"][0]["state"])

    assert states == ["requeued", "requeued", "dead"]
    assert await take() == []


async def test_an_extend_of_zero_ends_the_lease_now(client, put, take):
    await put(b"v")
    (message,) = await take()

    await client.post("/groups/workers/extend", {"receipt": message["receipt"], "visibility": "0s"})

    assert [again["attempt"] for again in await take(wait="30s")] == [2]


async def test_ten_thousand_receipts_fit_in_one_request(client, put, take):
    await put(b"v")
    (receipt,) = receipts(await take())

    answer = await client.post("/groups/workers/ack", {"receipts": ["x" * 64] * 9999 + [receipt]})

    assert answer.json["settled"] == 1
    assert len(answer.json["results"]) == 10_000
