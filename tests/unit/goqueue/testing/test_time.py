"""Virtual time: what it brings about, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from goqueue import AsyncClient, Client, Consumer
from goqueue.testing import Broker, NotIdle
from goqueue.wire.errors import BadRequest


def texts(client: Client, group: str, topic: str = "jobs", limit: int = 100) -> list[str]:
    return [message.text for message in client.receive(group, topic, limit=limit)]


def test_time_stands_still_until_it_is_moved(goqueue_broker: Broker) -> None:
    began = goqueue_broker.clock.now
    assert began == datetime(2026, 1, 1, tzinfo=UTC)
    assert goqueue_broker.clock.now == began

    goqueue_broker.clock.advance("1h")
    goqueue_broker.clock.advance(0.5)
    goqueue_broker.clock.advance(timedelta(days=1))

    assert goqueue_broker.clock.now - began == timedelta(days=1, hours=1, milliseconds=500)


def test_what_is_no_duration_moves_nothing(goqueue_broker: Broker) -> None:
    began = goqueue_broker.clock.now_ms
    for wrong in (-1, "soon", float("nan")):
        with pytest.raises(BadRequest):
            goqueue_broker.clock.advance(wrong)
    assert goqueue_broker.clock.now_ms == began


def test_messages_have_the_brokers_time(goqueue_broker: Broker, goqueue_client: Client) -> None:
    goqueue_broker.clock.advance("90m")
    goqueue_client.publish("jobs", "a")

    (message,) = goqueue_client.read("jobs", partition=0, offset=0)

    assert message.timestamp_ms == goqueue_broker.clock.now_ms


def test_a_delay_is_over_to_the_millisecond(goqueue_broker: Broker, goqueue_client: Client) -> None:
    goqueue_client.publish("jobs", "a", delay="10m")

    goqueue_broker.clock.advance(599.999)
    assert not texts(goqueue_client, "mail")

    goqueue_broker.clock.advance(0.001)
    assert texts(goqueue_client, "mail") == ["a"]


def test_a_lease_ends_and_a_backoff_is_waited_for(
    goqueue_broker: Broker, goqueue_client: Client
) -> None:
    goqueue_client.publish("jobs", "a")
    (first,) = goqueue_client.receive("mail", "jobs", visibility="30s")
    goqueue_broker.clock.advance("29s")
    assert not texts(goqueue_client, "mail")
    goqueue_broker.clock.advance("1s")
    (second,) = goqueue_client.receive("mail", "jobs")
    assert (first.attempt, second.attempt) == (1, 2)

    second.nack(delay="5s")
    goqueue_broker.clock.advance(4.999)
    assert not texts(goqueue_client, "mail")
    goqueue_broker.clock.advance(0.001)
    assert texts(goqueue_client, "mail") == ["a"]


def test_a_message_is_gone_when_its_life_is_over(
    goqueue_broker: Broker, goqueue_client: Client
) -> None:
    goqueue_client.publish("jobs", "short", ttl="1m")
    goqueue_client.publish("jobs", "long")

    goqueue_broker.clock.advance("1m")

    assert texts(goqueue_client, "mail") == ["long"]


def test_an_hour_of_schedules_runs_each_at_its_time(
    goqueue_broker: Broker, goqueue_client: Client
) -> None:
    began_ms = goqueue_broker.clock.now_ms
    goqueue_client.create_topic("jobs")
    goqueue_client.create_schedule("tick", "jobs", cron="*/10 * * * *", value="tick")
    goqueue_client.create_schedule("tock", "jobs", cron="*/15 * * * *", value="tock")

    goqueue_broker.clock.advance("1h")

    found = list(goqueue_client.read("jobs", partition=0, offset=0))
    runs = [((message.timestamp_ms - began_ms) // 60_000, message.text) for message in found]
    ticks = [(at, "tick") for at in range(10, 61, 10)]
    assert sorted(runs) == sorted([*ticks, *((at, "tock") for at in range(15, 61, 15))])
    assert [at for at, _ in runs] == sorted(at for at, _ in runs)


def test_retention_looks_when_time_has_passed(
    goqueue_broker: Broker, goqueue_client: Client
) -> None:
    goqueue_client.create_topic("jobs", retention_ms=3_600_000)
    goqueue_client.publish("jobs", "old")

    goqueue_broker.clock.advance("3h")

    assert goqueue_client.partitions("jobs")[0].earliest == 1


def test_the_same_program_has_the_same_results() -> None:
    def run() -> list[object]:
        with Broker(seed=7) as broker, broker.client() as client:
            client.create_topic("jobs", partitions=3)
            client.create_schedule("tick", "jobs", cron="*/20 * * * *", value="tick")
            published = [client.publish("jobs", str(row), delay=f"{row}m") for row in range(6)]
            client.receive("mail", "jobs", limit=1)
            broker.clock.advance("1h")
            received = [(m.id, m.attempt) for m in client.receive("mail", "jobs", limit=100)]
            events = [
                [(event.time, event.type) for event in broker.timeline(one)] for one in published
            ]
            return [published, received, events, broker.clock.now_ms]

    assert run() == run()


# waits


@pytest.fixture
def workers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def waiting(broker: Broker, client: Client, workers: ThreadPoolExecutor) -> Future[list[str]]:
    def receive() -> list[str]:
        return [message.text for message in client.receive("mail", "jobs", wait="20s")]

    future = workers.submit(receive)
    while not broker.waiting_requests:
        pass
    return future


def test_a_receive_that_waits_ends_when_its_time_is_over(
    goqueue_broker: Broker, goqueue_client: Client, workers: ThreadPoolExecutor
) -> None:
    goqueue_client.create_topic("jobs")
    future = waiting(goqueue_broker, goqueue_client, workers)

    goqueue_broker.clock.advance(19.999)
    assert not future.done()

    goqueue_broker.clock.advance(0.001)
    assert future.result(10) == []


def test_a_receive_that_waits_is_told_of_a_delayed_message(
    goqueue_broker: Broker, goqueue_client: Client, workers: ThreadPoolExecutor
) -> None:
    goqueue_client.publish("jobs", "a", delay="10s")
    future = waiting(goqueue_broker, goqueue_client, workers)

    goqueue_broker.clock.advance("1h")

    assert future.result(10) == ["a"]


# members and consumers


def test_a_silent_member_is_gone_after_its_session(
    goqueue_broker: Broker, goqueue_client: Client
) -> None:
    goqueue_client.create_topic("jobs")
    goqueue_client.join_group("mail", ["jobs"], client_id="one", session_timeout="30s")

    goqueue_broker.clock.advance("29s")
    assert len(goqueue_client.admin.members("mail").members) == 1

    goqueue_broker.clock.advance("1s")
    assert goqueue_client.admin.members("mail").members == []


def test_consumers_work_while_time_passes(
    goqueue_broker: Broker, goqueue_client: Client, workers: ThreadPoolExecutor
) -> None:
    """Twice it fails, and comes again after its backoff; its runner stays a member for an hour."""
    tries: list[tuple[int, int]] = []
    began_ms = goqueue_broker.clock.now_ms

    def handle(message: object) -> None:
        attempt = getattr(message, "attempt")  # noqa: B009 - of either kind of message
        tries.append((attempt, goqueue_broker.clock.now_ms - began_ms))
        if attempt < 3:
            raise ValueError("not yet")

    goqueue_client.publish("jobs", "a")
    goqueue_client.put_group("mail", backoff="10s")
    with Consumer(goqueue_client, "mail", "jobs") as consumer:
        running = workers.submit(consumer.run, handle)
        goqueue_broker.run_until_idle("1h")
        consumer.close()
        running.result(10)

    assert [attempt for attempt, _ in tries] == [1, 2, 3]
    assert tries[0][1] == 0
    assert tries[1][1] >= 5_000  # a backoff is shortened by up to a half, at random
    goqueue_broker.assert_acked("jobs", "mail", count=1)


def test_who_does_not_finish_is_named(goqueue_broker: Broker, goqueue_client: Client) -> None:
    goqueue_client.publish("jobs", "a")
    (message,) = goqueue_client.receive("mail", "jobs")
    began = goqueue_broker.clock.now

    with pytest.raises(NotIdle, match=r"(?s)group mail of jobs: 1 in flight.*jobs:0:0"):
        goqueue_broker.run_until_idle("1h", timeout="10ms")
    assert goqueue_broker.clock.now == began

    message.ack()
    goqueue_broker.run_until_idle("1h")
    assert goqueue_broker.clock.now - began == timedelta(hours=1)


async def test_what_a_member_is_about_to_ask_for_is_not_done(
    goqueue_broker: Broker, goqueue_async_client: AsyncClient
) -> None:
    """No receive has begun the group in this partition yet."""
    await goqueue_async_client.publish("jobs", "a")
    await goqueue_async_client.put_group("mail", mode="shared")
    joined = await goqueue_async_client.join_group("mail", ["jobs"], client_id="one")

    with pytest.raises(NotIdle, match="group mail of jobs: 0 in flight, 1 ready"):
        await goqueue_broker.until_idle(timeout="10ms")

    await goqueue_async_client.put_group("late", mode="shared", start="latest")
    await goqueue_async_client.join_group("late", ["jobs"], client_id="two")
    await goqueue_async_client.leave_group("mail", joined.member_id)
    await goqueue_broker.until_idle()


async def test_consumers_on_the_tests_own_loop_work_too(
    goqueue_broker: Broker, goqueue_async_client: AsyncClient
) -> None:
    done: list[str] = []

    async def work() -> None:
        for message in await goqueue_async_client.receive("mail", "jobs", wait="1m"):
            done.append(message.text)
            await message.ack()

    await goqueue_async_client.publish("jobs", "a", delay="30s")
    working = asyncio.create_task(work())
    await goqueue_broker.until_idle("1h")
    await working

    assert done == ["a"]
    goqueue_broker.assert_acked("jobs", "mail")
