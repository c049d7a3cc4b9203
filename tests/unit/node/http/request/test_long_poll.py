"""A wait ends with its client: work for a reader that hung up is cancelled, and errors arrive."""

from __future__ import annotations

import asyncio

from goqueue.wire.errors import NoQuorum
from node.http.budget.memory import Bounds, Kind
from node.http.request.long_poll import WAIT_BYTES

READ = "/topics/orders/partitions/0/messages"


async def test_a_read_that_waits_ends_when_its_client_hangs_up(front, broker, orders, eventually):
    seen, read = [], broker.records.read

    async def watched(*arguments, wait_s, **options):
        if not wait_s:
            return await read(*arguments, wait_s=wait_s, **options)
        seen.append("waits")
        try:
            return await read(*arguments, wait_s=wait_s, **options)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    broker.records.read = watched
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    writer.write(b"GET /topics/orders/partitions/0/messages?wait=60s HTTP/1.1\r\nHost: x\r\n\r\n")
    await eventually(lambda: seen == ["waits"])

    writer.close()

    await eventually(lambda: seen == ["waits", "cancelled"])
    await eventually(lambda: front.connections == 0)


async def test_an_error_of_a_wait_is_its_answer(client, broker, orders):
    async def receive(*_, **__):
        await asyncio.sleep(0)
        raise NoQuorum

    broker.queue.receive = receive
    answer = await client.post("/groups/workers/receive", {"topic": "orders", "wait": "60s"})

    assert (answer.status, answer.json["code"]) == (503, "no_quorum")


async def test_work_that_will_not_be_cancelled_holds_nobody_for_ever(
    front, broker, orders, eventually, monkeypatch
):
    monkeypatch.setattr("node.http.request.long_poll.WITHDRAW_S", 0.05)
    begun, release = asyncio.Event(), asyncio.Event()

    async def receive(*_, **__):
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return []

    broker.queue.receive = receive
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    body = b'{"topic":"orders","wait":"60s"}'
    writer.write(
        b"POST /groups/workers/receive HTTP/1.1\r\nHost: x\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    await begun.wait()

    writer.close()

    await eventually(lambda: front.connections == 0)
    release.set()


async def test_waits_are_charged_and_one_too_many_is_refused(front, client, orders, eventually):
    polls = front.budgets[Kind.POLLS]
    polls.bounds = Bounds(10 * WAIT_BYTES, 3 * WAIT_BYTES, WAIT_BYTES, 0, 0)
    waiting = []
    for _ in range(3):
        _, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(f"GET {READ}?wait=60s HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        waiting.append(writer)
    await eventually(lambda: polls.used == 3 * WAIT_BYTES)

    read = await client.get(f"{READ}?wait=60s")
    receive = await client.post("/groups/workers/receive", {"topic": "orders", "wait": "60s"})

    for refused in (read, receive):
        assert (refused.status, refused.json["kind"]) == (429, "polls")
        assert refused.json["bound"] == "holder"
    assert (await client.get(READ)).status == 200, "it does not wait"
    for writer in waiting:
        writer.close()
    await eventually(lambda: polls.used == 0)


async def test_a_member_that_finds_no_room_to_wait_is_alive_all_the_same(front, client, orders):
    joined = await client.post("/groups/workers/join", {"topics": ["orders"], "client_id": "c"})
    front.budgets[Kind.POLLS].bounds = Bounds(0, 0, 0, 0, 0)
    sign = {"member_id": joined.json["member_id"], "revision": joined.json["revision"]}

    beat = await client.post("/groups/workers/heartbeat", {**sign, "wait": "60s"})

    assert beat.status == 200
    assert beat.json["status"] == "ok"
