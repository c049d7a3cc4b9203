"""The blocking client and producer, from threads that have no event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from goqueue import Client, OutgoingMessage, RetryPolicy
from goqueue.blocking import loop_thread
from goqueue.blocking.loop_thread import LoopThread
from goqueue.errors import BadRequest, Closed, TopicExists, UnknownTopic
from tests.unit.goqueue.server import FakeCluster, Fault

QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)


@pytest.fixture
def served() -> Iterator[tuple[FakeCluster, str]]:
    """A server on a loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def create() -> FakeCluster:
        return FakeCluster()

    cluster = asyncio.run_coroutine_threadsafe(create(), loop).result()
    context = cluster.serve()
    url = asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result()
    yield cluster, url
    asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_everything_works_without_a_loop(served: tuple[FakeCluster, str]) -> None:
    _, url = served
    with Client(url, retry=QUICK) as client:
        assert client.create_topic("orders", partitions=2).partitions == 2
        with pytest.raises(TopicExists):
            client.create_topic("orders")
        assert client.list_topics() == ["orders"]
        assert client.topic("orders").partitions == 2
        assert len(client.partitions("orders")) == 2
        assert client.admin.cluster().nodes == 3
        assert client.health()["status"] == "ok"

        published = client.publish("orders", "hello", key="k1")
        many = client.publish_many("orders", [OutgoingMessage("more", partition=1), "and more"])
        page = client.read("orders", published.partition, published.offset)

        assert page.messages[0].text == "hello"
        assert len(many) == 2
        assert sorted(m.text for m in client.messages("orders")) == ["and more", "hello", "more"]
        client.delete_topic("orders")
        with pytest.raises(UnknownTopic):
            client.topic("orders")


def test_a_producer_blocks_and_delivers(served: tuple[FakeCluster, str]) -> None:
    cluster, url = served
    cluster.create("orders", 1)
    cluster.faults.append(Fault.CUT_AFTER)
    with Client(url, retry=QUICK) as client:
        with client.producer(linger_ms=1) as producer:
            first = producer.send("orders", "0")
            producer.send_many("orders", (str(number) for number in range(1, 1500)))
            producer.flush()
            assert first.result(timeout=5).offset == 0

        values = [int(message.value) for message in client.messages("orders", 0)]

    assert values == list(range(1500))


def test_a_failure_is_told_by_the_future_and_by_close(served: tuple[FakeCluster, str]) -> None:
    cluster, url = served
    cluster.create("orders", 1)
    cluster.faults.append(BadRequest("no"))
    with Client(url, retry=QUICK) as client:
        producer = client.producer(linger_ms=1)
        future = producer.send("orders", "v")
        with pytest.raises(BadRequest, match="no"):
            producer.close()
        with pytest.raises(BadRequest, match="no"):
            future.result(timeout=5)


def test_calls_may_come_from_many_threads(served: tuple[FakeCluster, str]) -> None:
    cluster, url = served
    cluster.create("orders", 1)
    with Client(url) as client, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: client.publish("orders", str(n)).offset, range(64)))

    assert sorted(results) == list(range(64))


def test_a_closed_client_refuses_and_leaves_no_thread(served: tuple[FakeCluster, str]) -> None:
    _, url = served
    before = threading.active_count()
    client = Client(url)
    client.list_topics()
    assert threading.active_count() == before + 1

    client.close()
    client.close()

    assert threading.active_count() == before
    with pytest.raises(Closed):
        client.list_topics()


def test_an_iteration_may_be_left_and_the_client_closed(served: tuple[FakeCluster, str]) -> None:
    cluster, url = served
    cluster.create("orders", 2)
    client = Client(url)
    client.publish("orders", "v")
    before = threading.active_count()

    messages = client.messages("orders", follow=True)
    assert next(messages).text == "v"
    client.close()

    assert threading.active_count() == before - 1
    with pytest.raises(Closed):
        next(messages)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell's background jobs are started with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_iteration_that_waits_may_be_interrupted(served: tuple[FakeCluster, str]) -> None:
    cluster, url = served
    cluster.create("orders", 1)
    main = threading.main_thread().ident
    assert main is not None

    with Client(url) as client:
        client.publish("orders", "v")
        messages = client.messages("orders", follow=True)
        assert next(messages).text == "v"
        threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt) as interrupted:
            next(messages)

        assert interrupted.value.__context__ is None
        assert client.topic("orders").partitions == 1


def test_what_a_producer_had_not_sent_when_its_client_closed_has_failed(
    served: tuple[FakeCluster, str],
) -> None:
    cluster, url = served
    cluster.create("orders", 1)
    with Client(url, retry=QUICK) as client:
        accepted = client.producer(linger_ms=10_000).send("orders", "v")

    with pytest.raises(Closed) as failed:
        accepted.result(5.0)

    assert failed.value.outcome == "none"


def test_a_call_that_comes_as_another_thread_closes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an order between the two, its work began on a loop that nobody would run again."""
    thread = LoopThread()
    thread.run(asyncio.sleep(0))
    swept, begun = threading.Event(), threading.Event()
    end_tasks, submit = loop_thread._end_tasks, asyncio.run_coroutine_threadsafe
    closing = threading.Thread(target=thread.stop)

    async def end_all() -> None:
        await end_tasks()
        swept.set()
        await asyncio.to_thread(begun.wait, 5.0)

    async def receive() -> None:
        begun.set()
        await asyncio.Event().wait()

    def submitted(work: Any, loop: asyncio.AbstractEventLoop) -> Any:
        if not closing.ident:
            closing.start()
            swept.wait(0.3)
            future = submit(work, loop)
            begun.wait(5.0)
            return future
        return submit(work, loop)

    monkeypatch.setattr(loop_thread, "_end_tasks", end_all)
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", submitted)

    told: list[Closed] = []

    def call() -> None:
        with pytest.raises(Closed) as closed:
            thread.run(receive())
        told.append(closed.value)

    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(5.0)

    assert not calling.is_alive()
    closing.join()
    assert told


async def test_a_call_that_its_client_is_closed_under_says_that_its_outcome_is_unknown() -> None:
    thread, begun = LoopThread(), threading.Semaphore(0)

    async def receive() -> None:
        begun.release()
        await asyncio.Event().wait()

    calls = [
        asyncio.ensure_future(asyncio.to_thread(thread.run, receive())),
        asyncio.ensure_future(thread.run_awaited(receive())),
    ]
    for _ in calls:
        await asyncio.to_thread(begun.acquire)
    await asyncio.to_thread(thread.stop)

    for found in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(found, Closed), found
        assert found.outcome == "unknown"


async def test_a_wait_that_is_cancelled_is_told_so_by_a_client_that_is_closed_too() -> None:
    thread = LoopThread()
    call = asyncio.ensure_future(thread.run_awaited(asyncio.Event().wait()))
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.to_thread(thread.stop)

    with pytest.raises(asyncio.CancelledError):
        await call


def test_a_client_that_was_never_used_closes() -> None:
    Client("http://127.0.0.1:1").close()
