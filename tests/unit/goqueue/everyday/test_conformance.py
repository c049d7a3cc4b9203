"""The same calls on a directory, through its owner's socket, and on a server: the same answers.

In real time, as programs have it; tests of the front and of the queue move a clock for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import goqueue
from goqueue import Client, Consumer, DeadFilter, OutgoingMessage, Queue
from goqueue.errors import BadRequest, NotFound, ReceiptExpired, TopicExists, UnknownTopic
from tests.cluster.processes import eventually

WAIT_S = 30


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with goqueue.open(target) as client:
        client.create_topic("orders", partitions=1)
        yield client


def receive(client: Client, limit: int = 10, group: str = "billing") -> list[str]:
    found = client.receive(group, "orders", limit=limit, wait=WAIT_S)
    client.ack(found)
    return [message.text for message in found]


def test_messages_are_published_read_received_and_settled(client: Client) -> None:
    place = client.publish("orders", "a", key="k1", headers={"tenant": "acme", "raw": b"\xff"})
    client.publish_many("orders", ["b", OutgoingMessage("c", key="k1")])

    stored = client.read("orders").messages
    assert [message.text for message in stored] == ["a", "b", "c"]
    assert stored[0].headers == (("tenant", b"acme"), ("raw", b"\xff"))
    assert (place.offset, stored[0].key) == (0, b"k1")
    first, second = client.receive("billing", "orders", limit=2, wait=WAIT_S)
    first.ack()
    second.nack("not yet")
    again, third = client.receive("billing", "orders", limit=2, wait=WAIT_S)
    assert (again.text, again.attempt, again.last_reason) == ("b", 2, "not yet")
    again.release()
    third.ack()
    assert receive(client) == ["b"]
    assert client.lag("billing", "orders").total_lag == 0


def test_a_producer_sends_many_each_once(client: Client) -> None:
    with client.producer() as producer:
        producer.send_many("orders", [f"{number}" for number in range(2500)])
        producer.flush()

    assert [one.text for one in client.messages("orders")] == [f"{n}" for n in range(2500)]


def test_errors_have_their_classes(client: Client) -> None:
    with pytest.raises(TopicExists):
        client.create_topic("orders")
    with pytest.raises(UnknownTopic):
        client.topic("none")
    with pytest.raises(BadRequest):
        client.publish("orders", "x", delay="1h", ttl="1m")
    (message,) = _one(client)
    message.extend("50ms")
    client.receive("billing", "orders", wait=WAIT_S)  # its time is over
    with pytest.raises(ReceiptExpired):
        message.ack()


def _one(client: Client) -> list[goqueue.BlockingReceived]:
    client.publish("orders", "x")
    return client.receive("billing", "orders", limit=1, wait=WAIT_S)


def test_groups_get_every_message_and_members_share_partitions(client: Client) -> None:
    client.create_topic("shared", partitions=2)
    for partition in (0, 1):
        client.publish("shared", f"p{partition}", partition=partition)
    client.publish("orders", "for both")

    assert receive(client, group="billing") == receive(client, group="audit") == ["for both"]
    with Consumer(client, "workers", "shared") as consumer:
        found = {next(iter(consumer)).text for _ in range(2)}
    assert found == {"p0", "p1"}
    assert client.group("workers").generation >= 1


def test_delays_end_and_can_be_cancelled(client: Client) -> None:
    never = client.publish("orders", "never", delay="1h")
    assert client.receive("billing", "orders") == []
    soon = client.publish("orders", "soon", delay="100ms")

    assert soon.deliver_at_ms is not None
    assert [one.offset for one in client.delayed("orders")][-1] == never.offset
    client.cancel_delayed("orders", 0, never.offset)
    assert receive(client) == ["soon"]
    with pytest.raises(NotFound):
        client.cancel_delayed("orders", 0, 99)


def test_priorities_go_first_and_what_expired_never_comes(client: Client) -> None:
    client.publish("orders", "expires", ttl="1ms", priority="critical")
    client.publish("orders", "normal")
    client.publish("orders", "high", priority="high")
    eventually("its expiry", lambda: client.why("orders:0:0").state == "expired" or None)

    assert receive(client) == ["high", "normal"]


def test_an_id_is_stored_once(client: Client) -> None:
    first = client.publish("orders", "a", message_id="order-1")
    again = client.publish("orders", "a", message_id="order-1")

    assert (again.duplicate, again.offset) == (True, first.offset)
    assert client.topic("orders").total_messages == 1


def test_dead_letters_are_listed_counted_and_redriven(client: Client) -> None:
    for reason in ("no bank", "no bank", "no name"):
        client.publish("orders", reason)
        (message,) = client.receive("billing", "orders", limit=1, wait=WAIT_S)
        message.reject(reason)

    assert [dead.reason for dead in client.dead_letters("billing", "orders")] == [
        "no bank",
        "no bank",
        "no name",
    ]
    job = client.admin.redrive("billing", "orders", DeadFilter(reason="no bank"))
    eventually(
        "the redrive's end",
        lambda: [one for one in client.admin.redrives("billing") if one.state == "done"],
    )
    assert job.matched == 2
    assert receive(client) == ["no bank", "no bank"]
    assert client.admin.purge("billing", "orders") == 1


def test_schedules_publish_and_are_paused(client: Client) -> None:
    client.create_schedule("nightly", "orders", "tick", every="1s")

    assert receive(client, limit=1) == ["tick"]
    assert client.pause_schedule("nightly").state == "paused"
    assert client.schedule("nightly").runs >= 1
    client.delete_schedule("nightly")
    assert client.schedules() == []


def test_a_message_tells_its_story_and_why_it_waits(client: Client) -> None:
    client.publish("orders", "a", message_id="order-1", key="k1")
    client.publish("orders", "later", delay="1h")
    (message,) = client.receive("billing", "orders", limit=1, wait=WAIT_S)
    assert [group.state for group in client.why("orders:0:0")] == ["in_flight"]
    message.ack()

    story = client.timeline("order-1", topic="orders")
    types = [event.type for event in story]
    assert types[0] == "PUBLISHED"
    assert {"DELIVERED", "ACKNOWLEDGED"} <= set(types)
    assert story.status == "completed"
    waiting = client.why("orders:0:1", group="billing")
    assert waiting.state == "delayed"
    assert waiting.reasons[0].until is not None
    found = client.search("orders", key="k1")
    assert [one.id for one in found] == ["orders:0:0"]


def test_positions_are_set_and_told(client: Client) -> None:
    client.publish_many("orders", ["a", "b", "c"])

    client.put_group("billing")
    assert client.seek("billing", "orders", 2) == {0: 2}
    assert receive(client) == ["c"]
    assert client.offsets("billing", "orders") == {"orders": {0: 3}}
    assert client.commit_offsets("billing", {"orders": {0: 3}}) == {"orders": {0: 3}}


def test_the_space_of_what_is_done_is_given_back(client: Client) -> None:
    client.admin.finish_upgrade()  # a directory does that by itself
    queue = Queue[str](client, "jobs")
    queue.put_many(["x" * 1000] * 50)
    queue.put("dead")
    done = queue.get_many(51, timeout=WAIT_S)
    done[-1].message.reject("poison")
    queue.ack(*done[:-1])

    went = queue.compact()

    assert (went.topic, went.messages, went.partitions[0].earliest) == ("jobs", 51, 51)
    assert went.bytes > 50_000
    assert queue.compact().bytes == 0
    queue.put("new")
    assert queue.requeue() == 1
    assert sorted(item.value for item in queue.get_many(2)) == ["dead", "new"]
    assert queue.compact().partitions[0].kept_for == queue.group
    with pytest.raises(UnknownTopic):
        client.trim_topic("nope")
