"""The broker of a test: how it is asked, made to fail, and begun anew."""

from __future__ import annotations

import unittest
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request, urlopen

import pytest

from goqueue import AsyncClient, Client, Queue, RetryPolicy, SettleFailed
from goqueue.testing import Broker
from goqueue.testing import broker as broker_module
from goqueue.wire.errors import BadRequest, Busy, GoQueueError, OutcomeUnknown, Unavailable

ONCE = RetryPolicy(attempts_max=1)


def texts(client: Client, group: str = "mail") -> list[str]:
    return [message.text for message in client.receive(group, "jobs", limit=100)]


# its life


def test_a_reset_broker_is_as_new(goqueue_broker: Broker, goqueue_client: Client) -> None:
    first = goqueue_client.publish("jobs", "a")
    goqueue_broker.clock.advance("1h")
    goqueue_broker.fail_next(times=9)
    goqueue_broker.pause()

    goqueue_broker.reset()

    assert goqueue_client.list_topics() == []
    assert goqueue_broker.clock.now.hour == 0
    assert goqueue_client.publish("jobs", "b") == first
    assert texts(goqueue_client) == ["b"]


@pytest.mark.goqueue(now="2027-03-28T00:59:00+00:00")
def test_time_begins_where_the_test_says(goqueue_broker: Broker, goqueue_client: Client) -> None:
    """An hour that Berlin does not have."""
    goqueue_client.create_topic("jobs")
    goqueue_client.create_schedule(
        "night", "jobs", cron="30 2 * * *", timezone="Europe/Berlin", value="run"
    )
    assert goqueue_broker.clock.now.year == 2027

    goqueue_broker.clock.advance("1m")

    assert goqueue_client.schedule("night").runs == 1


def test_a_reset_may_name_another_time_once(goqueue_broker: Broker) -> None:
    goqueue_broker.reset(now="2030-01-01T00:00:00+00:00")
    assert goqueue_broker.clock.now.year == 2030
    goqueue_broker.reset()
    assert goqueue_broker.clock.now.year == 2026


def test_whoever_waits_loses_the_answer_when_the_broker_is_reset(
    goqueue_broker: Broker,
) -> None:
    client = goqueue_broker.client(retry=ONCE)
    goqueue_broker.pause()
    with ThreadPoolExecutor(1) as workers:
        asked = workers.submit(client.list_topics)
        while not goqueue_broker.waiting_requests:
            pass
        goqueue_broker.reset()

        with pytest.raises(OutcomeUnknown):
            asked.result(10)


def test_what_is_not_started_says_so() -> None:
    with pytest.raises(Unavailable, match="not started"):
        Broker().clock.advance("1h")


def test_without_the_server_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goqueue.testing.engine.entry_points", lambda **_: ())
    with pytest.raises(GoQueueError, match=r"pip install .goqueue\[local\]"):
        Broker().start()


class ForUnittest(unittest.TestCase):
    def test_it_is_a_context_manager(self) -> None:
        broker = self.enterContext(Broker())
        broker.client().publish("jobs", "a")

        assert texts(broker.client()) == ["a"]
        broker.close()
        broker.close()


# how it is asked


def test_it_is_served_by_http(goqueue_broker: Broker) -> None:
    with Client(goqueue_broker.url) as client:
        client.publish("jobs", "a")
        goqueue_broker.clock.advance("1h")  # the connection stays: its time is the machine's
        assert texts(client) == ["a"]
    body = b'{"messages": [{"value": "b"}]}'
    asked = Request(f"{goqueue_broker.url}/v1/topics/jobs/messages", body, method="POST")
    with urlopen(asked) as answer:
        assert answer.status == 200


def test_its_url_stays_when_it_is_reset(goqueue_broker: Broker) -> None:
    url = goqueue_broker.url
    with Client(url) as client:
        client.publish("jobs", "a")
        goqueue_broker.reset()

        assert goqueue_broker.url == url
        assert client.list_topics() == []


def test_an_error_over_http_is_the_brokers(goqueue_broker: Broker) -> None:
    with Client(goqueue_broker.url) as client, pytest.raises(BadRequest):
        client.publish("no name", "a")


def test_a_queue_is_of_the_broker(goqueue_queue: Queue[str], goqueue_broker: Broker) -> None:
    goqueue_queue.put("a")
    goqueue_queue.get().ack()

    goqueue_broker.assert_acked("queue", "queue", count=1)


async def test_an_async_client_is_of_the_broker(
    goqueue_async_client: AsyncClient, goqueue_broker: Broker
) -> None:
    await goqueue_async_client.publish("jobs", "a")
    assert texts(goqueue_broker.client()) == ["a"]


# faults


def test_the_next_publish_fails(goqueue_broker: Broker) -> None:
    client = goqueue_broker.client(retry=ONCE)
    goqueue_broker.fail_next("publish", Busy("full"))

    client.list_topics()
    with pytest.raises(Busy, match="full"):
        client.publish("jobs", "a")
    client.publish("jobs", "b")

    assert texts(client) == ["b"]


def test_a_client_repeats_what_failed(goqueue_broker: Broker, goqueue_client: Client) -> None:
    goqueue_client.create_topic("jobs")
    goqueue_broker.fail_next("publish", times=1)
    goqueue_client.publish("jobs", "a")

    assert texts(goqueue_client) == ["a"]


