"""Hostile input: always an answer in our own shape, never a 500, and the front lives on."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from node.http.budget.limits import MIB
from node.http.budget.memory import Bounds, Budgets, Kind
from node.http.server.app import HttpFront
from node.http.server.routes import ROUTES

JSON = {"Content-Type": "application/json"}
MESSAGES = "/topics/orders/messages"
DEEP = 100_000
JSON_PATHS = (
    *(MESSAGES, "/topics/orders/publish", "/topics", "/producers/1/heartbeat", "/schedules"),
    *(f"/groups/workers/{path}" for path in ("receive", "settle", "ack", "commit", "seek")),
    *(f"/groups/workers/{path}" for path in ("keys/park", "dlq/redrive", "dlq/purge")),
    *(f"/messages/{path}" for path in ("ack", "nack", "reject", "visibility")),
)
PARAMETERS = {
    "topic": "orders",
    "partition": 0,
    "offset": 0,
    "id": "orders:0:0",
    "producer": 1,
    "group": "workers",
    "job": 1,
    "schedule": "nightly",
    "broker": "node-3",
    "reassignment": 1,
    "key": "k1",
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
}

BAD_BODIES = {
    "empty": b"",
    "not json": b"hello",
    "truncated": b'{"messages":[{"value":"a"}',
    "trailing": b'{"messages":[{"value":"a"}]} x',
    "two documents": b'{"messages":[{"value":"a"}]}{"a":1}',
    "null": b"null",
    "array": b"[]",
    "number": b"5",
    "deep array": b"[" * DEEP,
    "deep closed array": b"[" * DEEP + b"]" * DEEP,
    "deep object": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep value": b'{"messages":[{"value":' + b"[" * DEEP + b"]" * DEEP + b"}]}",
    "deep unknown field": b'{"x":' + b"[" * DEEP + b"]" * DEEP + b',"value":"v"}',
    "NaN": b'{"messages":[{"value":NaN}]}',
    "nested NaN": b'{"messages":[{"value":{"a":NaN}}]}',
    "Infinity": b'{"messages":[{"value":-Infinity}]}',
    "leading zero": b'{"messages":[{"value":{"a":01}}]}',
    "bad UTF-8 value": b'{"messages":[{"value":"\xff\xfe"}]}',
    "bad UTF-8 in JSON value": b'{"messages":[{"value":{"a":"\xff"}}]}',
    "bad UTF-8 key": b'{"messages":[{"value":"v","key":"\xc3"}]}',
    "bad UTF-8 unknown field": b'{"x":"\xff","value":"v"}',
    "overlong UTF-8": b'{"messages":[{"value":"\xc0\xaf"}]}',
    "UTF-8 surrogate": b'{"messages":[{"value":"\xed\xa0\x80"}]}',
    "lone surrogate": b'{"messages":[{"value":"\\ud800"}]}',
    "nested lone surrogate": b'{"messages":[{"value":{"a":"\\udc00"}}]}',
    "control character": b'{"messages":[{"value":"a\nb"}]}',
    "bad escape": b'{"messages":[{"value":"\\x41"}]}',
    "byte order mark": b'\xef\xbb\xbf{"messages":[{"value":"a"}]}',
    "UTF-16": '{"messages":[{"value":"a"}]}'.encode("utf-16"),
    "NUL bytes": b"\0" * 100,
    "messages an object": b'{"messages":{"value":"a"}}',
    "huge sequence": b'{"value":"a","producer_id":1,"sequence":' + b"9" * 5000 + b"}",
    "single quotes": b"{'messages':[]}",
    "comment": b'{"messages":[{"value":"a"}]/**/}',
    "trailing comma": b'{"messages":[{"value":"a"},]}',
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_bad_json_is_a_400_that_says_so(client, orders, broker, name):
    for path in JSON_PATHS:
        answer = await client.post(path, data=BAD_BODIES[name], headers=JSON)

        assert answer.status == 400, path
        assert answer.json["status"] == 400
        assert answer.json["error"]
        assert answer.json["request_id"] == answer.headers["X-Request-ID"]

    assert (await broker.topics.topic("orders")).partitions[0].messages == 0


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b'{"value":' + b"9" * 5000 + b"}", "bad_message"),
        (b'{"value":' + b"[" * 65 + b"]" * 65 + b"}", "bad_message"),
        (b'{"value":"v","partition":' + b"9" * 5000 + b"}", "bad_message"),
        (b'{"value":"v","partition":' + b"9" * 40 + b"}", "unknown_partition"),
        (b'{"value":' + b"[" * 64 + b"]" * 64 + b"}", None),
        (b'{"value":"' + b"[" * 1000 + b'"}', None),
        (b'{"value":"first","value":"second"}', None),
        (b'{"value":"a\\u0000b"}', None),
        (b'{"value":1e999}', None),
    ],
)
async def test_one_extreme_message_is_judged_by_itself(client, orders, message, code):
    body = b'{"messages":[' + message + b',{"value":"neighbour"}]}'

    answer = await client.post(MESSAGES, data=body, headers=JSON)

    assert answer.status == 200
    assert [result.get("code") for result in answer.json["results"]] == [code, None]


def shapes():
    return [None, True, 0, -1, 10**25, 1.5, "", "x", "\u0000", [], [[]], {}, {"a": {}}]


@pytest.mark.parametrize("shape", shapes(), ids=repr)
async def test_wrong_types_for_every_field_never_break_the_front(client, orders, shape):
    fields = [
        "value",
        "payload",
        "value_encoding",
        "key",
        "key_encoding",
        "partition",
        "headers",
        "priority",
        "message_id",
        "sequence",
        "delay",
        "deliverAt",
        "deliver_at",
        "ttl",
        "messages",
        "producer_id",
        "producer_epoch",
        "epoch",
        "name",
        "num_partitions",
        "partitions",
        "replication_factor",
        "retention_hours",
        "retention_ms",
        "durability",
        "flush_interval_ms",
        "lanes",
        "max_message_bytes",
        "labels",
        "config",
        "transactional_id",
        "transaction_timeout_ms",
    ]
    for field in fields:
        bodies = [
            ("POST", MESSAGES, {"value": "v", field: shape}),
            ("POST", MESSAGES, {"messages": [{"value": "v", field: shape}], "producer_id": None}),
            ("POST", "/topics/orders/publish", {"value": "dg==", field: shape}),
            ("POST", "/topics", {"name": "bad name", field: shape}),
            ("PATCH", "/topics/orders", {field: shape}),
            ("POST", "/producers/init", {field: shape}),
            ("POST", "/producers/1/heartbeat", {"epoch": 0, field: shape}),
        ]
        for method, path, body in bodies:
            answer = await client(method, path, body)
            assert answer.status < 500, (path, body, answer.body)
            assert answer.json is not None


QUEUE_BODIES = {
    "POST /groups/workers/receive": {"topic": "orders"},
    "POST /groups/workers/peek": {"topic": "orders"},
    "POST /groups/workers/settle": {"settles": [{"receipt": "x", "action": "ack"}]},
    "POST /groups/workers/ack": {"receipts": ["x"]},
    "POST /groups/workers/nack": {"receipts": ["x"]},
    "POST /groups/workers/reject": {"receipts": ["x"]},
    "POST /groups/workers/extend": {"receipts": ["x"]},
    "POST /groups/workers/commit": {"topic": "orders", "offsets": {"0": 0}},
    "POST /groups/workers/seek": {"topic": "orders", "to": "latest"},
    "POST /groups/workers/resume": {},
    "POST /groups/workers/keys/park": {"topic": "orders", "key": "k"},
    "POST /groups/workers/keys/release": {"topic": "orders", "key": "k"},
    "POST /groups/workers/dlq/redrive": {"topic": "orders"},
    "POST /groups/workers/dlq/purge": {"topic": "orders"},
    "PUT /groups/workers": {},
    "PATCH /groups/workers": {},
    "POST /messages/ack": {"receipt_handle": "x"},
    "POST /messages/nack": {"receipt_handle": "x"},
    "POST /messages/reject": {"receipt_handle": "x"},
    "POST /messages/visibility": {"receipt_handle": "x", "timeout": "1s"},
    "POST /schedules": {"name": "s", "topic": "orders", "every": "1m", "value": "v"},
}
QUEUE_FIELDS = [
    *("topic", "topics", "partitions", "limit", "max_messages", "timeout", "visibility"),
    *("visibility_timeout", "member", "receipt", "receipt_handle", "receipts", "settles"),
    *("action", "reason", "delay", "position", "consumer_id", "extension_seconds", "offsets"),
    *("partition", "to", "time", "key", "key_encoding", "filter", "rate", "dry_run", "force"),
    *("max_attempts", "maxRetries", "ordering", "start", "lane_max_wait", "lane_share"),
    *("backoff", "backoff_max", "on_poison", "halt_percent", "halt_window", "redrives_max"),
    *("in_flight_max", "dead_max", "name", "cron", "every", "timezone", "missed", "value"),
    *("value_encoding", "headers", "priority"),
]
FILTER_FIELDS = ["reason", "key", "key_encoding", "from_time", "to_time", "headers", "ids"]


@pytest.mark.parametrize("target", QUEUE_BODIES)
async def test_wrong_types_for_every_field_of_the_queue_never_break_the_front(
    client, orders, target
):
    """What a route does not know it refuses whatever stands there, so one shape is enough."""
    method, path = target.split()
    body = QUEUE_BODIES[target]

    def shaped(shape):
        yield from ({**body, field: shape} for field in QUEUE_FIELDS)
        if "settles" in body:
            yield from ({"settles": [{**body["settles"][0], f: shape}]} for f in QUEUE_FIELDS)
            yield {"settles": [shape, shape]}
        if "receipts" in body:
            yield {"receipts": [shape, "x"]}
        if "offsets" in body:
            yield {"topic": "orders", "offsets": {"0": shape}}
            yield {"topic": "orders", "offsets": {str(shape): 0}}
        if "dlq" in path:
            yield from ({**body, "filter": {field: shape}} for field in FILTER_FIELDS)

    await client("PUT", "/groups/workers")
    for bodies in zip(*map(shaped, shapes()), strict=True):
        for sent in bodies:
            answer = await client(method, path, sent)
            assert answer.status < 500, (path, sent, answer.body)
            assert answer.json is not None
            if answer.json.get("code") == "unknown_field":
                break


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 30, "%00", "0:0", "%F0%9F%92%A9", "1e3"])
async def test_strange_words_in_paths_and_queries_never_break_the_front(client, orders, text):
    fields = ["topic", "group", "limit", "skip", "offset", "offsets", "partition", "after"]
    fields += ["reason", "key", "from_time", "to_time", "wait", "visible", "state", "header"]
    query = "&".join(f"{field}={text}" for field in fields)
    for route in ROUTES:
        told = {
            "topic": "orders",
            **{name: text or "%20" for name in PARAMETERS if name != "topic"},
        }
        paths = [route.path.format(**PARAMETERS) + "?" + query, route.path.format(**told)]
        if route.path.startswith("/topics/{topic}"):
            paths.append(route.path.format(**{**PARAMETERS, "topic": "orders.dlq"}) + "?" + query)
        for path in paths if route.method == "GET" else paths[1:2]:
            answer = await client(route.method, path, None if route.method == "GET" else {})
            assert answer.status < 500, (route.method, path, answer.body)


async def test_bodies_over_the_limit_are_413_before_they_are_read(client, orders):
    status, body = await client.raw(
        b"POST /topics/orders/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 16777217\r\n\r\n"
    )

    assert status == 413
    assert json.loads(body)["code"] == "payload_too_large"


async def test_chunked_bodies_over_the_limit_are_413(client, orders):
    async def chunks():
        for _ in range(17):
            yield b" " * MIB

    answer = await client.post(MESSAGES, data=chunks(), headers=JSON)

    assert answer.status == 413


@pytest.mark.parametrize("settings", [{"defaults.topic.maxMessageBytes": 15 * MIB}])
async def test_sixteen_mebibytes_are_taken(client, orders):
    frame = b'{"messages":[{"value":"","partition":0},{"value":"y","partition":1}]}'
    rest = b"x" * (2 * MIB)
    frame = frame.replace(b'"y"', b'"' + rest + b'"')
    body = frame.replace(b'""', b'"' + b"x" * (16 * MIB - len(frame)) + b'"')

    answer = await client.post(MESSAGES, data=body, headers=JSON)

    assert len(body) == 16 * MIB
    assert answer.json["results"] == [{"partition": n, "offset": 0} for n in range(2)]


async def test_small_documents_have_a_smaller_limit(client):
    body = b'{"name":"t","labels":{"a":"' + b"x" * MIB + b'"}}'

    assert (await client.post("/topics", data=body, headers=JSON)).status == 413


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", gzip.compress(b'{"value":"v"}', mtime=0), 200),
        ("deflate", zlib.compress(b'{"value":"v"}'), 200),
        ("identity", b'{"value":"v"}', 200),
        ("gzip", b"not gzip", 400),
        ("gzip", gzip.compress(b'{"value":"v"}', mtime=0)[:-4], 400),
        ("gzip", gzip.compress(b'{"value":"v"}', mtime=0) + b"more", 400),
        ("gzip", gzip.compress(b" " * (17 * MIB), mtime=0), 413),
        ("br", b"x", 415),
        ("gzip, gzip", b"x", 415),
        ("zip bomb", b"x", 415),
    ],
)
async def test_compressed_bodies_are_taken_bounded_or_refused(
    client, front, orders, encoding, body, status
):
    headers = {**JSON, "Content-Encoding": encoding}

    answer = await client.post(MESSAGES, data=body, headers=headers)

    assert answer.status == status
    assert front.bytes_in_flight == 0


@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("APPLICATION/JSON;charset=UTF-8", 200),
        ("application/vnd.other+json", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 200),
        ("application/json; charset=latin-1", 415),
        ("multipart/form-data; boundary=x", 415),
        ("garbage", 415),
    ],
)
async def test_other_media_types_are_415(client, orders, content_type, status):
    answer = await client.post(
        MESSAGES, data=b'{"value":"v"}', headers={"Content-Type": content_type}
    )

    assert answer.status == status


HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /topics HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
MALFORMED = {
    "garbage": b"\x16\x03\x01 hello\r\n\r\n",
    "bad version": b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n",
    "no version": b"GET /health\r\nHost: x\r\n\r\n",
    "long header": HEAD + b"X-A: " + b"a" * 16_384 + b"\r\n\r\n",
    "many headers": HEAD + b"".join(b"X-%d: a\r\n" % n for n in range(10_000)) + b"\r\n",
    "long path": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "header with NUL": HEAD + b"X-A: a\0b\r\n\r\n",
    "header without name": HEAD + b": a\r\n\r\n",
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "signed length": POST + b"Content-Length: +5\r\n\r\nhello",
    "length not a number": POST + b"Content-Length: abc\r\n\r\n",
    "folded header": HEAD + b"X-A: a\r\n b: c\r\nTransfer-Encoding : chunked\r\n\r\n",
    "bad chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n",
    "unknown coding": POST + b"Transfer-Encoding: gzip\r\n\r\nhello",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_http_is_a_400_in_json(client, name):
    status, body = await client.raw(MALFORMED[name])

    assert status == 400
    shown = json.loads(body)
    assert shown["status"] == 400
    assert shown["code"] == "bad_request"
    assert shown["retriable"] is False


async def test_unknown_routes_and_methods_are_json_too(client, orders):
    unknown = await client.get("/nope")
    method = await client("DELETE", "/topics")
    strange = await client("PURGE", "/health")
    bad_path = await client.get("/topics/%ff")

    assert (unknown.status, unknown.json["code"]) == (404, "not_found")
    assert (method.status, method.json["code"]) == (405, "method_not_allowed")
    assert method.headers["Allow"] == "GET, HEAD, OPTIONS, POST"
    assert strange.status == 405
    assert bad_path.status == 400


@pytest.mark.parametrize(
    "path",
    ["/topics/../../etc/passwd", "//", "/", "/v1", "/v1/", "/topics//", "/%2e%2e/topics",
     "/topics/a/b/c/d/e", "/v1/v1/topics"],
)  # fmt: skip
async def test_paths_that_lead_nowhere_are_404(client, path):
    status, _ = await client.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    assert status == 404


async def test_every_route_survives_every_hostile_body(client, orders):
    for route in ROUTES:
        path = route.path.format(**PARAMETERS)
        for body in (b"", b"[" * DEEP, b"\xff" * 100, b'{"a":NaN}', b'"x"'):
            answer = await client(route.method, path, data=body, headers=JSON)
            assert answer.status < 500, (route.operation, body[:20])


async def test_request_ids_are_echoed_only_when_harmless(client):
    kept = await client.get("/health", headers={"X-Request-ID": "abc-123"})
    made = await client.get("/health", headers={"X-Request-ID": "x" * 200})

    assert kept.headers["X-Request-ID"] == "abc-123"
    assert made.headers["X-Request-ID"] != "x" * 200


class TestBudget:
    @pytest.fixture
    async def front(self, broker, limits, keys):
        bodies = Bounds(node=2000, holder=1000, connection=1000, reserve=0, small=0)
        front = HttpFront(broker, port=0, limits=limits, budgets=Budgets({Kind.BODIES: bodies}))
        await front.start()
        yield front
        await front.stop()

    async def test_too_many_bytes_in_flight_are_429_with_retry_after(self, client, front, orders):
        answer = await client.post(MESSAGES, {"value": "x" * 2000})
        after = await client.post(MESSAGES, {"value": "x"})

        assert (answer.status, answer.json["code"]) == (429, "over_budget")
        assert (answer.json["kind"], answer.json["bound"]) == ("bodies", "connection")
        assert answer.headers["Retry-After"] == "1"
        assert answer.json["retriable"] is True
        assert after.status == 200
        assert front.bytes_in_flight == 0


async def test_head_answers_without_a_body_and_absolute_targets_are_understood(client):
    head = await client("HEAD", "/health")
    status, _ = await client.raw(b"GET http://other/v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
    star, _ = await client.raw(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")

    assert (head.status, head.body) == (200, b"")
    assert (status, star) == (200, 204)


async def test_an_upgrade_is_declined_and_the_connection_lives(client):
    upgrade = (
        b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )

    status, body = await client.raw(upgrade)

    assert status == 200
    assert json.loads(body)["status"] == "ok"


async def test_connect_tunnels_nothing(client):
    status, body = await client.raw(b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")

    assert status in (400, 404, 405)
    assert json.loads(body)["error"]
