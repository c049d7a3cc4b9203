"""Streams over a real WebSocket, to a real broker: delivered by credit, settled in order, ended."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from goqueue.wire.batch import RecordBatch, encode_columns
from goqueue.wire.errors import TooManyInFlight
from node.api.claims import NOBODY
from node.api.queue import SettleRequest
from node.http.budget.memory import Kind
from tests.one_node import eventually
from tests.unit.node.http.stream.talk import talking


@pytest.fixture(autouse=True)
async def level(broker):
    await broker.upgrade.finish_level()


async def pass_s(clock, seconds: int) -> None:
    """With time for pings to be answered."""
    for _ in range(2 * seconds):
        await clock.pass_ms(500)
        await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def receives(front, monkeypatch):
    """The limit of each receive that streams ask for, and whether it is over."""
    found: list[list] = []
    receive = type(front._shared.broker.queue).receive

    async def watched(self, group, topics, **more):
        mine = [more["limit"], "waits"]
        found.append(mine)
        try:
            return await receive(self, group, topics, **more)
        finally:
            mine[1] = "over"

    monkeypatch.setattr(type(front._shared.broker.queue), "receive", watched)
    return found


async def test_messages_are_pushed_and_settled_on_one_connection(front, put):
    async with talking(front) as talker:
        begun = await talker.subscribe(topics=["orders"])
        await put(b"a", b"b", keys=[b"k", b"\xff"])

        one, other = await talker.take(2)
        told = await talker.settled("ack", one, other)

        assert begun["node"] == "node-1" and begun["credit"] == {"messages": 100, "bytes": 4 << 20}
        assert (begun["keepalive_ms"], begun["silence_ms"]) == (5000, 10000)
        assert (one["value"], one["key"], one["attempt"]) == ("a", "k", 1)
        assert "visible_until" not in one, "it lasts as long as the stream"
        assert [result["state"] for result in told["results"]] == ["acked", "acked"]
        assert told["settled"] == 2
        await put(b"c")
        assert (await talker.take(1))[0]["value"] == "c"


# -- credit


async def test_no_more_is_delivered_than_there_is_credit_for(front, put, receives):
    await put(*(b"%d" % n for n in range(10)))
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], credit={"messages": 3, "bytes": 1000})
        first = await talker.take(3)
        await turns()
        assert [limit for limit, _ in receives] == [3], "nothing is asked without credit"

        await talker.settled("ack", first[0], first[1])
        more = await talker.take(2)
        await talker.settled("nack", more[0], delay="1h")
        await talker.settled("reject", more[1])
        more += await talker.take(2)
        await talker.settled("extend", first[2], visibility="1h")
        await turns()

        assert [one["value"] for one in more] == ["3", "4", "5", "6"]
        assert all(limit <= 3 for limit, _ in receives)


async def test_bytes_bound_credit_but_for_the_last_message(front, put):
    for _ in range(3):
        await put(b"x" * 600)
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], credit={"messages": 10, "bytes": 1000})

        first = await talker.take(2)
        assert len(first) == 2, "the second one began within the credit"
        await talker.settled("ack", first[0])
        await talker.take(1)


async def test_a_message_larger_than_all_credit_is_delivered_alone(front, put):
    await put(b"x" * 5000)
    await put(b"y" * 5000)
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], credit={"messages": 10, "bytes": 10})

        (one,) = await talker.take(1)
        told = await talker.settled("ack", one)
        (other,) = await talker.take(1)

        assert told["settled"] == 1 and other["value"][0] == "y"


async def test_new_totals_hold_at_once(front, put, receives):
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], credit={"messages": 50, "bytes": 1000})
        await talker.say("credit", messages=2, bytes=1000)
        await eventually(lambda: [one for one, state in receives if state == "waits"] == [2])
        for n in range(5):
            await put(b"%d" % n)

        await talker.take(2)
        await talker.say("credit", messages=4, bytes=1000)

        await talker.take(2)


async def test_a_settle_that_is_refused_as_the_lease_is_over_frees_credit(front, put, client):
    await put(b"a", b"b")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], credit={"messages": 1, "bytes": 1000})
        (one,) = await talker.take(1)
        answer = await client.post("/groups/workers/ack", {"receipts": [one["receipt"]]})
        assert answer.json["settled"] == 1

        told = await talker.settled("ack", one)

        assert told["results"][0]["code"] in ("not_in_flight", "receipt_expired")
        assert (await talker.take(1))[0]["value"] == "b"


async def test_with_a_visibility_leases_end_and_so_does_what_they_took_of_credit(front, put, clock):
    await put(b"a")
    async with talking(front) as talker:
        await talker.subscribe(
            topics=["orders"],
            visibility_timeout_ms="3s",
            credit={"messages": 1, "bytes": 1000},
        )
        (one,) = await talker.take(1)
        assert one["visible_until"]

        await clock.pass_ms(3_500)
        (again,) = await talker.take(1)

        assert (again["value"], again["attempt"]) == ("a", 2)
        await talker.settled("extend", again, visibility="2s")
        await clock.pass_ms(2_500)
        assert (await talker.take(1))[0]["attempt"] == 3


# -- settles


async def test_settles_are_confirmed_in_order_each_receipt_with_its_own_end(front, put):
    await put(b"a", b"b", b"c")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        one, other, third = await talker.take(3)
        settles = [
            {"receipt": one["receipt"], "action": "ack"},
            {"receipt": "?", "action": "ack"},
            {"receipt": other["receipt"], "action": "eat"},
            {"receipt": other["receipt"], "action": "nack", "delay": "1h", "reason": "later"},
        ]

        await talker.say("settle", id=7, settles=settles)
        await talker.settle("release", third)
        told, second = await talker.hear("settled"), await talker.hear("settled")

    assert told["id"] == 7 and second["id"] == 1
    ends = [result.get("state") or result["code"] for result in told["results"]]
    assert ends == ["acked", "invalid_receipt", "bad_request", "requeued"]
    assert told["settled"] == 2 and second["results"][0]["state"] == "released"


async def test_nothing_is_confirmed_before_its_entry_has_applied(front, put, broker, monkeypatch):
    """The disk holds the entry back: no confirmation comes until it lets go."""
    await put(b"a")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        (one,) = await talker.take(1)
        gate, waits = threading.Event(), []
        disk = broker.topics._replicas._store._disk  # the memory disk beneath all files
        sync = disk.fdatasync

        def held(handle):
            waits.append(handle)
            gate.wait(20)
            sync(handle)

        monkeypatch.setattr(disk, "fdatasync", held)
        hearing = asyncio.ensure_future(talker.settled("ack", one))
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert waits and not hearing.done(), "confirmed, and not on any disk"

        gate.set()

        assert (await hearing)["settled"] == 1


# -- what is not understood


async def test_a_frame_that_is_not_understood_is_told_and_ends_the_stream(front, put, take):
    await put(b"a")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        await talker.take(1)

        await talker.say("settle", id=3, settels=[])
        told = await talker.hear("error")

        assert (told["code"], told["nearest"], told["status"], told["id"]) == (
            "unknown_field",
            "settles",
            400,
            3,
        )
        assert await talker.closed() == 1008
    assert [one["attempt"] for one in await take()] == [2], "its consumer is lost"


FIRST_FRAMES = (
    ({"type": "credit", "messages": 1, "bytes": 1}, "the first frame must be subscribe"),
    ({"type": "subscribe"}, "topics is required"),
    ({"type": "subscribe", "topics": ["-bad"]}, "-bad"),
    ({"type": "subscribe", "topics": ["orders"], "partitions": []}, "partitions names none"),
    ({"type": "subscribe", "topics": ["orders"], "generation": 3}, "generation needs a member"),
    ({"type": "subscribe", "topics": ["orders"], "member_id": "m"}, "not both"),
    ({"type": "subscribe", "topics": ["orders"], "visibility_timeout_ms": 0}, "leave it out"),
    ({"type": "subscribe", "topics": ["orders"], "visibility_timeout_ms": "13h"}, "12 hours"),
    ({"type": "subscribe", "topics": ["orders"], "lowest_priority": "x"}, "priority"),
    ({"type": "subscribe", "patterns": [""]}, "patterns"),
    ({"type": "subscribe", "member_id": "nobody"}, "nobody"),
)


async def test_what_can_t_be_subscribed_to_is_told_why(front, orders):
    for frame, why in FIRST_FRAMES:
        async with talking(front) as talker:
            await talker.socket.send_json(frame)

            told = await talker.hear("error")

            assert why in told["error"], frame
            assert await talker.closed() == 1008


async def test_a_stream_is_subscribed_to_once_and_heartbeats_are_of_members(front, orders):
    for frame, why in (
        ({"type": "subscribe", "topics": ["orders"]}, "once"),
        ({"type": "heartbeat"}, "of members"),
    ):
        async with talking(front) as talker:
            await talker.subscribe(topics=["orders"])
            await talker.socket.send_json(frame)
            assert why in (await talker.hear("error"))["error"]
            assert await talker.closed() == 1008


async def test_binary_frames_and_frames_that_are_too_large_are_refused(front, orders):
    async with talking(front) as talker:
        await talker.socket.send_bytes(b"{}")
        assert "must be text" in (await talker.hear("error"))["error"]
        assert await talker.closed() == 1008
    async with talking(front) as talker:
        begun = await talker.subscribe(topics=["orders"])
        await talker.socket.send_str("x" * begun["frame_bytes_max"])
        assert await talker.closed() == 1009
    async with talking(front) as talker:
        await talker.socket._writer.send_frame(b"x" * 10, 0x3)
        assert await talker.closed() == 1002


async def test_a_client_that_does_not_subscribe_in_time_is_told_so(front, clock, limits):
    async with talking(front) as talker:
        await clock.pass_ms(round(limits.header_deadline_s * 1000) + 500)

        assert (await talker.hear("error"))["code"] == "request_timeout"
        assert await talker.closed() == 1008


async def test_an_unknown_topic_ends_the_stream_with_its_error(front):
    async with talking(front) as talker:
        await talker.subscribe(topics=["nowhere"])

        assert (await talker.hear("error"))["code"] == "unknown_topic"
        assert await talker.closed() == 1008


async def test_what_is_in_the_way_for_now_is_told_once_and_waited_out(
    front, put, clock, broker, monkeypatch
):
    await put(b"a")
    receive, failing = type(broker.queue).receive, [TooManyInFlight(), TooManyInFlight()]

    async def busy(self, *asked, **more):
        if failing:
            raise failing.pop()
        return await receive(self, *asked, **more)

    monkeypatch.setattr(type(broker.queue), "receive", busy)
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        told = await talker.hear("error")
        assert (told["code"], told["retriable"]) == ("too_many_in_flight", True)

        await clock.pass_ms(2_000)

        assert (await talker.take(1))[0]["value"] == "a"


# -- what there is


async def test_topics_that_match_a_pattern_are_received_from_also_those_that_come(
    front, put, broker, clock
):
    await put(b"a")
    async with talking(front) as talker:
        await talker.subscribe(patterns=["ord*", "late.*"])
        assert (await talker.take(1))[0]["topic"] == "orders"
        await broker.topics.create_topic("late.one", {"partitions": 1})
        await broker.records.append("late.one", 0, batch(b"z"), deadline_s=30)

        taking = asyncio.ensure_future(talker.take(1))
        await pass_s(clock, 12)

        assert (await taking)[0]["topic"] == "late.one"


async def test_a_pattern_that_nothing_matches_yet_waits(front, broker, clock):
    async with talking(front) as talker:
        await talker.subscribe(patterns=["late.*"])
        await broker.topics.create_topic("late.one", {"partitions": 1})
        await broker.records.append("late.one", 0, batch(b"z"), deadline_s=30)

        taking = asyncio.ensure_future(talker.take(1))
        await pass_s(clock, 12)

        assert (await taking)[0]["value"] == "z"


async def test_partitions_that_come_are_received_from(front, put, broker, clock):
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])
        await broker.placement.add_partitions("orders", 4, [])
        await put(b"first of it", partition=3)
        taking = asyncio.ensure_future(talker.take(1))
        await pass_s(clock, 12)

        assert (await taking)[0]["partition"] == 3


async def test_lanes_below_the_lowest_are_left_for_others(front, put, take):
    await put(b"low", lanes=[3])
    await put(b"high", lanes=[1])
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], lowest_priority="high")
        assert [one["value"] for one in await talker.take(1)] == ["high"]
        assert [one["value"] for one in await take()] == ["low"]


async def test_long_messages_and_bytes_are_told_whole(front, put):
    long = "é\n" * 200_000
    await put(long.encode(), b"\xff" * 100_000, b"short")
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"])

        first, second, third = await talker.take(3)

        assert first["value"] == long
        assert (second["value_encoding"], len(second["value"])) == ("base64", 133_336)
        assert third["value"] == "short"


async def test_messages_come_as_record_batches_where_a_client_wants_them(front, put):
    await put(
        b"\x00\xff",
        b"plain",
        keys=[b"k", None],
        headers=[(("h", b"\xff"),), ()],
        lanes=[1, 2],
        message_ids=["id", None],
    )
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], format="batches")
        frame = (await talker.socket.receive(20)).data
        size = int.from_bytes(frame[:4], "little")
        head, batch = json.loads(frame[4 : 4 + size]), RecordBatch.parse(frame[4 + size :])

        assert head["type"] == "messages" and len(head["rows"]) == batch.count
        rows, records = head["rows"], batch.records()
        assert [(row["offset"], row["attempt"]) for row in rows] == [(0, 1), (1, 1)]
        assert rows[0]["timestamp_ms"] and "visible_until_ms" not in rows[0]
        assert (records[0].value, records[0].key, records[0].lane) == (b"\x00\xff", b"k", 1)
        assert (records[0].headers, records[0].message_id) == ((("h", b"\xff"),), "id")
        assert (await talker.settled("ack", *rows))["settled"] == 2
    async with talking(front) as talker:
        await talker.say("subscribe", topics=["orders"], format="xml")
        assert "format" in (await talker.hear("error"))["error"]


async def test_a_slow_client_holds_its_credit_and_one_answer_and_stops_only_itself(front, put):
    for n in range(20):
        await put(b"%02d" % n + b"x" * 200_000)
    async with talking(front, autoping=False) as slow, talking(front, "others") as talker:
        await slow.subscribe(topics=["orders"], credit={"messages": 1000, "bytes": 1 << 30})
        slow.socket._response.connection.transport.pause_reading()
        await talker.subscribe(topics=["orders"], credit={"messages": 1000, "bytes": 1 << 30})

        assert len(await talker.take(20)) == 20

        held = front.budgets[Kind.ANSWERS].used
        assert held < 8 << 20, "of 4 MB and their JSON"
        slow.socket._response.connection.transport.resume_reading()
        assert len(await slow.take(20)) == 20


def batch(value: bytes) -> object:
    return encode_columns([value], None)


async def test_nothing_comes_with_no_credit_and_a_higher_lane_goes_ahead_when_told(front, put):
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], credit={"messages": 0})
        await put(b"normal", b"low", b"high", partition=0, lanes=[2, 3, 1])

        await talker.say("credit", messages=9, bytes=99, lowest_priority="high")
        assert [one["value"] for one in await talker.take(1)] == ["high"]

        await talker.say("credit", messages=9, bytes=99, lowest_priority=4)
        assert [one["value"] for one in await talker.take(2)] == ["normal", "low"]


async def test_a_group_that_its_own_settles_halt_is_told_at_once(front, put, broker):
    await broker.groups.put_group("workers", {"halt_percent": 1, "halt_window": 1})
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], partitions=[0])
        await put(b"a", b"b", b"c", partition=0)

        told = await talker.settled("reject", *await talker.take(3))
        halted = await talker.hear("error")

        assert told["results"][-1]["state"] == "halted"
        assert halted["code"] == "group_halted"


async def test_a_stream_that_waits_is_told_at_once_when_others_halt_its_group(
    front, put, broker, clock
):
    await broker.groups.put_group("workers", {"halt_percent": 1, "halt_window": 1})
    await put(b"a", b"b", b"c", partition=0)
    taken = await broker.queue.receive(
        "workers", ["orders"], claim=NOBODY, limit=3, wait_s=0.0, visibility_ms=None
    )
    async with talking(front) as talker:
        await talker.subscribe(topics=["orders"], partitions=[0])
        assert await talker.quiet()

        await broker.receipts.settle(
            [SettleRequest(one.receipt, "reject") for one in taken], "workers"
        )
        await clock.pass_ms(100)

        assert (await talker.hear("error"))["code"] == "group_halted"
