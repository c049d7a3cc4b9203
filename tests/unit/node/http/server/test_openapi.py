"""The served document and the served routes are the same, and answers fit their schemas."""

from __future__ import annotations

import json
from uuid import uuid4

import msgspec

from coordinator.commands.codec import RegisterBroker
from goqueue.wire.batch import encode_columns
from node.http.compat.trace_ids import own_trace_id
from node.http.messages.columns import PublishBody
from node.http.server.openapi import ErrorAnswer, alternatives, document
from node.http.server.routes import ROUTES
from tests.one_node import cluster_of

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
    "trace_id": own_trace_id("orders", 0, 0),
}
NOW_MS = 1_736_866_800_000
RECEIPT = "a fresh receipt"
MEMBER = "a fresh member"
TEAM = {"client_id": "worker", "topics": ["orders"]}
BODIES = {
    "createKey": {"id": "k1", "role": "producer", "prefixes": ["orders."]},
    "rotateKey": {},
    "createTopic": {"name": "new"},
    "alterTopic": {"retention_hours": 1},
    "replaceTopic": {"retention_hours": 1},
    "producerHeartbeat": {"epoch": 0},
    "ackMessage": {"receipt_handle": RECEIPT},
    "nackMessage": {"receipt_handle": RECEIPT},
    "rejectMessage": {"receipt_handle": RECEIPT},
    "extendVisibility": {"receipt_handle": RECEIPT, "timeout": "60s"},
    "joinGroup": TEAM,
    "heartbeat": {"member_id": MEMBER, "wait": "1ms"},
    "leaveGroup": {"member_id": MEMBER},
    "joinCooperative": TEAM,
    "heartbeatCooperative": {"member_id": MEMBER, "generation": 1},
    "leaveCooperative": {"member_id": MEMBER},
    "revoke": {"member_id": MEMBER, "revoked_partitions": [{"topic": "orders", "partition": 0}]},
    "commitOffsets": {"offsets": {"orders": {"0": 1}}},
    "resetOffsets": {"topic": "orders", "to": "earliest"},
    "putGroup": {"visibility_timeout": "60s"},
    "assignGroup": {"owner": "orders."},
    "changeGroup": {"max_attempts": 5, "halt_percent": 50},
    "reportArchived": {"archive": "s3://b/archive", "positions": {"0": 0}},
    "receive": {"topic": "orders"},
    "peek": {"topic": "orders"},
    "settle": {"settles": [{"receipt": RECEIPT, "action": "nack"}, {"receipt": "?"}]},
    "ackReceipts": {"receipts": [RECEIPT, "?"]},
    "nackReceipts": {"receipts": [RECEIPT], "delay": "1s"},
    "rejectReceipts": {"receipt": RECEIPT, "reason": "bad"},
    "extendReceipts": {"receipts": [RECEIPT]},
    "commit": {"topic": "orders", "offsets": {"0": 1}},
    "seek": {"topic": "orders", "to": "earliest"},
    "parkKey": {"topic": "orders", "key": "k"},
    "releaseKey": {"topic": "orders", "key": "k"},
    "resume": {},
    "redrive": {"topic": "orders"},
    "purge": {"topic": "orders"},
    "ackIds": {"group": "workers", "messageId": RECEIPT},
    "addPartitions": {"count": 4},
    "drainBroker": {},
    "finishUpgrade": {},
    "rebalanceCluster": {},
    "reassign": {"partitions": [{"topic": "orders", "partition": 0, "new_replicas": ["node-1"]}]},
    "createSchedule": {"name": "nightly", "topic": "orders", "cron": "0 0 3 * * *", "value": "v"},
}
QUERIES = {
    "listDeadLetters": "?topic=orders",
    "countDeadLetters": "?topic=orders",
    "consume": "?group=workers",
    "tailTopic": "?wait=1ms",
    "poll": f"?member_id={MEMBER}&timeout=1",
    "getAssignment": f"?member_id={MEMBER}",
}


async def test_the_served_document_lists_every_route_under_both_prefixes(client):
    served = (await client.get("/openapi.json")).json

    listed = {
        (method.upper(), path) for path, methods in served["paths"].items() for method in methods
    }
    routed = {(r.method, prefix + r.path) for r in ROUTES for prefix in ("", "/v1")}
    assert listed == routed


