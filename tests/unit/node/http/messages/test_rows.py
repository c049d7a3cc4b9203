"""Publishes are counted and charged before they are decoded, in slices that let others run."""

from __future__ import annotations

import base64
import gzip
import json
import random
import tracemalloc
from dataclasses import fields as columns_of

import pytest

from goqueue.wire.errors import GoQueueError, OverBudget, PayloadTooLarge
from node.http.budget.memory import MIB, Bounds, Budget, Kind, Owner
from node.http.messages import columns as messages_module
from node.http.messages import rows as rows_module
from node.http.messages.columns import Rows, decode_rows
from node.http.messages.rows import read_rows
from node.http.text.elements import SLICE_BYTES

ROOM = 64 * MIB
MESSAGES_MAX = 100_000
MESSAGES = "/topics/orders/messages"


@pytest.fixture
def held():
    budget = Budget(Kind.ROWS, Bounds(4 * ROOM, ROOM, ROOM, ROOM, MIB))
    return budget.hold(Owner("key a", 1))


def message(rng: random.Random):
    made: dict = {"value": rng.choice(["v", "ü" * 20, {"a": [1, {"b": "}"}]}, 5, True, "x" * 500])}
    for name, values in {
        "key": ["k1", "", None],
        "partition": [0, 1, "one"],
        "headers": [{"h": "1", "i": "2"}, {}, {"": "x"}],
        "priority": ["high", 9],
        "message_id": ["m-1", ""],
        "delay": ["5s", "soon"],
        "ttl": ["1h"],
        "sequence": [4],
    }.items():
        if rng.random() < 0.04:
            made[name] = rng.choice(values)
    return rng.choice([made] * 200 + [5, None, {}, {"value": None}, {"value": "w" * 200_000}])


@pytest.mark.parametrize("kind", ["plain", "mixed", "base64"])
async def test_rows_are_the_same_in_slices_as_at_once(held, kind: str) -> None:
    rng = random.Random(kind)
    if kind == "plain":
        messages = [{"value": f"v{n}", "key": f"k{n % 7}"} for n in range(30_000)]
    else:
        messages = [message(rng) for _ in range(4000)]
    body = json.dumps({"producer_id": 7, "epoch": 2, "messages": messages, "sequence": 3}).encode()
    is_base64 = kind == "base64"
    assert len(body) > 4 * SLICE_BYTES

    found = await read_rows(body, is_base64, MESSAGES_MAX, held)

    assert shown(found) == shown(decode_rows(body, is_base64, MESSAGES_MAX))
    assert held.size >= len(body) + 200 * len(messages)


def shown(rows: Rows) -> dict:
    made = {column.name: getattr(rows, column.name) for column in columns_of(rows)}
    return {**made, "errors": {row: error.code for row, error in rows.errors.items()}}


async def test_one_message_of_a_long_text_is_read_whole(held) -> None:
    for value in ("v" * 300_000, "ü" * 200_000, '"\\' * 100_000, {"a": ["[" * 100_000]}):
        body = json.dumps({"value": value, "key": "k", "headers": {"h": "1"}}).encode()
        found = await read_rows(body, False, MESSAGES_MAX, held)
        assert shown(found) == shown(decode_rows(body, False, MESSAGES_MAX))
        held.release()
    coded = json.dumps({"value": base64.b64encode(b"x" * 300_000).decode()}).encode()
    assert (await read_rows(coded, True, MESSAGES_MAX, held)).values == [b"x" * 300_000]


