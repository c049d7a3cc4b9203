"""The node's own routes: health, readiness, version, figures, cluster, producers, and the front's
start, stop, TLS and metrics."""

from __future__ import annotations

import asyncio
import socket

import aiohttp
import pytest

from goqueue.wire.errors import NoQuorum
from node.api.node import Check, Readiness
from node.http.server.app import HttpFront, Observers
from node.runtime.version import VERSION


async def test_health_says_ok_and_liveness_pass(client):
    assert (await client.get("/health")).json["status"] == "ok"
    for path in ("/healthz", "/livez", "/v1/livez"):
        answer = await client.get(path)
        assert (answer.status, answer.json["status"]) == (200, "pass")
        assert answer.json["uptime"].endswith("s")
        assert "message" not in answer.json


async def test_a_failed_log_fails_liveness_with_the_reason(client, broker, monkeypatch):
    monkeypatch.setattr(broker.node, "alive", lambda: "fsync failed")

    answer = await client.get("/livez")

    assert (answer.status, answer.json["status"]) == (503, "fail")
    assert answer.json["message"] == "fsync failed"


async def test_readiness_names_every_check_when_asked(
    client, broker, orders, monkeypatch, eventually
):
    published = await client.post(f"/topics/{orders}/messages", json={"messages": [{"value": "v"}]})
    assert published.status == 200
    await eventually(lambda: sum(t.size_bytes for t in broker.node.stats().topics.values()))
    plain = await client.get("/readyz")
    for query in ("verbose=true", "verbose", "verbose=1"):
        verbose = await client.get(f"/readyz?{query}")
        assert verbose.json["checks"]["storage"]["status"] == "pass"
        told = verbose.json["broker"]
        assert (told["node_id"], told["topic_count"]) == ("node-1", 1)
        assert told["total_size"] > 0
    checks = {"replay": Check("fail", "catching up"), "storage": Check("pass")}
    monkeypatch.setattr(broker.node, "ready", lambda: Readiness(False, checks))
    unready = await client.get("/readyz")

    assert plain.status == 200
    assert not {"checks", "broker"} & set(plain.json)
    assert (await client.get("/readyz?verbose=false")).json.get("checks") is None
    assert (unready.status, unready.json["status"]) == (503, "fail")
    assert "catching up" in unready.json["message"]


async def test_a_stopping_front_is_not_ready_but_alive(client, front):
    front.begin_stop()

    assert (await client.get("/readyz")).status == 503
    assert (await client.get("/livez")).status == 200


async def test_version_and_stats(client, broker, orders, eventually):
    await client.post("/topics/orders/messages", {"messages": [{"value": "v"}] * 3})
    # Sizes are of segments, which have it a moment later.
    await eventually(lambda: sum(t.size_bytes for t in broker.node.stats().topics.values()))

    version = (await client.get("/version")).json
    stats = (await client.get("/stats")).json

    assert version["version"] == VERSION.version
    assert version["go_version"].startswith("python3.")
    assert stats["node_id"] == "node-1"
    assert stats["topics"] == 1
    assert stats["topic_list"] == ["orders"]
    assert stats["topic_stats"]["orders"]["TotalMessages"] == 3
    assert stats["total_size_bytes"] == stats["topic_stats"]["orders"]["TotalSize"] > 0


async def test_the_cluster_is_shown_in_our_shape_and_in_goqueues(client, orders):
    info = (await client.get("/cluster")).json
    nodes = (await client.get("/cluster/nodes")).json["nodes"]
    health = (await client.get("/cluster/health")).json
    state = (await client.get("/cluster/state")).json["cluster_state"]

    assert info["controller"] == "node-1"
    assert info["partitions"] == 3
    assert [(node["id"], node["role"], node["leaders"]) for node in nodes] == [
        ("node-1", "controller", 3)
    ]
    assert (health["status"], health["has_quorum"]) == ("healthy", True)
    assert state["controller_id"] == "node-1"
    assert state["nodes"]["node-1"]["role"] == "controller"


