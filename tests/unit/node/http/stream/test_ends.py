"""How clients come in to streams, and how streams end: in order, lost, moved, refused."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from unittest.mock import Mock

import aiohttp
import pytest

from coordinator.brokers.registry import DRAINING
from goqueue.wire.errors import NotFound
from node.api.spans import Work
from node.http.auth.authenticator import Authenticator
from node.http.auth.csrf_guard import CsrfGuard
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Bounds, Budgets, Kind
from node.http.connections.probes import probe
from node.http.server.app import Entrance, HttpFront, Observers
from node.metrics import Metrics
from tests.one_node import cluster_of
from tests.one_node import eventually as holds
from tests.unit.node.http.stream.talk import answered, passed, talking

STREAM = "/v1/groups/workers/stream"
ASKED = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture(autouse=True)
async def level(request, broker):
    if "below_its_level" not in request.node.name:
        await broker.upgrade.finish_level()


@pytest.fixture
def idle(front):
    """Waits until no stream is left, and nothing is charged for any."""

    async def wait():
        await holds(lambda: not len(front._streams))
        await holds(lambda: not any(front.budgets[kind].used for kind in Kind))

    return wait


# -- coming in


async def test_without_an_upgrade_it_is_told_how_to_ask(client, orders):
    for headers in (
        {},
        {**ASKED, "Sec-WebSocket-Version": "1"},
        {**ASKED, "Sec-WebSocket-Key": "x"},
        {**ASKED, "Upgrade": "h2c"},
    ):
        answer = await client.get(STREAM, headers=headers)
        assert (answer.status, answer.json["code"]) == (426, "upgrade_required"), headers
        assert answer.headers["Upgrade"] == "websocket"
    assert (await client("HEAD", STREAM, headers=ASKED)).status == 426
    answer = await client.get(STREAM, headers={**ASKED, "Sec-WebSocket-Protocol": "mqtt"})
    assert (answer.status, "goqueue.stream" in answer.json["error"]) == (400, True)
    assert (await client.get("/v1/groups/-bad/stream", headers=ASKED)).status == 400


async def test_the_answer_has_what_every_answer_has(front, orders):
    async with talking(front, protocols=("goqueue.stream",)) as talker:
        headers = talker.socket._response.headers
        assert headers["Server"] == "goqueue" and headers["X-Request-ID"]
        assert talker.socket.protocol == "goqueue.stream"
        assert not talker.socket.compress, "it asked for compression, and gets none"


async def test_below_its_level_a_stream_is_refused_in_http(client, orders):
    answer = await client.get(STREAM, headers=ASKED)

    assert (answer.status, answer.json["code"]) == (409, "level_not_finished")


async def test_pages_of_other_sites_may_not_open_streams(broker):
    front = HttpFront(
        broker, port=0, entrance=Entrance(csrf_guard=CsrfGuard(None, ["https://ours.example"]))
    )
    await front.start()
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with talking(front, origin="https://evil.example"):
            pass
    assert refused.value.status == 403
    async with talking(front, origin="https://ours.example") as talker:
        await talker.subscribe(patterns=["none.*"])
    async with talking(front, origin=f"http://127.0.0.1:{front.port}") as talker:
        await talker.subscribe(patterns=["none.*"])
    await front.stop()


async def test_a_stream_without_room_is_refused_in_http(broker):
    tight = Budgets({Kind.POLLS: Bounds(1 << 20, 4096, 4096, 0, 4096)})
    front = HttpFront(broker, port=0, budgets=tight)
    await front.start()
    async with talking(front) as talker:
        await talker.subscribe(patterns=["none.*"])
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with talking(front):
                pass
        assert refused.value.status == 429
    await front.stop()


async def test_a_program_of_this_process_has_no_connection_to_be_pushed_on(front):
    answer = await front.ask("GET", STREAM, ASKED)

    assert (answer.status, b"by a socket" in answer.body) == (400, True)


async def test_metrics_spans_and_the_audit_tell_of_streams(broker, put):
    metrics, seen, spans = Metrics(), [], Spans()
    front = HttpFront(broker, port=0, observers=Observers(metrics, spans, seen.append))
    await front.start()
    await put(b"a", b"b")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        one, _ = await talker.take(2)
        await talker.settled("ack", one)
        told = (await metrics.look())[0].decode()
    await holds(lambda: not len(front._streams))
    ended = metrics.render()[0].decode()
    await front.stop()

    assert "goqueue_streams_open 1" in told
    assert 'goqueue_stream_messages_total{topic="orders"} 2' in told
    assert 'route="/groups/{group}/stream",status="101"' in told
    assert 'goqueue_streams_ended_total{how="closed"} 1' in ended
    assert "goqueue_streams_open 0" in ended
    assert [(one.operation, one.status) for one in seen] == [("streamGroup", 101)]
    assert [(work.operation, work.count, work.group) for work in spans.told] == [
        ("receive", 2, "workers"),
        ("ack", 1, "workers"),
    ]


class Spans:
    def __init__(self) -> None:
        self.told: list[Work] = []

    def tell(self, work: Work) -> None:
        self.told.append(work)


# -- ends


@pytest.mark.parametrize("code", [1000, 1001, None])
async def test_a_client_that_closes_in_order_gives_back_as_if_nothing_had_been(
    front, put, take, idle, code
):
    await put(b"a", b"b", b"c")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], credit={"messages": 2, "bytes": 1000})
        one, _ = await talker.take(2)
        await talker.settle("ack", one)
        if code is None:
            await talker.socket._writer.send_frame(b"", aiohttp.WSMsgType.CLOSE)
            assert (await talker.hear("settled"))["settled"] == 1
            assert await talker.closed() == 1000
        else:
            await talker.socket.close(code=code)

    # the close was answered: so all is given back by now
    assert [(one["value"], one["attempt"]) for one in await take()] == [("b", 1), ("c", 1)]
    await idle()


@pytest.mark.parametrize("how", ["reset", "another code", "cut off"])
async def test_a_client_that_is_lost_has_failed(front, put, take, idle, how):
    await put(b"a", b"b")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], credit={"messages": 1, "bytes": 1000})
        await talker.take(1)
        transport = talker.socket._response.connection.transport
        if how == "reset":
            transport.abort()
        elif how == "cut off":
            transport.close()
        else:
            await talker.socket.close(code=4000)
        await idle()

    found = [(one["value"], one["attempt"], one.get("last_reason")) for one in await take()]
    assert [one[:2] for one in found] == [("a", 2), ("b", 1)], "in front, one attempt more"
    assert found[0][2] == "consumer lost"


async def test_settles_that_are_on_their_way_when_a_client_is_lost_hold(front, put, take, idle):
    await put(b"a", b"b")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        one, _ = await talker.take(2)
        await talker.settle("ack", one)
        await asyncio.sleep(0)
        talker.socket._response.connection.transport.abort()
        await idle()

    assert {one["value"] for one in await take()} <= {"a", "b"}


async def test_a_client_that_is_silent_is_lost_and_one_that_answers_pings_is_not(
    front, put, take, clock
):
    await put(b"a")
    async with (
        talking(front, autoping=False) as silent,
        talking(front, "others") as living,
    ):
        await silent.subscribe(topics=["orders"])
        await living.subscribe(topics=["orders"])
        await silent.take(1)
        await living.take(1)
        hearing = asyncio.ensure_future(living.next())

        await passed(clock, front, 15, silent=1)

        assert len(front._streams) == 1
        assert [one["attempt"] for one in await take()] == [2]
        await living.say("credit", messages=1, bytes=1000)
        assert not hearing.done()
        hearing.cancel()


async def test_a_client_is_pinged_after_half_of_its_silence(front, put, clock):
    await put(b"a")
    async with talking(front, autoping=False) as talker:
        await talker.subscribe(topics=["orders"])
        await talker.take(1)
        await clock.pass_ms(3_000)
        hearing = asyncio.ensure_future(talker.socket.receive(20))
        await asyncio.sleep(0.002)
        assert not hearing.done()

        await clock.pass_ms(3_000)

        assert (await hearing).type is aiohttp.WSMsgType.PING
        await clock.pass_ms(2_000)
        await talker.say("credit", messages=1, bytes=1)
        await clock.pass_ms(3_000)
        assert len(front._streams) == 1, "a frame is a sign of life"


async def test_a_client_that_holds_nothing_may_be_silent_for_longer(front, orders, idle, clock):
    async with talking(front, autoping=False) as talker:
        await talker.subscribe(topics=["orders"])
        hearing = asyncio.ensure_future(talker.socket.receive(60))
        await passed(clock, front, 16, silent=1)
        assert not hearing.done()
        await passed(clock, front, 5, silent=1)
        assert (await hearing).type is aiohttp.WSMsgType.PING
        await passed(clock, front, 13, silent=1)
        assert len(front._streams) == 1
        await passed(clock, front, 7, silent=1)
        await idle()


@pytest.mark.parametrize("before_s", [11, 13, 15, 24])
async def test_its_silence_begins_with_its_first_message(front, put, take, idle, clock, before_s):
    async with talking(front, autoping=False) as talker:
        await talker.subscribe(topics=["orders"])
        await passed(clock, front, before_s, silent=1)
        if before_s > 20:
            assert (await talker.socket.receive()).type is aiohttp.WSMsgType.PING
        await put(b"a")
        await talker.take(1)
        await passed(clock, front, 8, silent=1)
        assert len(front._streams) == 1
        await passed(clock, front, 3, silent=1)
        await idle()

    assert [one["attempt"] for one in await take()] == [2]


@pytest.mark.parametrize(
    ("silence_s", "options"), [(2, [1, 1, 2]), (10, [5, 2, 2]), (86_400, [32_767, 21_600, 2])]
)
async def test_the_kernel_asks_whether_a_clients_host_is_there(front, silence_s, options):
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        (session,) = front._streams._open
        wire = session.connection.transport.get_extra_info("socket")
        asked = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        assert [wire.getsockopt(socket.IPPROTO_TCP, one) for one in asked] == [5, 2, 2]

        probe(session.connection.transport, silence_s)

        assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert [wire.getsockopt(socket.IPPROTO_TCP, one) for one in asked] == options
    probe(None, silence_s)
    broken = Mock()
    broken.get_extra_info.return_value.family = socket.AF_INET
    broken.get_extra_info.return_value.setsockopt.side_effect = OSError(22, "gone")
    probe(broken, silence_s)


async def test_a_pong_wakes_nobody_and_bytes_that_look_like_one_are_read(front, orders):
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        (session,) = front._streams._open
        connection, pong = session.connection, b"\x8a\x80abcd"
        connection.heard_s = 0.0
        parser, connection._payload_parser = connection._payload_parser, Mock()

        connection.data_received(pong)

        assert connection.heard_s > 0
        assert not connection._payload_parser.feed_data.called
        connection._payload_parser = parser
        said = b'{"type":"settle","id":7,"settles":[]}'
        mask = bytes([pong[0] ^ said[8], pong[1] ^ said[9], 5, 6])
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(said))
        assert masked[8:10] == pong[:2]
        for part in (
            bytes([0x81, 0x80 | len(said)]) + mask + masked[:8],
            masked[8:14],
            masked[14:],
        ):
            connection.data_received(part)
        assert (await talker.hear("error"))["id"] == 7  # it settles nothing
        assert connection.frame_bytes == 0


async def test_a_client_that_takes_its_answer_slowly_lives(front, put):
    async with talking(front, autoping=False) as talker:
        await talker.subscribe(topics=["orders"])
        theirs = talker.socket._response.connection.transport
        theirs.pause_reading()
        (session,) = front._streams._open
        connection = session.connection
        for transport, option in (
            (theirs, socket.SO_RCVBUF),
            (connection.transport, socket.SO_SNDBUF),
        ):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 4096)
        await put(b"x" * 900_000)
        await holds(lambda: connection.writing_paused)
        connection.heard_s, connection.stalled_since_s = 0.0, 1.0
        session._unsent_bytes = connection.unsent_bytes + 1

        assert not session.look(100.0, 10.0)

        assert (connection.heard_s, connection.stalled_since_s) == (100.0, 0.0)
        assert session._end is None
        connection.heard_s = session._outstanding.since_s = 80.0
        assert not session.look(100.0, 10.0)
        assert session._end is not None, "it has taken nothing since"


async def test_pings_of_clients_are_answered(front, orders):
    async with talking(front, autoping=False) as talker:
        await talker.subscribe(topics=["orders"])
        await talker.socket.ping(b"are you there?")

        answer = await talker.socket.receive(20)

        assert (answer.type, bytes(answer.data)) == (aiohttp.WSMsgType.PONG, b"are you there?")


async def test_a_front_that_stops_says_where_to_go_and_gives_back(front, put, client):
    await put(b"a")
    async with talking(front) as talker, talking(front, "others") as other:
        await talker.subscribe(topics=["orders"])
        await talker.take(1)
        front.begin_stop()

        assert await talker.hear("moved") == {"type": "moved", "nodes": []}
        assert await talker.closed() == 1012
        assert await other.hear("moved")
        assert await other.closed() == 1012
        answer = await client.get(STREAM, headers=ASKED)
        assert (answer.status, answer.json["code"]) == (503, "unavailable")
    answer = await client.post("/groups/workers/receive", {"topic": "orders"})
    assert [one["attempt"] for one in answer.json["messages"]] == [1]


async def test_a_node_that_is_drained_moves_its_streams_once(front, put, client, clock, broker):
    await put(b"a")
    brokers = cluster_of(broker).state.brokers
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        await talker.take(1)
        brokers["node-1"] = replace(brokers["node-1"], state=DRAINING)
        await clock.pass_ms(1100)

        assert await talker.hear("moved") == {"type": "moved", "nodes": []}
        assert await talker.closed() == 1012
    async with talking(front) as talker:  # there is no other node
        await talker.subscribe(topics=["orders"])
        assert [one["attempt"] for one in await talker.take(1)] == [1]
        await clock.pass_ms(2100)
        assert await talker.quiet()


async def test_the_end_of_a_key_ends_its_streams(broker, keys, clock, put):
    key = await keys.create_key("k", name="", role="consumer", prefixes=("",), expires_ms=0)
    locked = HttpFront(broker, port=0, entrance=Entrance(authenticator=Authenticator(keys.checks)))
    await locked.start()
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with talking(locked):
            pass
    assert refused.value.status == 401
    async with talking(locked, headers={"Authorization": f"Bearer {key.secret}"}) as talker:
        await talker.subscribe(topics=["orders"])
        hearing = asyncio.ensure_future(talker.hear("error"))
        await passed(clock, locked, 11)
        assert not hearing.done()
        await keys.revoke_key("k")
        while not hearing.done():
            await clock.pass_ms(500)
            await answered(locked)

        assert (await hearing)["code"] == "unauthenticated"
        assert await talker.closed() == 1008
    await locked.stop()


async def test_a_key_reaches_its_topics_and_groups_only(broker, keys, put):
    await put(b"a")
    key = await keys.create_key("k", name="", role="consumer", prefixes=("team.",), expires_ms=0)
    locked = HttpFront(broker, port=0, entrance=Entrance(authenticator=Authenticator(keys.checks)))
    await locked.start()
    headers = {"X-API-Key": key.secret}
    async with talking(locked, "team.workers", headers=headers) as talker:
        await talker.subscribe(topics=["orders"])
        assert (await talker.hear("error"))["code"] == "forbidden"
        assert await talker.closed() == 1008
    async with talking(locked, "team.workers", headers=headers) as talker:
        await talker.subscribe(patterns=["*"])
        assert await talker.quiet()
    await locked.stop()


async def test_a_topic_that_is_deleted_ends_its_streams(front, put, broker):
    await put(b"a")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        (one,) = await talker.take(1)
        await talker.settled("ack", one)
        await broker.topics.delete_topic("orders")

        told = await talker.hear("error")

        assert told["code"] == "unknown_topic" and await talker.closed() == 1008


async def test_a_fault_of_the_node_ends_the_stream_as_one(front, put, monkeypatch, take):
    def broken(*_):
        raise RuntimeError("a fault")

    await put(b"a")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        await talker.take(1)
        monkeypatch.setattr("node.http.stream.session.said", broken)
        await talker.say("credit", messages=1, bytes=1)

        assert (await talker.hear("error"))["code"] == "internal"
        assert await talker.closed() == 1011
    assert [one["attempt"] for one in await take()] == [1]


async def test_settles_without_room_are_refused_in_their_turn(front, put, monkeypatch):
    await put(b"a")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        (one,) = await talker.take(1)
        monkeypatch.setattr(front.budgets[Kind.BODIES], "bounds", Bounds(1, 1, 1, 0, 0))

        told = await talker.settled("ack", one)

        assert (told["settled"], told["results"][0]["code"]) == (0, "over_budget")


async def test_frames_that_pile_up_are_charged_and_end_the_stream(front, put, monkeypatch):
    monkeypatch.setattr(front.budgets[Kind.BODIES], "bounds", Bounds(1 << 20, 9000, 9000, 0, 9000))
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])

        await talker.socket.send_str('{"type":"credit",' + " " * 20_000)

        assert (await talker.hear("error"))["code"] == "over_budget"
        assert await talker.closed() == 1008


async def test_a_group_that_is_not_there_is_made(front, orders, broker):
    with pytest.raises(NotFound):
        await broker.groups.group("fresh")
    async with talking(front, "fresh"):
        assert (await broker.groups.group("fresh")).name == "fresh"


async def test_a_client_that_goes_before_it_is_let_in_leaves_nothing(front, orders, idle):
    for _ in range(3):
        _, writer = await asyncio.open_connection("127.0.0.1", front.port)
        head = "".join(f"{name}: {value}\r\n" for name, value in ASKED.items())
        writer.write(f"GET {STREAM} HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())
        writer.transport.abort()
    await asyncio.sleep(0.01)
    await idle()


def test_silence_is_longer_than_a_look():
    assert HttpLimits().stream_silence_s == 10.0
