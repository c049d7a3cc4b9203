"""A wait ends with its client: work for a reader that hung up is cancelled, and errors arrive."""

from __future__ import annotations

import asyncio

from goqueue.wire.errors import NoQuorum


async def test_a_read_that_waits_ends_when_its_client_hangs_up(front, broker, orders, eventually):
    seen, read = [], broker.read

    async def watched(*arguments, wait_s, **options):
        if not wait_s:
            return await read(*arguments, wait_s=wait_s, **options)
        seen.append("waits")
        try:
            return await read(*arguments, wait_s=wait_s, **options)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    broker.read = watched
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

    broker.receive = receive
    answer = await client.post("/groups/workers/receive", {"topic": "orders", "wait": "60s"})

    assert (answer.status, answer.json["code"]) == (503, "no_quorum")


async def test_work_that_will_not_be_cancelled_holds_nobody_for_ever(
    front, broker, orders, eventually, monkeypatch
):
    monkeypatch.setattr("node.http.long_poll.WITHDRAW_S", 0.05)
    begun, release = asyncio.Event(), asyncio.Event()

    async def receive(*_, **__):
        begun.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return []

    broker.receive = receive
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
