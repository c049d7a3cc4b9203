"""The blocking consumer, from threads that have no event loop."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from goqueue import BlockingReceived, Client, Consumer, OutgoingMessage, TopicPartition
from goqueue.errors import UnknownTopic
from goqueue.testing import Broker

PLACES = [TopicPartition("orders", number) for number in range(4)]


@pytest.fixture
def url(goqueue_broker: Broker) -> str:
    return goqueue_broker.url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        client.create_topic("orders", partitions=4)
        yield client


def publish(client: Client, count: int) -> None:
    client.publish_many(
        "orders", [OutgoingMessage(str(number), partition=number % 4) for number in range(count)]
    )


def eventually(condition: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < ends_s, "it never came to hold"
        time.sleep(0.002)


def test_it_iterates_settles_and_leaves(client: Client, url: str) -> None:
    publish(client, 10)
    values = set()

    with Consumer(url, "billing", "orders") as consumer:
        for message in consumer:
            values.add(int(message.text))
            assert message.ack().state == "acked"
            if len(values) == 10:
                break
        assert consumer.assignment == PLACES
        assert consumer.next(0.02) is None

    assert values == set(range(10))
    assert client.lag("billing").total_lag == 0
    assert client.admin.members("billing").members == []


def test_handlers_run_in_threads_and_what_they_raise_is_a_nack(client: Client) -> None:
    publish(client, 20)
    together = threading.Barrier(4, timeout=5.0)
    done: Counter[str] = Counter()
    names = set()
    consumer = Consumer(client, "billing", "orders")

    def handle(message: BlockingReceived) -> None:
        names.add(threading.current_thread().name)
        if len(done) < 4:
            together.wait()
        if message.text == "7" and message.attempt == 1:
            raise ValueError("not today")
        done[message.text] += 1
        if len(done) == 20:
            consumer.stop()

    with consumer:
        consumer.run(handle, concurrency=4)

    assert set(done.values()) == {1}
    assert len(names) == 4
    assert client.lag("billing").total_lag == 0


def test_callbacks_may_use_the_client_and_are_told_of_partitions(client: Client) -> None:
    said: list[tuple[str, list[TopicPartition]]] = []

    def on_assign(places: list[TopicPartition]) -> None:
        assert client.topic("orders").partitions == 4
        said.append(("assigned", places))

    with Consumer(
        client, "billing", "orders",
        rebalance_on_assign=on_assign,
        rebalance_on_revoke=lambda places: said.append(("revoked", places)),
    ) as consumer:  # fmt: skip
        eventually(lambda: bool(said))
        assert consumer.member_id
        assert consumer.generation > 0

    assert said == [("assigned", PLACES), ("revoked", PLACES)]


def test_a_paused_consumer_gets_nothing_until_it_is_resumed(client: Client) -> None:
    with Consumer(client, "billing", "orders") as consumer:
        eventually(lambda: consumer.assignment == PLACES)
        consumer.pause()
        publish(client, 1)
        assert consumer.paused == PLACES
        assert consumer.next(0.05) is None

        consumer.resume()

        assert consumer.next(30.0) is not None


def test_a_stop_ends_iteration_in_other_threads(client: Client) -> None:
    with Consumer(client, "billing", "orders") as consumer:
        found: list[BlockingReceived] = []
        thread = threading.Thread(target=lambda: found.extend(consumer))
        thread.start()
        consumer.stop()
        thread.join(5.0)

        assert not thread.is_alive()
        assert found == []


def test_a_refused_start_says_why_and_closes(client: Client, url: str) -> None:
    with pytest.raises(UnknownTopic), Consumer(url, "billing", "missing"):
        pass


def test_it_may_outlive_its_client_and_be_closed_twice(url: str) -> None:
    with Client(url) as client:
        client.create_topic("orders", partitions=4)
        consumer = Consumer(client, "billing", "orders")
        consumer.start()
    consumer.close()
    consumer.close()


@pytest.mark.parametrize("leaver", ["0", "1"])
def test_a_handler_that_exits_ends_the_run_whichever_thread_it_is_in(
    client: Client, url: str, leaver: str
) -> None:
    publish(client, 8)
    exited = threading.Event()
    raised: list[BaseException] = []

    def handle(_: BlockingReceived) -> None:
        if threading.current_thread().name.endswith(leaver):
            exited.set()
            raise SystemExit(3)
        exited.wait(5.0)

    with Consumer(url, "billing", "orders") as consumer:

        def run() -> None:
            try:
                consumer.run(handle, concurrency=2)
            except SystemExit as error:
                raised.append(error)

        running = threading.Thread(target=run)
        running.start()
        running.join(5.0)
        has_ended = not running.is_alive()
        consumer.stop()
        running.join()

    assert (has_ended, [str(error) for error in raised]) == (True, ["3"])
