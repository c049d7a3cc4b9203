"""The queue through the client, against the front: what goes in is what is meant, over HTTP and as
an engine in the same process is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from goqueue import AsyncClient, Client, DeadFilter, OutgoingMessage, Received, RetryPolicy
from goqueue.errors import (
    AlreadyDue,
    BadReceipt,
    BadRequest,
    NotFound,
    ReceiptExpired,
    UnknownGroup,
)
from goqueue.transport.channel import Channel
from tests.one_node import until
from tests.unit.goqueue.queue_cluster import T0_MS, QueueCluster

QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)


@pytest.fixture
async def cluster() -> QueueCluster:
    return QueueCluster()


@pytest.fixture(params=["http", "memory"])
async def target(
    request: pytest.FixtureRequest, cluster: QueueCluster, tmp_path: Path
) -> AsyncIterator[str | Channel]:
    if request.param == "http":
        async with cluster.serve() as url:
            yield url
    else:
        async with cluster.open(tmp_path) as channel:
            yield channel


@pytest.fixture
async def client(target: str | Channel) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(target, retry=QUICK, attempt_timeout_s=20.0) as client:
        await client.create_topic("orders", partitions=1)
        yield client


async def values(client: AsyncClient, wait: float = 0) -> list[str]:
    messages = await client.receive("billing", "orders", limit=100, wait=wait)
    if messages:
        await client.ack(messages)
    return [message.text for message in messages]


async def kill(client: AsyncClient, *reasons: str) -> None:
    """One dead letter for each reason."""
    for number, reason in enumerate(reasons):
        await client.publish(
            "orders", f"v{number}", key=f"k{number}", headers={"n": str(number)}, partition=0
        )
        (message,) = await client.receive("billing", "orders")
        await message.reject(reason)


# publishing


async def test_a_delay_counts_from_the_time_of_storage(
    client: AsyncClient, cluster: QueueCluster
) -> None:
    published = await client.publish("orders", "later", delay="1m", priority="high")

    assert published.deliver_at_ms == T0_MS + 60_000
    (message,) = (await client.read("orders")).messages
    assert (message.deliver_at_ms, message.priority) == (T0_MS + 60_000, "high")
    assert await values(client) == []
    cluster.now_ms += 60_000
    assert await values(client, wait=30) == ["later"]


async def test_a_moment_and_an_expiry_reach_the_log(
    client: AsyncClient, cluster: QueueCluster
) -> None:
    at = datetime.fromtimestamp(T0_MS / 1000, UTC) + timedelta(minutes=1)
    published = await client.publish("orders", "at", deliver_at=at)
    await client.publish("orders", "short", ttl=5)

    assert published.deliver_at_ms == T0_MS + 60_000
    assert [m.expires_at_ms for m in await client.read("orders")] == [None, T0_MS + 5_000]
    cluster.now_ms += 60_000
    assert await values(client, wait=30) == ["at"]


@pytest.mark.parametrize("json", [False, True])
async def test_many_are_published_with_times_of_their_own(client: AsyncClient, json: bool) -> None:
    published = await client.publish_many(
        "orders",
        [
            OutgoingMessage("a", delay=60, partition=0, priority="low"),
            OutgoingMessage("b", deliver_at=T0_MS + 5000, partition=0),
            OutgoingMessage("c", ttl="1h", partition=0),
        ],
        json=json,
    )

    assert [one.deliver_at_ms for one in published] == [T0_MS + 60_000, T0_MS + 5000, None]
    stored = (await client.read("orders")).messages
    assert [m.deliver_at_ms for m in stored] == [T0_MS + 60_000, T0_MS + 5000, None]
    assert stored[2].expires_at_ms == T0_MS + 3_600_000
    assert [m.priority for m in stored] == ["low", "normal", "normal"]


async def test_a_producer_sends_delays(client: AsyncClient) -> None:
    async with client.producer(linger_ms=1) as producer:
        later = await producer.send("orders", "later", delay=60, ttl="2h", priority=1)
        now = await producer.publish("orders", "now", headers={"a": "b"})

    assert later.result().deliver_at_ms == T0_MS + 60_000
    assert now.deliver_at_ms is None
    (first, _) = (await client.read("orders")).messages
    assert (first.deliver_at_ms, first.expires_at_ms) == (T0_MS + 60_000, T0_MS + 7_200_000)


async def test_a_known_message_id_is_a_duplicate_wherever_it_comes_from(
    client: AsyncClient,
) -> None:
    await client.create_topic("many", partitions=6)
    first = await client.publish("many", "x", message_id="order-1")
    again = await client.publish("many", "x", message_id="order-1", delay=60)
    async with client.producer(linger_ms=1) as producer:
        third = await producer.publish("many", "x", message_id="order-1")
        other = await producer.publish("many", "y", message_id="order-2")

    place = (first.partition, first.offset)
    assert (first.duplicate, other.duplicate) == (False, False)
    for repeat in (again, third):
        assert (repeat.duplicate, repeat.partition, repeat.offset) == (True, *place)
        assert repeat.deliver_at_ms is None
    assert (await client.topic("many")).total_messages == 2


async def test_rows_of_one_batch_are_told_apart(client: AsyncClient) -> None:
    await client.publish("orders", "a", message_id="a")

    published = await client.publish_many(
        "orders",
        [OutgoingMessage(v, message_id=v, partition=0) for v in ("b", "a", "c")],
    )

    assert [(one.offset, one.duplicate) for one in published] == [(1, False), (0, True), (2, False)]


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 1, "deliver_at": T0_MS},
        {"delay": -1},
        {"delay": "soon"},
        {"delay": float("nan")},
        {"delay": 60, "ttl": 30},
        {"ttl": 0},
        {"deliver_at": "tomorrow"},
        {"deliver_at": 1_700_000_000},
        {"priority": "urgent"},
    ],
    ids=str,
)
async def test_what_can_not_be_meant_is_refused_before_it_is_sent(
    client: AsyncClient, options: dict[str, object]
) -> None:
    with pytest.raises(BadRequest):
        await client.publish("orders", "x", **options)  # type: ignore[arg-type]
    async with client.producer() as producer:
        with pytest.raises(BadRequest):
            await producer.send("orders", "x", **options)  # type: ignore[arg-type]

    assert (await client.topic("orders")).total_messages == 0


# working


async def test_a_failed_message_comes_again_with_its_reason(
    client: AsyncClient, cluster: QueueCluster
) -> None:
    await client.publish("orders", "x", key="k")
    (message,) = await client.receive("billing", "orders", visibility=60)
    assert (message.text, message.key_text, message.attempt) == ("x", "k", 1)
    assert message.visible_until_ms == T0_MS + 60_000

    nacked = await message.nack("bad gateway", delay="2m")
    assert (nacked.state, nacked.visible_at_ms) == ("requeued", T0_MS + 120_000)
    assert await client.receive("billing", "orders") == []

    cluster.now_ms += 125_000
    (peeked,) = await until(lambda: client.peek("billing", "orders"), bool)
    (again,) = await client.receive("billing", "orders", wait=30)
    assert (again.attempt, again.last_reason) == (2, "bad gateway")
    assert (peeked.id, isinstance(peeked, Received)) == (again.id, False)
    assert (await again.ack()).committed_offset == 1


async def test_a_lease_that_is_over_can_not_be_settled(
    client: AsyncClient, cluster: QueueCluster
) -> None:
    await client.publish("orders", "x")
    (message,) = await client.receive("billing", "orders", visibility=5)
    assert (await message.extend("10s")).visible_at_ms == T0_MS + 10_000
    cluster.now_ms += 10_001

    with pytest.raises(ReceiptExpired):
        await message.ack()


async def test_a_released_message_was_never_delivered(client: AsyncClient) -> None:
    await client.publish("orders", "x")
    (message,) = await client.receive("billing", "orders")

    await client.release(message)

    (again,) = await client.receive("billing", "orders")
    assert again.attempt == 1


async def test_a_receive_waits_for_a_message(client: AsyncClient) -> None:
    waiting = asyncio.create_task(client.receive("billing", "orders", wait=10))
    while not waiting.done():
        await client.publish("orders", "x")
        await asyncio.wait([waiting], timeout=0.05)

    assert waiting.result()[0].text == "x"


async def test_receiving_works_through_a_topic(client: AsyncClient) -> None:
    await client.publish_many("orders", [str(n) for n in range(20)])
    found = []

    async for message in client.receiving("billing", "orders", limit=7):
        found.append(int(message.text))
        await message.ack()
        if len(found) == 15:
            break

    assert found == list(range(15))


async def test_a_position_is_committed_and_sought(client: AsyncClient) -> None:
    await client.publish_many("orders", ["0", "1", "2", "3"])
    await client.receive("billing", "orders", limit=1)

    assert await client.commit("billing", "orders", {0: 3}) == {0: 3}
    assert await values(client) == ["3"]
    assert await client.seek("billing", "orders", 2) == {0: 2}
    assert await values(client) == ["2", "3"]
    assert await client.seek("billing", "orders", "earliest", partition=0) == {0: 0}
    when = datetime.fromtimestamp(T0_MS / 1000, UTC) + timedelta(seconds=1)
    assert await client.seek("billing", "orders", when) == {0: 4}


async def test_a_receipt_of_nobody_is_refused(client: AsyncClient) -> None:
    await client.put_group("billing")
    (message,) = [
        Received("orders", 0, 0, 0, b"", group="billing", receipt="nonsense", settler=client)
    ]

    with pytest.raises(BadReceipt):
        await message.ack()


# groups


async def test_a_group_is_created_changed_and_deleted(client: AsyncClient) -> None:
    assert await client.list_groups() == []
    made = await client.put_group("billing", visibility_timeout=90, max_attempts=5, ordering="key")
    assert (made.name, made.settings["visibility_timeout"]) == ("billing", "90s")

    changed = await client.put_group("billing", backoff="2s", on_poison="park", halt_percent=50)

    assert (changed.settings["max_attempts"], changed.settings["backoff"]) == (5, "2s")
    assert [group.name for group in await client.list_groups()] == ["billing"]
    with pytest.raises(BadRequest, match="ordering"):
        await client.put_group("billing", ordering="sideways")
    await client.delete_group("billing")
    with pytest.raises(UnknownGroup):
        await client.group("billing")


async def test_a_group_is_assigned_to_an_owner(client: AsyncClient) -> None:
    await client.put_group("billing")
    await client.put_group("other")
    assert (await client.group("billing")).owner is None

    await client.admin.finish_upgrade()
    await client.admin.assign_group("billing", "team-a.")

    assert (await client.group("billing")).owner == "team-a."
    assert [group.owner for group in await client.list_groups()] == ["team-a.", None]
    assert [group.name for group in await client.list_groups(unowned=True)] == ["other"]
    with pytest.raises(UnknownGroup):
        await client.admin.assign_group("nobody", "team-a.")


async def test_a_group_tells_where_it_stands(client: AsyncClient) -> None:
    await client.publish_many("orders", ["a", "b", "c"])
    await client.receive("billing", "orders", limit=1)

    (place,) = (await client.group("billing", "orders")).partitions

    assert (place.committed_offset, place.end_offset, place.lag) == (0, 3, 3)
    assert (place.ready, place.in_flight, place.halted) == (2, 1, "")
    assert place.lane_pending == [0, 0, 2, 0, 0]


async def test_a_key_is_parked_and_released(client: AsyncClient) -> None:
    await client.put_group("billing", ordering="key")
    await client.publish("orders", "a", key="bad")
    await client.admin.park_key("billing", "orders", "bad")

    (parked,) = await client.admin.parked_keys("billing", "orders")
    assert (parked.key, parked.waiting) == (b"bad", 1)
    assert await values(client) == []
    await client.admin.release_key("billing", "orders", "bad")
    assert await values(client) == ["a"]
    await client.admin.resume_group("billing", "orders")


# dead letters


async def test_dead_letters_tell_why_they_died(client: AsyncClient) -> None:
    await kill(client, "no account", "timeout")

    letters = [letter async for letter in client.dead_letters("billing", "orders", page_limit=1)]

    assert [(one.id, one.reason, one.attempts) for one in letters] == [
        ("orders:0:0", "no account", 1),
        ("orders:0:1", "timeout", 1),
    ]
    assert letters[0].history == ((T0_MS, "no account"),)
    assert (letters[0].died_ms, letters[0].key, letters[0].group) == (T0_MS, b"k0", "billing")
    counts = await client.dead_letter_counts("billing", "orders")
    assert (counts.total, counts.by_reason) == (2, {"no account": 1, "timeout": 1})


@pytest.mark.parametrize(
    ("which", "offsets"),
    [
        (DeadFilter(reason="time"), [1, 2]),
        (DeadFilter(key="k0"), [0]),
        (DeadFilter(headers={"n": "2"}), [2]),
        (DeadFilter(ids=["orders:0:0", "orders:0:2"]), [0, 2]),
        (DeadFilter(reason="time", headers={"n": "0"}), []),
        (DeadFilter(from_time=T0_MS, to_time=T0_MS + 1, partition=0), [0, 1, 2]),
        (DeadFilter(to_time=datetime.fromtimestamp(T0_MS / 1000, UTC)), []),
    ],
    ids=["reason", "key", "header", "ids", "both", "time", "before"],
)
async def test_the_same_filter_looks_counts_and_purges(
    client: AsyncClient, which: DeadFilter, offsets: list[int]
) -> None:
    await kill(client, "no account", "timeout", "timeout")

    found = [letter.offset async for letter in client.dead_letters("billing", "orders", which)]

    assert found == offsets
    dry = await client.admin.redrive("billing", "orders", which, dry_run=True)
    assert (dry.matched, dry.dry_run) == (len(offsets), True)
    assert await client.admin.purge("billing", "orders", which, dry_run=True) == len(offsets)
    assert await client.admin.purge("billing", "orders", which) == len(offsets)
    left = [letter.offset async for letter in client.dead_letters("billing", "orders")]
    assert left == [offset for offset in range(3) if offset not in offsets]


async def test_a_redrive_makes_messages_come_again(client: AsyncClient) -> None:
    await kill(client, "timeout", "timeout")

    job = await client.admin.redrive("billing", "orders", DeadFilter(ids=["orders:0:1"]), rate=100)

    assert job.matched == 1
    (message,) = await client.receive("billing", "orders", wait=5)
    assert (message.offset, message.attempt, message.redrives) == (1, 1, 1)
    found = await client.admin.redrive_job("billing", job.id)
    assert (found.state, found.moved) == ("done", 1)
    assert await client.admin.redrives("billing") == [found]
    assert (await client.admin.stop_redrive("billing", job.id)).id == job.id
    with pytest.raises(NotFound):
        await client.admin.redrive_job("billing", 99)


# later


async def test_delayed_messages_are_listed_and_cancelled(
    client: AsyncClient, cluster: QueueCluster
) -> None:
    await client.publish("orders", "second", delay=60, key="k")
    await client.publish("orders", "first", delay=30)

    second, first = sorted(await client.delayed("orders"), key=lambda one: one.offset)
    assert [one.id for one in await client.delayed("orders", limit=1)] == [first.id]
    assert (second.deliver_at.timestamp() * 1000, second.key) == (T0_MS + 60_000, "k")

    await client.cancel_delayed("orders", 0, first.offset)
    cluster.now_ms += 60_000
    assert await values(client, wait=30) == ["second"]
    assert (await client.delayed_message("orders", 0, first.offset)).state == "cancelled"
    with pytest.raises(AlreadyDue):
        await client.cancel_delayed("orders", 0, second.offset)


async def test_schedules_are_made_paused_and_deleted(client: AsyncClient) -> None:
    made = await client.create_schedule(
        "tick", "orders", b"\xff", every="90s", key="k", headers={"a": "b"}, priority="low"
    )
    assert (made.every, made.state, made.runs) == ("90s", "active", 0)
    cron = await client.create_schedule(
        "nightly", "orders", "report", cron="0 3 * * *", timezone="Europe/Berlin", missed="skip"
    )
    assert (cron.cron, cron.timezone, cron.missed) == ("0 3 * * *", "Europe/Berlin", "skip")

    assert [schedule.name for schedule in await client.schedules()] == ["nightly", "tick"]
    assert (await client.pause_schedule("tick")).state == "paused"
    assert (await client.schedule("tick")).state == "paused"
    assert (await client.resume_schedule("tick")).state == "active"
    await client.delete_schedule("tick")
    with pytest.raises(NotFound):
        await client.schedule("tick")


async def test_the_blocking_client_has_all_of_it(cluster: QueueCluster) -> None:
    def work(url: str) -> None:
        with Client(url, retry=QUICK) as blocking:
            blocking.create_topic("orders", partitions=1)
            blocking.publish("orders", "x", delay=0, priority="high", message_id="m", ttl="1h")
            assert blocking.publish("orders", "x", message_id="m").duplicate
            (message,) = blocking.receive("billing", ["orders"], wait=5)
            message.reject("no")
            (letter,) = blocking.dead_letters("billing", "orders")
            assert letter.reason == "no"
            assert blocking.dead_letter_counts("billing", "orders").total == 1
            assert blocking.admin.redrive("billing", "orders").matched == 1
            (again,) = blocking.receive("billing", "orders", wait=5)
            again.release()
            assert blocking.peek("billing", "orders")[0].id == again.id
            with blocking.producer() as producer:
                producer.send("orders", "later", delay="1h")
                producer.send_many("orders", [OutgoingMessage("low", priority="low", ttl=60)])
            assert len(blocking.delayed("orders")) == 1
            assert blocking.put_group("billing", max_attempts=1).settings["max_attempts"] == 1
            assert [group.name for group in blocking.list_groups()] == ["billing"]

    async with cluster.serve() as url:
        await asyncio.to_thread(work, url)


async def test_a_topics_queue_settings_are_durations(client: AsyncClient) -> None:
    made = await client.create_topic(
        "q", ttl=60, delay_max="30d", dedup_window=timedelta(seconds=1), delayed_max=5
    )
    assert (made.config["ttl_ms"], made.config["delay_ms_max"]) == (60_000, 30 * 86_400_000)
    assert (made.config["dedup_window_ms"], made.config["delayed_max"]) == (1000, 5)

    altered = await client.alter_topic("q", dead_retention=3600, dedup_max=7)

    assert (altered.config["dead_retention_ms"], altered.config["dedup_max"]) == (3_600_000, 7)
