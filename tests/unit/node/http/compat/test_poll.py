"""Polls over HTTP: a member gets whatever it has, however the client spells its wishes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from goqueue.wire.batch import encode_columns

GROUP = "/groups/team"


@pytest.fixture
async def member(client, orders):
    body = {"client_id": "w", "topics": ["orders"]}
    return (await client.post(f"{GROUP}/join", body)).json["member_id"]


@pytest.fixture
def poll(client, member):
    """What a poll of the member is answered."""

    async def send(query="timeout=0"):
        answer = await client.get(f"{GROUP}/poll?member_id={member}&{query}")
        assert answer.status == 200, answer.body
        return answer.json

    return send


async def test_a_poll_takes_from_all_partitions_of_its_member(poll, put):
    for partition in range(3):
        await put(b"a", b"b", partition=partition, keys=[b"k", b"k"])

    found = await poll()

    assert len(found["messages"]) == 6
    assert {m["partition"] for m in found["messages"]} == {0, 1, 2}
    message = found["messages"][0]
    assert message["receipt"] == message["receipt_handle"]
    assert (message["topic"], message["key"], message["attempt"]) == ("orders", "k", 1)
    assert found["next_offset"] == {"0": 2, "1": 2, "2": 2}
    assert [m["offset"] for m in found["messages_by_partition"]["1"]] == [0, 1]


async def test_partitions_of_several_topics_are_told_apart(client, broker, member, poll, put):
    await broker.topics.create_topic("payments", {"partitions": 1})
    body = {"client_id": "w", "topics": ["orders", "payments"], "member_id": member}
    await client.post(f"{GROUP}/join", body)
    await put(b"o")
    await broker.records.append("payments", 0, encode_columns([b"p"]), deadline_s=30)

    found = await poll()

    assert found["next_offset"] == {"orders:0": 1, "payments:0": 1}
    assert set(found["messages_by_partition"]) == {"orders:0", "payments:0"}


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ("", 100),
        ("limit=2", 2),
        ("max_messages=2", 2),
        ("limit=2&max_messages=2", 2),
        ("limit=5000", 1000),
    ],
)
async def test_a_limit_has_two_names_and_a_bound(poll, broker, query, limit):
    asked = watch(broker)

    await poll(f"timeout=0&{query}")

    assert asked[0]["limit"] == limit


@pytest.mark.parametrize(
    ("query", "wait_s"),
    [
        ("", 29.5),
        ("timeout=5s", 5),
        ("timeout=5000", 5),
        ("wait=5s", 5),
        ("timeout=30s", 29.5),
        ("timeout=60s", 59.5),
        ("timeout=5m", 59.5),
        ("timeout=0", 0),
    ],
)
async def test_a_timeout_is_text_or_milliseconds_and_at_most_a_minute_but_for_a_blink(
    poll, broker, put, query, wait_s
):
    await put(b"v")
    asked = watch(broker)

    await poll(query)

    assert asked[0]["wait_s"] == wait_s


@pytest.mark.parametrize(
    "query",
    [
        "timeout=soon",
        "timeout=-1s",
        "limit=0",
        "limit=many",
        "limit=1&max_messages=2",
        "generation=x",
    ],
)
async def test_a_poll_that_will_not_do_is_400_and_names_the_field(client, member, query):
    answer = await client.get(f"{GROUP}/poll?member_id={member}&{query}")

    assert answer.status == 400
    assert query.partition("=")[0] in answer.json["error"]


async def test_a_poll_waits_for_its_first_message(poll, put):
    waiting = asyncio.ensure_future(poll("timeout=60s"))

    await put(b"v")
    found = await asyncio.wait_for(waiting, 30)

    assert [m["value"] for m in found["messages"]] == ["v"]


async def test_a_poll_waits_for_partitions_too(client, poll, member, put):
    other = {"client_id": "other", "topics": ["orders"], "member_id": None}
    rest = [(await client.post(f"{GROUP}/join", other)).json["member_id"] for _ in range(3)]
    await put(*[b"v"] * 3)
    waiting = asyncio.ensure_future(poll("timeout=60s"))

    for id in rest:
        await client.post(f"{GROUP}/leave", {"member_id": id})
    found = await asyncio.wait_for(waiting, 30)

    assert len(found["messages"]) == 3


async def test_polls_are_signs_of_life_also_while_they_wait(poll, client, clock, front, eventually):
    for _ in range(3):
        await clock.pass_ms(20_000)
        await poll()
    waiting = asyncio.ensure_future(poll("timeout=50s"))
    await eventually(lambda: front.requests_in_flight)
    await clock.pass_ms(50_000)

    assert (await waiting)["messages"] == []
    assert (await client.get(GROUP)).json["state"] == "stable"


async def test_a_generation_before_all_that_the_member_has_is_refused(client, member, put):
    other = {"client_id": "other", "topics": ["orders"]}
    later = (await client.post(f"{GROUP}/join", other)).json
    await put(b"v", partition=later["partitions"][0])

    old = await client.get(f"{GROUP}/poll?member_id={later['member_id']}&generation=1&timeout=0")
    new = await client.get(f"{GROUP}/poll?member_id={later['member_id']}&generation=2&timeout=0")

    assert (old.status, old.json["code"], old.json["generation"]) == (409, "stale_generation", 2)
    assert old.json["partitions"] == [f"orders:{later['partitions'][0]}"]
    assert len(new.json["messages"]) == 1


@pytest.mark.parametrize("abruptly", [False, True])
async def test_a_client_that_hangs_up_leaves_nothing_leased(
    front, put, poll, member, eventually, abruptly
):
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    path = f"{GROUP}/poll?member_id={member}&timeout=60s"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await eventually(lambda: front.requests_in_flight)

    writer.transport.abort() if abruptly else writer.close()
    await eventually(lambda: not front.requests_in_flight)
    await put(b"v")

    assert [m["attempt"] for m in (await poll())["messages"]] == [1]


async def test_what_was_granted_to_a_client_that_is_gone_is_given_back(
    front, broker, put, poll, member, eventually
):
    await put(b"v")
    granted, take = [], broker.polls.poll

    async def too_late(*arguments, **options):
        granted.extend(await take(*arguments, **options))
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return granted

    broker.polls.poll = too_late
    _, writer = await asyncio.open_connection("127.0.0.1", front.port)
    path = f"{GROUP}/poll?member_id={member}&timeout=0"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    await eventually(lambda: granted)

    writer.close()
    await eventually(lambda: not front.requests_in_flight)
    broker.polls.poll = take

    assert [m["attempt"] for m in (await poll("timeout=20s"))["messages"]] == [1]


async def test_a_stop_ends_a_poll_with_an_empty_answer(front, poll, eventually):
    waiting = asyncio.ensure_future(poll("timeout=60s"))
    await eventually(lambda: front.requests_in_flight)

    front.begin_stop()
    found = await asyncio.wait_for(waiting, 30)

    assert found["messages"] == []
    assert (await poll("timeout=60s"))["messages"] == []


def watch(broker):
    """What the broker's polls are asked from now on."""
    asked, poll = [], broker.polls.poll

    async def watched(*arguments, **options):
        asked.append(options)
        return await poll(*arguments, **{**options, "wait_s": 0.0})

    broker.polls.poll = watched
    return asked