BOMBS = {
    "messages of nothing": (b'{"messages":[%s]}', b"{}"),
    "single fields": (b'{"messages":[%s]}', b'{"key":""}'),
    "not even objects": (b'{"messages":[%s]}', b"0"),
    "arrays": (b'{"messages":[%s]}', b"[]"),
    "headers of one": (b'{"messages":[{"value":"v","headers":{%s}}]}', b'"%d":""'),
    "headers of a body": (b'{"value":"v","headers":{%s}}', b'"%d":""'),
    "headers of many": (
        b'{"messages":[%s]}',
        b'{"value":"v","headers":{' + b",".join(b'"%d":""' % n for n in range(3000)) + b"}}",
    ),
    "an escaped name": (b'{"messag\\u0065s":[%s]}', b"{}"),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_many_small_things_are_refused_before_they_are_built(
    held, monkeypatch, name: str
) -> None:
    frame, unit = BOMBS[name]
    count = (16 * MIB - len(frame)) // (len(unit) + 6)
    body = frame % b",".join((unit % n for n in range(count)) if b"%d" in unit else [unit] * count)
    decoded: list[int] = []
    real = rows_module.decode_some
    monkeypatch.setattr(
        rows_module,
        "decode_some",
        lambda text, coded: decoded.append(len(text)) or real(text, coded),
    )

    tracemalloc.start()
    try:
        with pytest.raises(GoQueueError) as refused:
            rows = await read_rows(body, False, MESSAGES_MAX, held)
            raise rows.errors[0]
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert refused.value.code in ("payload_too_large", "bad_request")
    assert max(decoded, default=0) <= SLICE_BYTES + 2
    assert sum(decoded) <= 8 * MIB, "most of it was never decoded"
    assert peak_bytes <= ROOM + 3 * len(body)
    assert held.size <= ROOM


async def test_messages_that_find_no_room_are_refused_for_now_or_for_good(held) -> None:
    body = json.dumps({"messages": [{"value": "v" * 1000}] * 20_000}).encode()
    wide = Bounds(node=2 * ROOM, holder=MIB, connection=2 * MIB, reserve=0, small=0)
    narrow = Bounds(node=2 * ROOM, holder=2 * MIB, connection=MIB, reserve=0, small=0)

    with pytest.raises(OverBudget) as for_now:
        await read_rows(body, False, MESSAGES_MAX, Budget(Kind.ROWS, wide).hold(Owner("a", 1)))
    with pytest.raises(PayloadTooLarge) as for_good:
        await read_rows(body, False, MESSAGES_MAX, Budget(Kind.ROWS, narrow).hold(Owner("a", 1)))

    assert (for_now.value.retriable, for_good.value.retriable) == (True, False)


async def test_a_bomb_in_gzip_is_refused_and_leaves_nothing_charged(client, front, orders) -> None:
    plain = b'{"messages":[' + b",".join([b"{}"] * (16 * MIB // 3 - 10)) + b"]}"
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}

    answer = await client.post(MESSAGES, data=gzip.compress(plain), headers=headers)

    assert (answer.status, answer.json["code"]) == (413, "payload_too_large")
    assert not any(budget.used for budget in front.budgets.all)


@pytest.mark.parametrize(
    ("path", "name", "unit", "code"),
    [
        ("/groups/workers/settle", b"settles", b"{}", "bad_request"),
        ("/groups/workers/settle", b"settl\\u0065s", b"{}", "bad_request"),
        ("/groups/workers/ack", b"receipts", b'""', "bad_request"),
        ("/groups/workers/ack", b"receipts", b"[]", "bad_request"),
        ("/topics", b"name", b"[]", "payload_too_large"),
    ],
)
async def test_lists_of_other_requests_are_bounded_too(
    client, orders, path: str, name: bytes, unit: bytes, code: str
) -> None:
    size = MIB - 100 if path == "/topics" else 16 * MIB - 100
    body = b'{"%s":[' % name + b",".join([unit] * (size // (len(unit) + 1))) + b"]}"

    tracemalloc.start()
    try:
        answer = await client.post(path, data=body, headers={"Content-Type": "application/json"})
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert answer.json["code"] == code
    assert peak_bytes <= 5 * len(body)


@pytest.mark.parametrize("action", ["settle", "ack"])
async def test_long_lists_of_receipts_are_settled_one_by_one(
    client, put, take, action: str
) -> None:
    await put(b"a", b"b")
    receipts = [message["receipt"] for message in await take(max_messages=10)]
    others = [f"nobody's {n}" for n in range(5000)]
    asked = [receipts[0], *others, 5, receipts[1]]
    body: dict = {"receipts": asked}
    if action == "settle":
        body = {"settles": [{"receipt": one, "action": "ack"} for one in asked]}

    answer = await client.post(f"/groups/workers/{action}", body)

    assert answer.status == 200
    assert len(answer.json["results"]) == len(asked)
    assert [at for at, one in enumerate(answer.json["results"]) if one["success"]] == [
        0,
        len(asked) - 1,
    ]


async def test_a_hundred_thousand_messages_are_stored(client, front, orders, broker) -> None:
    messages = [{"value": f"v{n}", "key": f"k{n}"} for n in range(MESSAGES_MAX)]

    answer = await client.post(MESSAGES, {"messages": messages})

    assert answer.status == 200
    assert len(answer.json["results"]) == MESSAGES_MAX
    assert not any(budget.used for budget in front.budgets.all)


async def test_many_unusable_messages_are_looked_at_a_few_at_once(held, monkeypatch) -> None:
    looked_at: list[int] = []
    real = messages_module._columns
    monkeypatch.setattr(
        messages_module,
        "_columns",
        lambda given, *rest, **more: looked_at.append(len(given)) or real(given, *rest, **more),
    )
    body = b'{"messages":[' + b",".join([b"{}"] * 40_000) + b"]}"

    rows = await read_rows(body, False, MESSAGES_MAX, held)

    assert len(rows) == len(rows.errors) == sum(looked_at) == 40_000
    assert max(looked_at) <= messages_module.STEP_ROWS


async def test_what_is_told_of_a_refused_body_is_freed_some_at_once(held, monkeypatch) -> None:
    left: list[int] = []
    real = rows_module._free_some

    def free_some(rows: Rows) -> None:
        before = len(rows.errors)
        real(rows)
        left.append(len(rows.errors))
        assert before - left[-1] <= rows_module.FREED_ROWS

    monkeypatch.setattr(rows_module, "_free_some", free_some)
    body = b'{"messages":[' + b",".join([b"{}"] * 40_000) + b"]}"

    with pytest.raises(PayloadTooLarge):
        await read_rows(body, False, 30_000, held)

    assert left[-1] == 0
    assert len(left) >= 29_000 // rows_module.FREED_ROWS
