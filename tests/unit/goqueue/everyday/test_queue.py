"""`goqueue.Queue`: what is put in comes out, in order, once it is due, until it is done."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest

import goqueue
from goqueue import Queue
from goqueue.blocking.received import BlockingReceived
from goqueue.errors import (
    BadRequest,
    Closed,
    Empty,
    NotInFlight,
    PayloadTooLarge,
    SettleFailed,
    TopicExists,
    UnknownTopic,
)
from goqueue.everyday.items import Items, Unfit
from goqueue.models.messages import Message
from goqueue.models.settles import Settled
from goqueue.models.times import Duration

GET_S = 30.0


@dataclass
class Job:
    name: str
    size: int = 0


class Point(msgspec.Struct):
    x: int
    y: int


class Letter(pydantic.BaseModel):
    to: str
    at: datetime


@pytest.fixture
def jobs(target: str) -> Iterator[Queue[Any]]:
    with Queue(target) as jobs:
        yield jobs


def drained(jobs: Queue[Any]) -> list[Any]:
    """What can be taken out now, acked."""
    found = []
    while True:
        try:
            items = jobs.get_many(100, timeout=0)
        except Empty:
            return found
        jobs.ack(*items)
        found += [item.value for item in items]


def test_items_come_first_in_first_out_and_once(jobs: Queue[Any]) -> None:
    for number in range(5):
        jobs.put(f"job {number}")

    first = jobs.get()
    assert (first.value, first.message.attempt) == ("job 0", 1)
    jobs.ack(first)
    assert drained(jobs) == ["job 1", "job 2", "job 3", "job 4"]
    assert jobs.empty()
    assert jobs.client.partitions(jobs.topic)[0].next == 5


def test_what_is_put_together_is_put_as_a_whole_or_not_at_all(target: str) -> None:
    with Queue[Any](target, "together", partitions=3) as jobs:
        stored = jobs.put_many(["a", b"b", "c"])
        assert [one.offset for one in stored] == [0, 1, 2]
        assert len({one.partition for one in stored}) == 1

        with pytest.raises(BadRequest):
            jobs.put_many(["d", 5])
        with pytest.raises(PayloadTooLarge, match="the topic's 1048576 bytes"):
            jobs.put_many([b"e", bytes((1 << 20) + 1)])
        with pytest.raises(PayloadTooLarge, match="at most 100000 and 15728640"):
            jobs.put_many([b"f"] * 100_001)
        with pytest.raises(PayloadTooLarge) as told:
            jobs.put_many([bytes(1 << 20)] * 15)
        assert told.value.data["limit"] == 15 << 20
        assert jobs.put_many([]) == []
        assert jobs.size() == 3


def test_a_queue_says_how_durable_it_is(target: str) -> None:
    with Queue[str](target, "fast", durability="turbo") as fast, Queue[str](fast.client) as safe:
        assert fast.put("a").durability == "relaxed"
        assert {one.durability for one in fast.put_many(["b", "c"])} == {"relaxed"}
        fast.sync()
        assert safe.put("a").durability == "majority"
        with pytest.raises(BadRequest, match="want safe or turbo"):
            Queue(fast.client, "other", durability="quick")  # type: ignore[arg-type]


def test_bytes_and_str_come_as_they_were_put(jobs: Queue[Any]) -> None:
    values = [b"\x00\xff", "Grüße", b"", "", b"text"]

    assert [one.offset for one in jobs.put_many(values)] == [0, 1, 2, 3, 4]
    assert drained(jobs) == values


@pytest.mark.parametrize(
    ("kind", "item"),
    [
        (Job, Job("resize", 7)),
        (Point, Point(1, 2)),
        (dict[str, int], {"a": 1}),
        (Letter, Letter(to="a@example.org", at=datetime(2026, 1, 2, tzinfo=UTC))),
    ],
)
def test_typed_items_come_as_what_they_are(target: str, kind: Any, item: Any) -> None:
    with Queue(target, "typed", kind) as typed:
        typed.put(item)

        assert typed.peek() == item
        assert typed.get(GET_S).value == item


def test_an_item_of_another_type_is_not_put(target: str) -> None:
    with Queue(target, "typed", Job) as typed:
        with pytest.raises(BadRequest, match="str was put: this queue takes Job"):
            typed.put("resize")  # type: ignore[arg-type]
        with pytest.raises(BadRequest, match="takes Job"):
            typed.put_many([Job("a"), "b"])  # type: ignore[list-item]

        assert typed.empty()


def test_a_message_that_is_no_item_is_a_dead_letter_and_the_next_one_comes(target: str) -> None:
    with Queue(target, "typed", Job) as typed:
        typed.client.publish("typed", '{"name": 7}', partition=0)
        typed.put(Job("resize"))

        assert typed.get(GET_S).value == Job("resize")
        (dead,) = typed.client.dead_letters(typed.group, "typed")
        assert dead.reason.startswith("no Job: ")


def test_an_empty_queue_says_so_in_time(jobs: Queue[Any]) -> None:
    assert jobs.peek() is None
    for caught in (Empty, queue.Empty):
        with pytest.raises(caught):
            jobs.get(timeout=0)
    with pytest.raises(Empty):
        jobs.get_many(10, timeout=0.01)


def test_a_get_waits_for_a_put(jobs: Queue[Any]) -> None:
    found: list[Any] = []
    taker = threading.Thread(target=lambda: found.append(jobs.get().value))
    taker.start()
    jobs.put("at last")
    taker.join()

    assert found == ["at last"]


def test_what_is_nacked_comes_again_before_the_others(jobs: Queue[Any]) -> None:
    jobs.put_many(["a", "b"])
    jobs.get(GET_S).nack(reason="the disk is full")

    again = jobs.get(GET_S)
    assert (again.value, again.message.attempt) == ("a", 2)
    assert again.message.last_reason == "the disk is full"


def test_what_is_nacked_with_a_delay_comes_later(jobs: Queue[Any]) -> None:
    jobs.put_many(["a", "b"])
    jobs.nack(jobs.get(GET_S), delay="1h")

    assert drained(jobs) == ["b"]
    assert (jobs.stats().waiting, jobs.size()) == (1, 1)


def test_where_no_items_are_named_nothing_is_settled(jobs: Queue[Any]) -> None:
    jobs.put_many(["a", "b"])
    jobs.get_many(2, GET_S)

    assert jobs.ack() == [] == jobs.nack()

    assert jobs.stats().in_flight == 2


def test_task_done_acks_what_this_thread_took_last(jobs: Queue[Any]) -> None:
    jobs.put_many(["a", "b", "c"])
    jobs.get_many(2, GET_S)
    theirs = threading.Thread(target=jobs.get)
    theirs.start()
    theirs.join()

    assert len(jobs.task_done()) == 2
    assert jobs.stats().in_flight == 1
    with pytest.raises(BadRequest, match="taken nothing out"):
        jobs.task_done()


def test_what_was_acked_can_not_be_settled_again(jobs: Queue[Any]) -> None:
    jobs.put("a")
    item = jobs.get(GET_S)
    item.ack()

    with pytest.raises(NotInFlight):
        item.nack()
    with pytest.raises(SettleFailed):
        jobs.ack(item)


def test_higher_priorities_and_delays_change_the_order(jobs: Queue[Any]) -> None:
    jobs.put("later", delay="1h")
    jobs.put("low", priority="low")
    jobs.put("high", priority="high")

    assert drained(jobs) == ["high", "low"]
    assert (jobs.stats().delayed, jobs.size(), jobs.empty()) == (1, 1, False)


def test_an_id_is_put_once(jobs: Queue[Any]) -> None:
    first, again = jobs.put("a", id="order-1"), jobs.put("a", id="order-1")

    assert (first.duplicate, again.duplicate, again.offset) == (False, True, first.offset)
    assert drained(jobs) == ["a"]


def test_dead_letters_are_items_again(jobs: Queue[Any]) -> None:
    jobs.put_many(["a", "b"])
    for item in jobs.get_many(2, GET_S):
        item.message.reject("no")
    assert (jobs.stats().dead, jobs.empty()) == (2, True)

    assert jobs.requeue() == 2
    assert jobs.requeue() == 0
    assert drained(jobs) == ["a", "b"]


def test_a_queue_goes_on_at_an_offset_or_a_time(jobs: Queue[Any]) -> None:
    jobs.put_many(["a", "b", "c"])
    drained(jobs)

    jobs.seek(1)
    assert drained(jobs) == ["b", "c"]
    jobs.seek(datetime(2020, 1, 1, tzinfo=UTC))
    assert drained(jobs) == ["a", "b", "c"]
    jobs.seek("latest")
    assert jobs.empty()


def test_stats_tell_of_everything_that_is_not_done(jobs: Queue[Any]) -> None:
    jobs.put_many(["acked", "taken", "failed", "dead", "ready"])
    jobs.put("delayed", delay=3600)
    acked, _, failed, dead = jobs.get_many(4, GET_S)
    acked.ack()
    failed.nack(delay=3600)
    dead.message.reject()

    stats = jobs.stats()
    assert (stats.ready, stats.in_flight, stats.waiting, stats.delayed) == (1, 1, 1, 1)
    assert (stats.size, stats.dead, stats.acked) == (4, 1, 1)
    jobs.sync()


def test_a_stream_acks_what_went_well_and_nacks_what_did_not(jobs: Queue[Any]) -> None:
    jobs.put_many(["good", "bad", "last"])
    seen: list[str] = []

    def handle(item: str) -> None:
        seen.append(item)
        if item == "bad" and seen.count("bad") < 2:
            raise ValueError("not today")

    assert jobs.stream(handle, timeout=0.2) == 3
    assert seen == ["good", "bad", "bad", "last"]
    assert jobs.empty()


def test_a_stream_keeps_an_item_however_long_its_handler_takes(
    jobs: Queue[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_visibility", 0.3)
    extended = threading.Semaphore(0)
    extend = BlockingReceived.extend

    def counted(message: BlockingReceived, visibility: Duration) -> Settled:
        settled = extend(message, visibility)
        extended.release()
        return settled

    monkeypatch.setattr(BlockingReceived, "extend", counted)
    jobs.put("slow")

    def handle(_item: str) -> None:
        assert extended.acquire(timeout=GET_S) and extended.acquire(timeout=GET_S)

    jobs.stream(handle, timeout=0.2)

    assert jobs.stats().acked == 1


def test_an_item_that_a_handler_has_settled_itself_does_not_end_the_stream(
    jobs: Queue[Any],
) -> None:
    jobs.put_many(["a", "b"])

    assert jobs.stream(lambda _item: jobs.task_done(), timeout=0.2) == 0

    assert jobs.stats().acked == 2


def test_closing_ends_a_stream_and_what_was_in_hand_comes_again(target: str) -> None:
    jobs: Queue[Any] = Queue(target, visibility=0.05)
    jobs.put_many(["a", "b"])

    assert jobs.stream(lambda _item: jobs.close()) == 0
    with Queue(target) as again:
        assert sorted(again.get(GET_S).value for _ in range(2)) == ["a", "b"]


def test_a_loop_over_a_queue_ends_with_it(target: str) -> None:
    jobs: Queue[Any] = Queue(target)
    jobs.put_many(["a", "b"])
    seen = []
    for item in jobs:
        seen.append(item.value)
        item.ack()
        if item.value == "b":
            jobs.close()

    assert seen == ["a", "b"]
    for call in (jobs.get, jobs.size, jobs.peek, jobs.sync, lambda: jobs.put("late")):
        with pytest.raises(Closed):
            call()


def test_a_queue_is_made_or_found_as_asked_for(target: str) -> None:
    with pytest.raises(UnknownTopic):
        Queue.open(target, "mine")
    with Queue.create(target, "mine", Job) as made:
        made.put(Job("a"))
    with pytest.raises(TopicExists):
        Queue.create(target, "mine")
    with Queue.open(target, "mine", Job) as found:
        assert found.get(GET_S).value == Job("a")
    with Queue.open_or_create(target, "other") as other:
        assert other.empty()


def test_a_queue_keeps_what_nobody_took_out_and_groups_share_nothing(target: str) -> None:
    with goqueue.open(target) as client:
        first: Queue[Any] = Queue(client, "mine")
        second: Queue[Any] = Queue(client, "mine", group="auditors")
        first.put("a")
        first.get(GET_S).ack()

        assert second.get(GET_S).value == "a"
        first.close()
        topic = client.topic("mine")  # a client that was given stays open
    assert (topic.partitions, topic.config["retention_ms"]) == (1, -1)
    assert topic.config["retention_bytes"] == -1


def test_a_groups_settings_are_left_alone(target: str) -> None:
    with goqueue.open(target) as client:
        client.put_group("queue", max_attempts=9)
        with Queue(client):
            assert client.group("queue").settings["max_attempts"] == 9


def test_two_processes_worth_of_handles_take_different_items(tmp_path: Path) -> None:
    with Queue(tmp_path / "jobs") as first, Queue(tmp_path / "jobs") as second:
        first.put_many([f"{number}" for number in range(10)])
        taken = [second.get(GET_S).value, first.get(GET_S).value, second.get(GET_S).value]

    assert sorted(taken) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Job, b"{}"),
        (str, b"\xff"),
        (Point, b'{"x":1,"y":"2"}'),
        (Letter, b'{"to":"a","at":"soon"}'),
        (Letter, b"\xff"),
    ],
)
def test_bytes_of_something_else_are_unfit(kind: Any, value: bytes) -> None:
    with pytest.raises(Unfit):
        Items(kind).decode(Message(topic="t", partition=0, offset=0, value=value, timestamp_ms=0))
