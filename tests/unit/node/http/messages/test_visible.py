"""Visible reads leave out what is not due, and never lose it for a later read."""

from __future__ import annotations

import asyncio

import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, encode_columns
from node.api.times import format_time
from tests.one_node import NOW_MS

READ = "/topics/orders/partitions/0/messages"
VISIBLE = f"{READ}?visible=true"


@pytest.fixture
async def one(broker):
    """A topic of one partition, `orders`."""
    await broker.topics.create_topic("orders", {"partitions": 1})


async def append(broker, *values, partition=0, **columns):
    batch = encode_columns([value.encode() for value in values], **columns)
    return await broker.records.append("orders", partition, batch, deadline_s=30)


def values(answer):
    return [message["value"] for message in answer.json["messages"]]


async def follow(client, path=VISIBLE, offset=0):
    """What a reader sees that follows next_offset to where it stands still; and that place."""
    seen = []
    while True:
        answer = await client.get(f"{path}&offset={offset}&limit=2")
        seen += values(answer)
        if answer.json["next_offset"] == offset:
            return seen, offset
        offset = answer.json["next_offset"]


async def test_a_reader_that_follows_next_offset_loses_no_delayed_message(
    client, one, broker, clock
):
    """Fault 16 of GoQueue: its cursor passed delayed messages, which were then never read."""
    await append(broker, "now", "later", "behind", deliver_at_ms=[None, 3000, None])

    seen, offset = await follow(client)
    assert (seen, offset) == (["now"], 1)

    clock.now_ms += 3000
    seen, offset = await follow(client, offset=offset)
    assert (seen, offset) == (["later", "behind"], 3)


async def test_a_blocked_reader_is_told_until_when(client, one, broker):
    await append(broker, "a", "b", deliver_at_ms=[None, 3000])

    first = (await client.get(VISIBLE)).json
    second = (await client.get(f"{VISIBLE}&offset=1")).json

    due = format_time(NOW_MS + 3000)
    assert (first["next_offset"], first["blocked_until"]) == (1, due)
    assert (second["messages"], second["next_offset"], second["blocked_until"]) == ([], 1, due)
    assert "blocked_until" not in (await client.get(READ)).json


async def test_who_goes_past_delayed_messages_is_told_each_of_them(client, one, broker, clock):
    await append(broker, "a", "b", "c", "d", deliver_at_ms=[5000, None, 9000, None])

    answer = await client.get(f"{VISIBLE}&skip_pending=true")

    assert values(answer) == ["b", "d"]
    assert answer.json["next_offset"] == 4
    assert answer.json["pending"] == [
        {"offset": 0, "deliver_at": format_time(NOW_MS + 5000)},
        {"offset": 2, "deliver_at": format_time(NOW_MS + 9000)},
    ]
    clock.now_ms += 5000
    for passed, expected in zip(answer.json["pending"], (["a"], []), strict=True):
        again = await client.get(f"{VISIBLE}&offset={passed['offset']}&limit=1")
        assert values(again) == expected


async def test_a_reader_that_passes_delayed_messages_sees_every_one_once(
    client, one, broker, clock
):
    written = [f"v{n}" for n in range(40)]
    for start in range(0, 40, 8):
        times = [(n % 3) * 1000 or None for n in range(start, start + 8)]
        await append(broker, *written[start : start + 8], deliver_at_ms=times)
    seen, offset, pending = [], 0, []

    for _second in range(3):
        while True:
            path = f"{VISIBLE}&skip_pending=1&limit=3&offset={offset}"
            answer = (await client.get(path)).json
            seen += [message["value"] for message in answer["messages"]]
            pending += [passed["offset"] for passed in answer["pending"]]
            if answer["next_offset"] == offset:
                break
            offset = answer["next_offset"]
        clock.now_ms += 1000
        for passed in list(pending):
            found = values(await client.get(f"{VISIBLE}&offset={passed}&limit=1"))
            if found:
                seen += found
                pending.remove(passed)

    assert sorted(seen) == sorted(written)
    assert pending == []


