"""Tails: every message once, from where it was asked for, for as long as one reads."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp
import pytest

from goqueue.wire.batch import encode_columns
from goqueue.wire.errors import NoQuorum
from goqueue.wire.types import Offset
from node.http.auth.authenticator import Authenticator
from node.http.budget.memory import Bounds, Budgets, Kind, Owner
from node.http.server.app import Entrance, HttpFront, Observers
from node.http.tail.followers import OWNER
from node.metrics import Metrics
from tests.unit.node.http.tail.events import tailing

TAIL = "/topics/orders/tail"


@pytest.fixture
def reads(broker):
    """(partition, offset) of each read that a front asks for."""
    found, read = [], broker.records.read

    async def watched(topic, partition, offset, **more):
        found.append((partition, int(offset)))
        return await read(topic, partition, offset, **more)

    broker.records.read = watched
    return found


async def test_a_tail_begins_at_the_end_and_tells_each_message_with_its_place(front, put):
    await put(b"before")

    async with tailing(front) as reader:
        assert reader.answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert reader.answer.headers["Cache-Control"] == "no-store"
        assert reader.last_id == "0:1,1:0,2:0"
        await put(b"\xff", keys=[b"k"], headers=[(("h", b"x"),)])
        await put(b"line\nend", partition=2)

        first, second = await reader.next(), await reader.next()

    if first.data["partition"] == 2:
        first, second = second, first
    assert {"offset": 1, "partition": 0, "value": "/w==", "value_encoding": "base64"}.items() <= (
        first.data.items()
    )
    assert (first.data["key"], first.data["headers"]) == ("k", {"h": "x"})
    assert (second.data["value"], second.data["offset"]) == ("line\nend", 0)
    assert reader.last_id == "0:2,1:0,2:1"


BEGINNINGS = (
    ("offset=earliest", {"a", "b", "c", "z"}),
    ("offset=earliest&partition=2", {"z"}),
    ("offset=1&partition=0", {"b", "c"}),
    ("offsets=0:2", {"c"}),
    ("offsets=0:2&offset=earliest", {"c", "z"}),
    ("partition=1&offset=earliest", set()),
    ("offset=latest", set()),
)


async def test_a_tail_begins_where_it_is_asked_to(client, put):
    await put(b"a")
    await put(b"b", b"c")
    await put(b"z", partition=2)

    for query, values in BEGINNINGS:
        answer = await client.get(f"{TAIL}?{query}&wait=1ms")

        text = answer.body.decode()
        assert {value for value in "abcz" if f'"value":"{value}"' in text} == values, query
        assert '"code":"waited"' in text


async def test_a_tail_begins_at_a_time(client, put, clock):
    for value in (b"a", b"b", b"c"):
        await put(value)
        clock.now_ms += 1000

    answer = await client.get(f"{TAIL}?from_time={clock.now_ms - 2000}&wait=1ms")

    assert b'"a"' not in answer.body
    assert answer.body.index(b'"b"') < answer.body.index(b'"c"')


async def test_whoever_sends_the_last_id_goes_on_behind_it_and_misses_nothing(front, put, broker):
    seen, last_id = [], ""
    for round in range(4):
        await put(*(b"%d-%d" % (round, n) for n in range(5)))
        await put(b"%d-other" % round, partition=1)
        headers = {"Last-Event-ID": last_id} if last_id else {}
        async with tailing(front, "offset=earliest", headers) as reader:
            seen += await reader.values(4)
            last_id = reader.last_id
    async with tailing(front, "", {"Last-Event-ID": last_id}) as reader:
        seen += await reader.values(24 - len(seen))
        await put(b"new", partition=2)
        assert await reader.values(1) == ["new"]

    assert len(seen) == len(set(seen)) == 24
    mine = [value for value in seen if value.endswith(tuple("01234"))]
    assert mine == [f"{round}-{n}" for round in range(4) for n in range(5)]


async def test_an_id_of_no_message_says_where_the_tail_began(front, put):
    async with tailing(front) as reader:
        began = reader.last_id
    await put(b"meanwhile")

    async with tailing(front, "", {"Last-Event-ID": began}) as reader:
        assert await reader.values(1) == ["meanwhile"]


async def test_a_batch_is_cut_within_and_goes_on_within(front, put):
    await put(*(b"%d" % n for n in range(30)), partition=1)

    async with tailing(front, "partition=1&offset=7") as reader:
        assert await reader.values(3) == ["7", "8", "9"]
        resumed = {"Last-Event-ID": reader.last_id}
    async with tailing(front, "partition=1", resumed) as reader:
        assert reader.last_id == "1:10"
        assert await reader.values(20) == [str(n) for n in range(10, 30)]


FILTERS = (
    ("key=k", ["a", "d"]),
    ("key=/w==&key_encoding=base64", ["b"]),
    ("header=h:x", ["a", "c"]),
    ("header=h:x&header=g:y", ["c"]),
    ("key=k&header=h:x", ["a"]),
    ("key=none", []),
)


async def test_filters_let_pass_what_has_the_key_and_all_headers(client, put):
    x, y = ("h", b"x"), ("g", b"y")
    columns = {"keys": [b"k", b"\xff", None, b"k"], "headers": [(x,), (), (x, y), ()]}
    await put(b"a", b"b", b"c", b"d", **columns)

    for query, values in FILTERS:
        answer = await client.get(f"{TAIL}?{query}&offset=earliest&wait=1ms")

        text = answer.body.decode()
        assert [value for value in "abcd" if f'"value":"{value}"' in text] == values, query


REFUSED = (
    ("offset=-1", {}, 400, "bad_request"),
    ("offset=7", {}, 400, "bad_request"),
    ("offset=7&partition=0", {}, 400, "offset_out_of_range"),
    ("offset=99999999999999999999&partition=0", {}, 400, "bad_request"),
    ("partition=x", {}, 400, "bad_request"),
    ("partition=3", {}, 404, "unknown_partition"),
    ("offsets=0", {}, 400, "bad_request"),
    ("offsets=9:0", {}, 404, "unknown_partition"),
    ("from_time=later", {}, 400, "bad_request"),
    ("header=h", {}, 400, "bad_request"),
    ("key=a&key_encoding=rot13", {}, 400, "bad_message"),
    ("wait=long", {}, 400, "bad_request"),
    ("", {"Last-Event-ID": "0:1:2"}, 400, "bad_request"),
    ("", {"Last-Event-ID": "0:12"}, 400, "offset_out_of_range"),
    ("partition=1", {"Last-Event-ID": "0:0"}, 400, "bad_request"),
)


async def test_what_is_no_place_is_refused_before_anything_is_sent(client, orders):
    for query, headers, status, code in REFUSED:
        answer = await client.get(f"{TAIL}?{query}", headers=headers)

        assert (answer.status, answer.json["code"]) == (status, code), answer.body


async def test_topics_that_are_not_there_and_dead_letters_have_no_tail(client, orders):
    assert (await client.get("/topics/none/tail")).status == 404
    assert (await client.get("/topics/orders.dlq/tail")).status in (400, 404)
    assert (await client("HEAD", TAIL)).body == b""


async def test_a_topic_of_too_many_partitions_is_tailed_one_by_one(client, orders, monkeypatch):
    monkeypatch.setattr("node.http.tail.places.PLACES_MAX", 2)

    refused = await client.get(TAIL)

    assert refused.status == 400 and "name one partition" in refused.json["error"]
    assert (await client.get(f"{TAIL}?partition=2&wait=1ms")).status == 200


async def test_ten_tails_cost_one_read(front, put, reads, eventually):
    async with asyncio.TaskGroup() as tasks:

        async def follow():
            async with tailing(front, "partition=0") as reader:
                begun.append(reader)
                found.append(await reader.values(60))

        begun, found = [], []
        for _ in range(10):
            tasks.create_task(follow())
        await eventually(lambda: len(begun) == 10)
        await eventually(lambda: reads)
        for n in range(20):
            await put(*(b"%d" % (3 * n + k) for k in range(3)))

    assert found == [[str(n) for n in range(60)]] * 10
    assert len(reads) == len(set(reads)), "one read of each place, whoever wants it"
    await eventually(lambda: len(front._tails.followers) == 0)


async def test_a_tail_that_is_left_leaves_nothing_behind(front, put, eventually):
    budgets = front.budgets
    async with tailing(front, "offset=earliest") as reader:
        await put(b"a")
        await reader.values(1)
        assert budgets[Kind.POLLS].used > 0
        assert len(front._tails.followers) == 3

    await eventually(lambda: not len(front._tails.followers))
    await eventually(lambda: not budgets[Kind.POLLS].used and not budgets[Kind.ANSWERS].used)
    await eventually(lambda: front.connections == 0)


async def test_a_slow_reader_holds_little_and_stops_only_itself(
    front, put, monkeypatch, reads, eventually
):
    monkeypatch.setattr("node.http.tail.followers.WINDOW_BYTES", 1 << 16)
    slow, writer = await asyncio.open_connection("127.0.0.1", front.port, limit=1 << 16)
    writer.write(b"GET /topics/orders/tail?partition=0 HTTP/1.1\r\nHost: x\r\n\r\n")
    await slow.readuntil(b"id: 0:0\n")
    async with tailing(front, "partition=0") as reader:
        for n in range(40):
            await put(b"%03d" % n + b"x" * 200_000)
            assert (await reader.values(1))[0][:3] == f"{n:03}"

        held = front.budgets[Kind.ANSWERS].used

        assert held < 4 << 20, "of 8 MB that the slow one has not taken"
        text, shared = b"", len(reads)
        while b"039xxxx" not in text:
            text = text[-100:] + await slow.read(1 << 20)
        assert len(reads) > shared, "it has read by itself what the others had"
    writer.close()
    await eventually(lambda: not front.budgets[Kind.ANSWERS].used)


async def test_metrics_and_the_audit_tell_of_tails(broker, put):
    metrics, seen = Metrics(), []
    front = HttpFront(broker, port=0, observers=Observers(metrics, on_access=seen.append))
    await front.start()
    await put(b"a")
    async with tailing(front, "offset=earliest") as reader:
        await reader.values(1)
        await put(b"b", b"c")
        await reader.values(2)
        told = (await metrics.look())[0].decode()
    await front.stop()

    assert "goqueue_tails_open 1" in told
    assert 'goqueue_tail_messages_total{topic="orders"} 3' in told
    assert 'goqueue_tail_reads_total{reader="own"}' in told
    assert 'goqueue_tail_reads_total{reader="shared"}' in told
    assert 'route="/topics/{topic}/tail",status="200"' in told
    assert [(one.operation, one.status) for one in seen] == [("tailTopic", 200)]


async def test_long_messages_are_told_whole(front, put):
    long, longer = "é\n" * 60_000, "x" * 300_000

    async with tailing(front, "partition=0") as reader:
        await put(long.encode(), longer.encode(), b"short")
        found = await reader.values(3)

    assert found == [long, longer, "short"]


async def test_a_silent_tail_shows_that_it_lives_and_how_far_it_has_read(front, put, clock):
    async with tailing(front, "key=wanted") as reader:
        clock.now_ms += 10_100
        assert (await reader.next()).comment == "keep-alive"
        await put(b"a", b"b")
        while not reader.last_id.startswith("0:2"):
            clock.now_ms += 10_100
            told = await reader.next()

    assert (told.comment, told.id, told.data) == ("keep-alive", "0:2,1:0,2:0", None)


async def test_a_tail_ends_when_nothing_came_for_as_long_as_was_asked(front, put, clock):
    async with tailing(front, "partition=0&wait=30s") as reader:
        clock.now_ms += 29_000
        await put(b"late")
        assert await reader.values(1) == ["late"]
        clock.now_ms += 29_000
        await put(b"later")
        assert await reader.values(1) == ["later"]
        clock.now_ms += 30_100

        end = await reader.end()

    assert (end["code"], end["reconnect"]) == ("waited", False)


async def test_a_front_that_stops_tells_tails_to_go_elsewhere(front, put):
    async with tailing(front) as reader:
        await put(b"last")
        await reader.values(1)
        front.begin_stop()

        end = await reader.end()

    assert (end["code"], end["reconnect"]) == ("stopping", True)


async def test_a_topic_that_is_deleted_ends_its_tails(front, put, broker):
    async with tailing(front) as reader:
        await put(b"last")
        await reader.values(1)
        await broker.topics.delete_topic("orders")

        end = await reader.end()

    assert (end["code"], end["reconnect"]) == ("unknown_topic", False)


async def test_partitions_that_come_are_tailed_from_their_beginning(front, put, broker, clock):
    async with tailing(front) as reader:
        await broker.placement.add_partitions("orders", 4, [])
        await put(b"first of it", partition=3)
        clock.now_ms += 10_100

        assert await reader.values(1) == ["first of it"]
        assert reader.last_id == "0:0,1:0,2:0,3:1"


async def test_an_outage_is_waited_out_and_told(front, put, broker, clock):
    read, is_down = broker.records.read, [True]

    async def failing(*place, **more):
        if is_down[0]:
            raise NoQuorum("no majority of orders:0 answers")
        return await read(*place, **more)

    await put(b"a")
    broker.records.read = failing
    async with tailing(front, "partition=0&offset=earliest") as reader:
        clock.now_ms += 10_100
        assert (await reader.next()).comment == "no majority of orders:0 answers"
        is_down[0] = False
        clock.now_ms += 1_000

        assert await reader.values(1) == ["a"]
        is_down[0] = True


async def test_messages_that_were_deleted_before_they_were_sent_are_told_of(front, put, broker):
    await put(b"a", b"b")
    await put(b"c")
    read = broker.records.read

    async def trimmed(topic, partition, offset, **more):
        found = await read(topic, partition, Offset(max(2, offset)), **more)
        return replace(found, log_start=Offset(2))

    broker.records.read = trimmed
    async with tailing(front, "partition=0", {"Last-Event-ID": "0:1"}) as reader:
        told = await reader.next()
        assert (told.event, told.data) == ("skipped", {"partition": 0, "offset": 1, "log_start": 2})
        assert await reader.values(1) == ["c"]
    async with tailing(front, "partition=0&offset=earliest") as reader:
        assert await reader.values(1) == ["c"]


async def test_a_key_that_is_revoked_ends_its_tails(broker, keys, clock, put, limits):
    secret = (
        await keys.create_key("k", name="", role="readonly", prefixes=("",), expires_ms=0)
    ).secret
    locked = HttpFront(
        broker, port=0, limits=limits, entrance=Entrance(authenticator=Authenticator(keys.checks))
    )
    await locked.start()
    headers = {"Authorization": f"Bearer {secret}"}
    async with aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{locked.port}{TAIL}")
        assert answer.status == 401
    async with tailing(locked, "", headers) as reader:
        await put(b"a")
        await reader.values(1)
        clock.now_ms += 10_100
        await reader.next()
        await keys.revoke_key("k")
        clock.now_ms += 10_100

        end = await reader.end()

    assert (end["code"], end["reconnect"]) == ("unauthenticated", False)
    await locked.stop()


async def test_a_tail_without_room_is_refused(broker, put):
    tight = Budgets({Kind.POLLS: Bounds(1 << 20, 4096, 4096, 0, 4096)})
    front = HttpFront(broker, port=0, budgets=tight)
    await front.start()
    async with aiohttp.ClientSession() as session:
        answer = await session.get(f"http://127.0.0.1:{front.port}{TAIL}")
        assert (answer.status, (await answer.json())["code"]) == (429, "over_budget")
    await front.stop()


async def test_without_room_for_a_window_each_reads_for_itself(front, put, reads):
    others = front.budgets.hold(Kind.ANSWERS, Owner(OWNER, "others"), (64 << 20) - 1000)
    async with tailing(front, "partition=0") as one, tailing(front, "partition=0") as other:
        await put(b"x" * 10_000)
        await put(b"small")
        found = [await reader.values(2) for reader in (one, other)]

    assert [[len(value) for value in values] for values in found] == [[10_000, 5]] * 2
    assert len(reads) > len(set(reads))
    others.release()


async def test_batches_of_many_rows_come_whole_and_in_order(front, broker, orders, monkeypatch):
    monkeypatch.setattr("node.http.tail.lines.ROWS_MAX", 500)
    for first in range(0, 3_000, 1_500):
        values = [b"%d" % n for n in range(first, first + 1_500)]
        await broker.records.append("orders", 0, encode_columns(values), deadline_s=30)

    async with tailing(front, "partition=0&offset=earliest") as reader:
        assert await reader.values(3_000) == [str(n) for n in range(3_000)]