async def test_every_listed_operation_is_served(client, orders):
    for path, methods in document(ROUTES, "1")["paths"].items():
        for method in methods:
            query = "?wait=1ms" * path.endswith("/tail")
            answer = await client(method.upper(), path.format(**PARAMETERS) + query, {"value": "v"})
            assert answer.status != 405, path
            if answer.status == 404:
                assert "no such route" not in answer.json["error"]


async def test_operation_ids_are_unique_and_references_resolve():
    described = document(ROUTES, "1")

    ids = [op["operationId"] for methods in described["paths"].values() for op in methods.values()]
    assert len(ids) == len(set(ids))
    for reference in references(described):
        assert reference.removeprefix("#/components/schemas/") in described["components"]["schemas"]


async def test_every_answer_fits_its_schema(client, broker, orders):
    await broker.upgrade.finish_level()
    await client.post("/producers/init", {})
    await client("PUT", "/groups/workers", {"ordering": "key"})
    delayed = encode_columns([b"v"], [b"k"], deliver_at_ms=[NOW_MS + 60_000])
    await broker.records.append("orders", 0, delayed, deadline_s=30)
    begun = {}
    for route in sorted(ROUTES, key=deletes_at_the_end_from_inside_out):
        if route.response is None or route.operation == "publishRecordBatches":
            continue
        body = BODIES.get(route.operation, {"value": "dg=="} if publishes(route) else None)
        if RECEIPT in str(body):
            await client.post("/topics/orders/messages", {"value": "v", "key": str(uuid4())})
            taken = await client.post("/groups/workers/receive", {"topic": "orders", "limit": 1})
            body = json.loads(
                json.dumps(body).replace(RECEIPT, taken.json["messages"][0]["receipt"])
            )
        path = route.path.format(**{**PARAMETERS, **begun})
        query = QUERIES.get(route.operation, "?verbose" if route.query else "")
        if MEMBER in str(body) + query or body is TEAM:
            path = path.replace("workers", "team")
            joined = await client.post("/groups/team/join", TEAM)
            query = query.replace(MEMBER, joined.json["member_id"])
            body = json.loads(json.dumps(body).replace(MEMBER, joined.json["member_id"]))

        if route.operation == "consume":
            await client.post("/topics/orders/messages", {"value": "v"})
        if route.path.startswith("/admin/brokers") and not begun.get("broker"):
            begun["broker"] = "node-3"
            await register(broker, "node-3")
        if route.operation == "rebalanceCluster":
            await register(broker, "node-2")
        if route.operation == "removeBroker":
            await client.post(path + "/drain", {})

        if route.operation in ("runCompaction", "compactTopic"):
            await client("PATCH", "/topics/orders", {"cleanup": "compact"})

        answer = await client(route.method, path + query, body)

        if route.operation in ("runCompaction", "compactTopic"):
            await client("PATCH", "/topics/orders", {"cleanup": "delete"})
        if route.operation == "reassign":
            begun["reassignment"] = answer.json["id"]
        if "job" in (answer.json or {}):
            begun["job"] = answer.json["job"]
        assert answer.status == route.status, (route.operation, answer.body)
        decoded = msgspec.json.decode(answer.body, type=alternatives(route.response)[0])
        if isinstance(decoded, msgspec.Struct):
            assert set(answer.json) <= set(decoded.__struct_fields__), route.operation


async def register(broker, node):
    """One more broker, which never comes."""
    await cluster_of(broker).command(RegisterBroker(node, 1, highest_level=2), 30)


def publishes(route):
    return route.request is PublishBody


def deletes_at_the_end_from_inside_out(route):
    """What comes to have replicas on brokers that are not there is asked for before."""
    is_placed = route.path.startswith("/admin/")
    is_delete = route.method == "DELETE"
    return is_delete, is_placed, -len(route.path) if is_delete else 0


async def test_errors_fit_theirs(client):
    for path in ("/nope", "/topics/nope", "/topics/-bad"):
        answer = await client.get(path)
        error = msgspec.json.decode(answer.body, type=ErrorAnswer, strict=True)
        assert error.status == answer.status


def references(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


async def test_an_answer_without_a_body_is_in_the_document(client):
    await client.post("/topics", {"name": "empty"})

    answer = await client.get("/topics/empty/consume?group=workers&timeout=1")
    told = (await client.get("/openapi.json")).json["paths"]["/topics/{topic}/consume"]["get"]

    assert (answer.status, answer.body) == (204, b"")
    assert "content" not in told["responses"]["204"]
