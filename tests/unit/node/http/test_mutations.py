"""Damaged requests by the hundred, from a seed: none breaks the front."""

from __future__ import annotations

import json
import random

import aiohttp

from goqueue.wire.batch import BATCH_MEDIA_TYPE, encode_columns

SEED = 20250115
ROUNDS = 1500
BODIES = [
    json.dumps(
        {
            "messages": [
                {"key": "k", "value": "v", "priority": "high", "headers": {"a": "ü"}},
                {"value": {"a": [1, 2.5, None, True]}, "partition": 1, "message_id": "m"},
                {"value": "dg==", "value_encoding": "base64", "delay": "5s"},
            ],
            "producer_id": 7,
            "epoch": 0,
            "sequence": 0,
        },
        ensure_ascii=False,
    ).encode(),
    b'{"messages":[{"value":"plain"},{"value":"texts","key":"k"}]}',
    b'{"key":"k","value":"eyJhIjoxfQ==","partition":0}',
]
TOKENS = [
    *(bytes([byte]) for byte in b'"\\{}[],:- \xff\xc3\x00'),
    *(b"null", b"true", b"NaN", b"1e999", b"\\ud800", b"9" * 400, b'"value"', b'"key"'),
]


def mutate(rng, body):
    data = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 1:
            del data[at : at + rng.randint(1, 8)]
        elif kind == 2 and at < len(data):
            data[at] = rng.randrange(256)
        else:
            other = rng.randrange(len(data) + 1)
            data[at:at] = data[other : other + rng.randint(1, 20)]
    return bytes(data)


async def test_mutated_bodies_and_batches_never_break_the_front(client, orders):
    rng = random.Random(SEED)
    batch = encode_columns([b"a", b"b" * 50], [b"k", None], headers=[(("h", b"v"),), ()])
    for round_number in range(ROUNDS):
        if round_number % 5 == 0:
            path, media = "/topics/orders/partitions/0/messages", BATCH_MEDIA_TYPE
            body = mutate(rng, batch)
        else:
            path = rng.choice(["/topics/orders/messages", "/topics/orders/publish", "/topics"])
            media, body = "application/json", mutate(rng, rng.choice(BODIES))

        answer = await client.post(path, data=body, headers={"Content-Type": media})

        assert answer.status < 500, (round_number, path, body, answer.body)
        assert answer.json is not None
    assert (await client.get("/topics/orders/messages?limit=1000")).status == 200


async def test_mutated_bodies_of_the_queue_never_break_the_front(client, orders):
    rng = random.Random(SEED)
    await client.post("/topics/orders/messages", {"value": "v", "partition": 0})
    taken = await client.post("/groups/workers/receive", {"topic": "orders"})
    receipt = taken.json["messages"][0]["receipt"]
    bodies = [
        ("POST", "/groups/workers/receive", {"topic": "orders", "limit": 5, "member": "m"}),
        ("POST", "/groups/workers/settle", {"settles": [{"receipt": receipt, "action": "extend"}]}),
        ("POST", "/groups/workers/nack", {"receipts": [receipt], "delay": "1s", "reason": "ü"}),
        ("POST", "/groups/workers/commit", {"topic": "orders", "offsets": {"0": 0}}),
        ("POST", "/groups/workers/seek", {"topic": "orders", "to": "2025-01-14T15:00:00Z"}),
        ("POST", "/groups/workers/dlq/redrive", {"topic": "orders", "filter": {"key": "k"}}),
        ("PUT", "/groups/workers", {"visibility_timeout": "5s", "ordering": "key"}),
        ("POST", "/schedules", {"name": "s", "topic": "orders", "cron": "* * * * *", "value": "v"}),
        ("POST", "/messages/nack", {"receipt_handle": receipt, "delay": None}),
    ]
    for round_number in range(ROUNDS):
        method, path, body = rng.choice(bodies)
        sent = mutate(rng, json.dumps(body, ensure_ascii=False).encode())

        answer = await client(method, path, data=sent, headers={"Content-Type": "application/json"})

        assert answer.status < 500, (round_number, path, sent, answer.body)
        assert answer.json is not None


async def test_mutated_requests_never_break_the_front(client, orders):
    rng = random.Random(SEED)
    request = (
        b"POST /v1/topics/orders/messages?partition=1 HTTP/1.1\r\nHost: x\r\n"
        b"Content-Type: application/json\r\nContent-Length: 13\r\nConnection: close\r\n\r\n"
        b'{"value":"v"}'
    )
    for _ in range(300):
        data = mutate(rng, request)
        try:
            status, _body = await client.raw(data + b"\r\n\r\n", 0.5)
        except (EOFError, ConnectionError, TimeoutError):
            continue  # cut in the middle: no answer is an answer too
        assert status < 500, data
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{client.front.port}/health"
        assert (await session.get(url)).status == 200