async def test_a_named_producer_keeps_its_id_and_is_fenced_by_the_next_epoch(client):
    first = (await client.post("/producers/init", {"transactional_id": "p"})).json
    second = (await client.post("/producers/init", {"transactional_id": "p"})).json
    other = (await client.post("/producers/init", {"transactional_id": None})).json
    empty = (await client.post("/producers/init")).json

    assert second["producer_id"] == first["producer_id"]
    assert second["epoch"] == first["epoch"] + 1
    assert len({first["producer_id"], other["producer_id"], empty["producer_id"]}) == 3

    beat = f"/producers/{first['producer_id']}/heartbeat"
    alive = await client.post(beat, {"epoch": second["epoch"], "transactional_id": "p"})
    fenced = await client.post(beat, {"epoch": first["epoch"]})
    unknown = await client.post("/producers/999/heartbeat", {"epoch": 0})
    bad = await client.post("/producers/x/heartbeat", {"epoch": 0})

    assert alive.json == {"status": "ok", "success": True}
    assert (fenced.status, fenced.json["code"]) == (409, "producer_fenced")
    assert unknown.status == 404
    assert bad.status == 400


async def test_metrics_are_told_the_template_never_the_name(broker):
    class Recorder:
        def __init__(self):
            self.seen, self.traces, self.accepts = [], [], []

        def observe(self, method, route, status, seconds, trace_id=""):
            assert seconds >= 0
            self.seen.append((method, route, status))
            self.traces.append(trace_id)

        async def look(self, accept=""):
            self.accepts.append(accept)
            return b"goqueue_up 1\n", "text/plain; version=0.0.4; charset=utf-8"

    metrics = Recorder()
    front = HttpFront(broker, port=0, observers=Observers(metrics=metrics))
    await front.start()
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{front.port}") as session:
            await session.get("/topics/secret")
            recorded = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
            await session.get("/nope/secret", headers=recorded)
            shown = await session.get("/metrics", headers={"Accept": "text/plain;version=0.0.4"})
            assert await shown.read() == b"goqueue_up 1\n"
            assert shown.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    finally:
        await front.stop()

    assert metrics.seen == [
        ("GET", "/topics/{topic}", 404),
        ("GET", "unmatched", 404),
        ("GET", "/metrics", 200),
    ]
    assert metrics.traces == ["", "a" * 32, ""]
    assert metrics.accepts == ["text/plain;version=0.0.4"]


async def test_a_taken_port_is_an_error_at_start(broker):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        front = HttpFront(broker, port=taken.getsockname()[1])

        with pytest.raises(OSError):
            await front.start()

        await front.stop()


async def test_stop_lets_a_request_in_progress_finish_and_may_be_repeated(broker, orders):
    front = HttpFront(broker, port=0)
    await front.start()
    url = f"http://127.0.0.1:{front.port}/topics/orders/messages"
    append, begun, released = broker.records.append, asyncio.Event(), asyncio.Event()

    async def slow(*arguments, **options):
        begun.set()
        await released.wait()
        return await append(*arguments, **options)

    broker.records.append = slow
    async with aiohttp.ClientSession() as session:
        publishing = asyncio.ensure_future(session.post(url, json={"value": "v"}))
        await begun.wait()
        stopping = asyncio.ensure_future(front.stop())
        await asyncio.sleep(0)
        released.set()

        assert (await publishing).status == 200
        await asyncio.wait_for(stopping, 30)
        await front.stop()
        with pytest.raises(aiohttp.ClientError):
            await session.get(url)


async def test_cluster_health_tells_degraded_from_unavailable(client, broker, monkeypatch):
    import dataclasses

    whole = broker.node.cluster_view()
    for change, status in (
        ({"under_replicated": 1}, "degraded"),
        ({"problems": ("n3 was wiped",)}, "degraded"),
        ({"leaderless": 1}, "unavailable"),
        ({"has_quorum": False}, "unavailable"),
    ):
        view = dataclasses.replace(whole, **change)
        monkeypatch.setattr(broker.node, "cluster_view", lambda view=view: view)
        assert (await client.get("/cluster/health")).json["status"] == status


async def test_errors_of_the_broker_keep_their_data(client, broker, orders, monkeypatch):
    async def refuse(name):
        raise NoQuorum("1 of 3 nodes", alive=["node-1"])

    monkeypatch.setattr(broker.topics, "delete_topic", refuse)

    answer = await client("DELETE", "/topics/orders")

    assert answer.status == 503
    assert answer.json["alive"] == ["node-1"]
    assert answer.json["error"] == "1 of 3 nodes"