def test_receives_and_settles_fail_each_by_their_name(goqueue_broker: Broker) -> None:
    client = goqueue_broker.client(retry=ONCE)
    client.publish("jobs", "a")
    goqueue_broker.fail_next("settle", Busy)
    goqueue_broker.fail_next("receive")

    with pytest.raises(Unavailable):
        client.receive("mail", "jobs")
    (message,) = client.receive("mail", "jobs")
    with pytest.raises(SettleFailed):
        client.ack(message)
    client.ack(message)

    goqueue_broker.assert_acked("jobs", "mail")


@pytest.mark.parametrize("by_http", [False, True])
def test_an_answer_is_lost_after_it_was_done(goqueue_broker: Broker, by_http: bool) -> None:
    client = Client(goqueue_broker.url, retry=ONCE) if by_http else None
    with client or goqueue_broker.client(retry=ONCE) as asking:
        goqueue_broker.fail_next("publish", lose_answer=True)
        with pytest.raises(OutcomeUnknown):
            asking.publish("jobs", "a")

        assert texts(asking) == ["a"]


def test_what_can_not_be_made_to_fail_is_refused(goqueue_broker: Broker) -> None:
    with pytest.raises(BadRequest, match="publish, receive, settle, any"):
        goqueue_broker.fail_next("delete")  # type: ignore[arg-type]
    with pytest.raises(BadRequest):
        goqueue_broker.fail_next(times=0)
    with pytest.raises(BadRequest):
        goqueue_broker.fail_next("any", Busy, lose_answer=True)


def test_a_paused_broker_answers_when_it_goes_on(goqueue_broker: Broker) -> None:
    client = goqueue_broker.client()
    goqueue_broker.pause()
    with ThreadPoolExecutor(1) as workers:
        asked = workers.submit(client.publish, "jobs", "a")
        while not goqueue_broker.waiting_requests:
            pass
        goqueue_broker.clock.advance("1h")
        assert not asked.done()

        goqueue_broker.resume()

        assert asked.result(10).offset == 0
    assert texts(client) == ["a"]


@pytest.mark.parametrize("power_cut", [False, True])
def test_what_was_acknowledged_is_there_after_a_restart(
    goqueue_broker: Broker, goqueue_client: Client, power_cut: bool
) -> None:
    goqueue_client.publish_many("jobs", ["a", "b"])
    (first,) = goqueue_client.receive("mail", "jobs", limit=1)
    goqueue_broker.clock.advance("10s")
    now = goqueue_broker.clock.now

    goqueue_broker.restart(power_cut=power_cut)

    assert goqueue_broker.clock.now == now
    assert texts(goqueue_client) == ["b"]
    first.ack()  # its lease is there, too
    goqueue_broker.assert_acked("jobs", "mail", count=1)


# what became of messages


def test_all_acked_is_said_of_nothing_less(goqueue_broker: Broker, goqueue_client: Client) -> None:
    for text in ("first", "second"):
        goqueue_client.publish("jobs", text)
    (message,) = goqueue_client.receive("mail", "jobs", limit=1)
    message.ack()

    goqueue_broker.assert_acked("jobs", "mail", count=1)
    with pytest.raises(AssertionError) as told:
        goqueue_broker.assert_acked("jobs", "mail")

    lines = str(told.value)
    assert lines.startswith("group mail has acked 1 of 2 messages of jobs, expected 2")
    assert "jobs:0:1 b'second' in_progress (mail: ready)" in lines
    assert "2026-01-01 00:00:00.000000 PUBLISHED" in lines
    assert "first" not in lines


@pytest.mark.parametrize(("topic", "group"), [("nowhere", "mail"), ("jobs", "nobody")])
def test_nothing_is_acked_of_what_is_not_there(
    goqueue_broker: Broker, goqueue_client: Client, topic: str, group: str
) -> None:
    goqueue_client.publish("jobs", "a")
    goqueue_broker.assert_acked(topic, group, count=0)
    assert goqueue_broker.dead_letters(topic, group) == []
    with pytest.raises(AssertionError, match="has acked 0"):
        goqueue_broker.assert_acked(topic, group)


def test_dead_letters_have_their_reasons(goqueue_broker: Broker, goqueue_client: Client) -> None:
    published = goqueue_client.publish("jobs", "a")
    (message,) = goqueue_client.receive("mail", "jobs")
    message.reject("no such address")

    (dead,) = goqueue_broker.dead_letters("jobs", "mail")

    assert (dead.text, dead.reason) == ("a", "no such address")
    types = [event.type for event in goqueue_broker.timeline(published)]
    assert types[0] == "PUBLISHED"
    assert goqueue_broker.timeline(message) == goqueue_broker.timeline(published.id)


def test_checks_pass_by_what_is_made_to_fail(
    goqueue_broker: Broker, goqueue_client: Client
) -> None:
    goqueue_client.publish("jobs", "a")
    goqueue_broker.fail_next(times=5)
    goqueue_broker.pause()

    goqueue_broker.assert_acked("jobs", "mail", count=0)


def test_the_beginning_is_a_time() -> None:
    with pytest.raises(BadRequest):
        Broker(now="yesterday")
    assert broker_module.START.endswith("+00:00")