async def test_what_has_expired_or_was_cancelled_is_passed_and_never_blocks(
    client, one, broker, clock
):
    await append(
        broker,
        *("short", "long", "cancelled", "dead before due", "plain"),
        deliver_at_ms=[None, None, 60_000, 60_000, None],
        expires_at_ms=[1000, 90_000, None, 1000, None],
    )
    await broker.delays.cancel_delayed("orders", 0, 2)
    assert (await follow(client))[0] == ["short", "long"]

    clock.now_ms += 1000
    seen, offset = await follow(client)
    assert (seen, offset) == (["long", "plain"], 5)
    assert values(await client.get(READ)) == [
        *("short", "long", "cancelled", "dead before due", "plain")
    ]


async def test_a_topics_ttl_hides_messages_that_state_none(client, one, broker, clock):
    await broker.topics.alter_topic("orders", {"ttl_ms": 1000})
    await append(broker, "a")
    await append(broker, "b", "c", expires_at_ms=[5000, None])

    clock.now_ms += 999
    assert values(await client.get(VISIBLE)) == ["a", "b", "c"]
    clock.now_ms += 1
    assert values(await client.get(VISIBLE)) == ["b"]


async def test_moments_are_resolved_by_the_log_time_of_their_batch(client, one, broker, clock):
    clock.now_ms += 77
    moment = NOW_MS + 10_000
    await append(broker, "a", "b", deliver_at_ms=[500, moment], expires_at_ms=[None, 20_000])

    [a, b] = (await client.get(READ)).json["messages"]

    assert (a["deliver_at"], "expires_at" in a) == (format_time(NOW_MS + 577), False)
    assert b["deliver_at"] == format_time(moment)
    assert b["expires_at"] == format_time(NOW_MS + 20_077)
    assert (await client.get("/messages/orders:0:0")).json["deliver_at"] == a["deliver_at"]


async def test_a_long_poll_waits_for_the_message_that_blocks_it(client, one, broker, clock):
    await append(broker, "later", deliver_at_ms=[50])
    polling = asyncio.ensure_future(client.get(f"{VISIBLE}&wait=5s"))

    await asyncio.sleep(0)
    clock.now_ms += 50

    assert values(await polling) == ["later"]


async def test_a_long_poll_that_stays_blocked_answers_in_its_time(client, one, broker):
    await append(broker, "later", deliver_at_ms=[60_000])

    answer = await client.get(f"{VISIBLE}&wait=30ms")

    assert (values(answer), answer.json["next_offset"]) == ([], 0)


async def test_a_long_poll_with_something_to_show_does_not_wait(client, one, broker):
    await append(broker, "now", "later", deliver_at_ms=[None, 60_000])

    async with asyncio.timeout(30):
        answer = await client.get(f"{VISIBLE}&wait=30s")

    assert values(answer) == ["now"]


async def test_all_partitions_are_read_visibly_too(client, broker, orders, clock):
    await append(broker, "a0", "a1", "a2", partition=0, deliver_at_ms=[None, 1000, None])
    await append(broker, "b0", partition=1)

    answer = (await client.get("/topics/orders/messages?visible=true")).json
    assert [message["value"] for message in answer["messages"]] == ["a0", "b0"]
    assert answer["next_offsets"] == {"0": 1, "1": 1, "2": 0}
    assert answer["blocked_until"] == {"0": format_time(NOW_MS + 1000)}

    path = "/topics/orders/messages?visible=true&skip_pending=true"
    answer = (await client.get(path)).json
    assert [message["value"] for message in answer["messages"]] == ["a0", "a2", "b0"]
    assert answer["pending"] == [
        {"offset": 1, "deliver_at": format_time(NOW_MS + 1000), "partition": 0}
    ]
    answer = (await client.get(f"{path}&limit=1")).json
    assert (answer["next_offsets"]["0"], answer["pending"]) == (1, [])


async def test_stored_batches_are_not_cut_for_visibility(client, one, broker):
    answer = await client.get(VISIBLE, headers={"Accept": BATCH_MEDIA_TYPE})

    assert answer.status == 400
    assert (await client.get(f"{READ}?skip_pending=true")).status == 400
