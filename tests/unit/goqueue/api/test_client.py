"""The asynchronous client against a server that misbehaves."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import aclosing
from datetime import UTC, datetime

import pytest

from goqueue import AsyncClient, Client, OutgoingMessage, Published, PublishFailed, RetryPolicy
from goqueue.errors import (
    BadRequest,
    BatchError,
    Busy,
    Closed,
    ConnectionFailed,
    GoQueueError,
    NoQuorum,
    OffsetOutOfRange,
    OutcomeUnknown,
    ServerError,
    Timeout,
    TopicExists,
    Unavailable,
    UnknownTopic,
)
from goqueue.transport.channel import Answer
from goqueue.transport.http import error_of, join, parse_servers
from goqueue.transport.pages import FOLLOWING
from goqueue.wire.batch import BATCH_MEDIA_TYPE, encode_columns
from goqueue.wire.partitioner import partition_for
from tests.unit.goqueue.server import START_MS, FakeCluster, Fault

QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)


def unused_url() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


# topics


async def test_topics_are_created_listed_described_altered_and_deleted(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    created = await client.create_topic("orders", partitions=4, durability="relaxed")
    assert (created.name, created.partitions) == ("orders", 4)
    with pytest.raises(TopicExists) as exists:
        await client.create_topic("orders")
    assert exists.value.data == {"topic": "orders"}

    assert await client.list_topics() == ["orders"]
    assert (await client.topic("orders")).partitions == 4
    assert [p.leader for p in await client.partitions("orders")] == ["node-1"] * 4
    assert (await client.alter_topic("orders", retention_ms=5)).config == {"retention_ms": 5}

    await client.delete_topic("orders")
    with pytest.raises(UnknownTopic):
        await client.topic("orders")


async def test_a_strange_topic_name_is_quoted_into_one_path_segment(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    with pytest.raises(UnknownTopic) as unknown:
        await client.topic("../a b?c=1#d")

    assert unknown.value.data["topic"] == "../a b?c=1#d"
    assert join("topics", "a/b") == "/v1/topics/a%2Fb"


async def test_an_empty_name_names_no_other_resource(client: AsyncClient) -> None:
    with pytest.raises(BadRequest, match="empty"):
        await client.topic("")


async def test_cluster_and_health_are_answered(client: AsyncClient) -> None:
    assert (await client.admin.cluster()).nodes_alive == 2
    assert await client.health() == {"status": "ok"}


# publishing


async def test_a_message_is_published_whole(client: AsyncClient, cluster: FakeCluster) -> None:
    cluster.create("orders", 3)

    published = await client.publish(
        "orders",
        b"\xff\x00",
        key="k1",
        headers={"trace": b"\x01", "who": "me"},
        priority="high",
        message_id="m-1",
    )

    partition = partition_for(b"k1", 3)
    assert (published.partition, published.offset, published.duplicate) == (partition, 0, False)
    assert published.id == f"orders:{partition}:0"
    (message,) = await client.read("orders", partition)
    assert (message.value, message.key, message.lane) == (b"\xff\x00", b"k1", 1)
    assert message.headers == (("trace", b"\x01"), ("who", b"me"))
    assert (message.message_id, message.priority, message.key_text) == ("m-1", "high", "k1")


async def test_an_explicit_partition_wins_over_the_key(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 3)
    other = (partition_for(b"k", 3) + 1) % 3

    assert (await client.publish("orders", "v", key="k", partition=other)).partition == other


async def test_messages_without_a_key_go_round(client: AsyncClient, cluster: FakeCluster) -> None:
    cluster.create("orders", 3)

    used = [(await client.publish("orders", "v")).partition for _ in range(6)]

    assert sorted(used) == [0, 0, 1, 1, 2, 2]


async def test_results_of_many_stand_in_the_order_of_the_messages(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 4)
    keys = [f"k{n}" for n in range(50)]

    results = await client.publish_many(
        "orders", [OutgoingMessage(f"v{key}", key=key) for key in keys]
    )

    assert [r.partition for r in results] == [partition_for(key.encode(), 4) for key in keys]
    for key, result in zip(keys, results, strict=True):
        page = await client.read("orders", result.partition, result.offset, limit=1)
        assert [m.text for m in page] == [f"v{key}"]
    assert len(cluster.paths("POST")) == 4  # a batch a partition


async def test_publishing_nothing_asks_nothing(client: AsyncClient, cluster: FakeCluster) -> None:
    assert await client.publish_many("orders", []) == []
    assert cluster.requests == []


async def test_json_carries_what_the_server_needs(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 2)
    message = OutgoingMessage(
        b"\xff", key=b"\xfe", headers={"h": "1"}, priority=0, partition=1, message_id="m"
    )

    (result,) = await client.publish_many("orders", [message], json=True)

    assert (result.partition, result.offset) == (1, 0)
    assert json.loads(cluster.bodies[0]) == {
        "messages": [
            {
                "value": "/w==",
                "value_encoding": "base64",
                "key": "/g==",
                "key_encoding": "base64",
                "headers": {"h": "1"},
                "priority": "critical",
                "partition": 1,
                "message_id": "m",
            }
        ]
    }


@pytest.mark.parametrize(
    "message", [OutgoingMessage("v", key=""), OutgoingMessage("v", headers={"h": b"\xff"})]
)
async def test_json_refuses_what_it_can_not_say(
    client: AsyncClient, message: OutgoingMessage
) -> None:
    with pytest.raises(BadRequest, match="JSON"):
        await client.publish_many("orders", [message], json=True)


async def test_a_failed_message_among_many_is_told_beside_the_others(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)

    with pytest.raises(PublishFailed) as failed:
        await client.publish_many("orders", ["good", "bad", "good too"], json=True)

    first, second, third = failed.value.results
    assert not isinstance(first, GoQueueError)
    assert not isinstance(third, GoQueueError)
    assert (first.offset, third.offset) == (0, 1)
    assert isinstance(second, BadRequest)
    assert failed.value.outcome == "none"
    assert cluster.topics["orders"][0].values() == [b"good", b"good too"]


async def test_a_missing_topic_is_left_to_a_server_that_creates_it(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.auto_create = True

    published = await client.publish("fresh", "hello", key="k")
    again = await client.publish("fresh", "hello", key="k")

    assert (published.offset, again.offset) == (0, 1)
    assert published.partition == again.partition == partition_for(b"k", 3)


async def test_a_missing_topic_is_an_error_where_the_server_creates_none(
    client: AsyncClient,
) -> None:
    with pytest.raises(UnknownTopic):
        await client.publish("missing", "hello")


async def test_a_topic_made_again_with_other_partitions_is_noticed(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await client.create_topic("orders", partitions=1)
    assert (await client.publish("orders", "v", key="k2")).partition == 0

    await client.delete_topic("orders")
    await client.create_topic("orders", partitions=50)

    assert (await client.publish("orders", "v", key="k2")).partition == partition_for(b"k2", 50)


# what may be repeated


async def test_a_publish_refused_for_now_is_repeated(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.extend([NoQuorum(), Busy()])

    published = await client.publish("orders", "v")

    assert published.offset == 0
    assert cluster.bodies[0] == cluster.bodies[1] == cluster.bodies[2]
    assert cluster.topics["orders"][0].values() == [b"v"]


async def test_a_publish_is_given_up_after_its_attempts(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.extend([NoQuorum() for _ in range(10)])

    with pytest.raises(NoQuorum) as refused:
        await client.publish("orders", "v")

    assert len(cluster.bodies) == QUICK.attempts_max
    assert refused.value.outcome == "none"


@pytest.mark.parametrize(
    "fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, OutcomeUnknown(), Timeout()], ids=str
)
async def test_a_publish_that_may_have_happened_is_not_repeated(
    client: AsyncClient, cluster: FakeCluster, fault: Fault | GoQueueError
) -> None:
    cluster.create("orders", 1)
    cluster.faults.append(fault)

    with pytest.raises(GoQueueError) as unknown:
        await client.publish("orders", "v")

    assert unknown.value.outcome == "unknown"
    assert len(cluster.bodies) == 1


async def test_a_refusal_after_an_attempt_that_may_have_happened_is_of_unknown_outcome(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.extend([Fault.CUT_AFTER, BadRequest("no")])

    with pytest.raises(BadRequest) as refused:
        await client.transport.request(
            "POST",
            join("topics", "orders", "partitions", 0, "messages"),
            body=encode_columns([b"v"]),
            headers={"Content-Type": BATCH_MEDIA_TYPE},
            repeatable=True,
        )

    assert refused.value.outcome == "unknown"


async def test_a_publish_is_not_repeated_if_a_part_of_it_may_have_happened(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    parts = [NoQuorum().to_body(), OutcomeUnknown().to_body()]
    cluster.faults.append(NoQuorum(results=parts))

    with pytest.raises(NoQuorum) as refused:
        await client.publish("orders", "v")

    assert refused.value.outcome == "unknown"
    assert len(cluster.bodies) == 1


async def test_a_server_that_does_not_answer_is_a_timeout_with_unknown_outcome(
    url: str, cluster: FakeCluster
) -> None:
    cluster.create("orders", 1)
    cluster.faults.append(Fault.HANG)

    async with AsyncClient(url, retry=QUICK, attempt_timeout_s=0.05) as client:
        with pytest.raises(Timeout) as timeout:
            await client.publish("orders", "v")

    assert timeout.value.outcome == "unknown"


async def test_the_next_server_is_asked_when_one_is_gone(cluster: FakeCluster) -> None:
    cluster.create("orders", 1)
    async with (
        cluster.serve() as alive,
        AsyncClient([unused_url(), alive], retry=QUICK) as client,
    ):
        assert (await client.publish("orders", "v")).offset == 0
        assert await client.list_topics() == ["orders"]


async def test_a_server_that_dies_is_left_for_the_next(cluster: FakeCluster) -> None:
    cluster.create("orders", 1)
    async with cluster.serve() as second:
        async with cluster.serve() as first:
            client = AsyncClient([first, second], retry=QUICK)
            await client.publish("orders", "1")
        await client.publish("orders", "2")
        await client.close()

    assert cluster.topics["orders"][0].values() == [b"1", b"2"]


async def test_a_server_that_can_not_serve_is_left_for_the_next() -> None:
    wiped, whole = FakeCluster(), FakeCluster()
    wiped.refusing_producers = Unavailable("this node was wiped")
    async with (
        wiped.serve() as first,
        whole.serve() as second,
        AsyncClient([first, second], retry=QUICK) as client,
    ):
        await client.init_producer()
        await client.health()

    assert (len(wiped.paths("GET")), len(whole.paths("GET"))) == (0, 1)


async def test_no_server_at_all_is_told_with_outcome_none() -> None:
    async with AsyncClient([unused_url(), unused_url()], retry=QUICK) as client:
        with pytest.raises(ConnectionFailed) as failed:
            await client.list_topics()

    assert failed.value.outcome == "none"


async def test_a_closed_client_refuses() -> None:
    client = AsyncClient(unused_url())
    await client.close()
    await client.close()

    with pytest.raises(Closed):
        await client.list_topics()


@pytest.mark.parametrize("servers", ["", [], " , ", "ftp://host"])
def test_servers_that_are_none_are_refused_at_once(servers: str | list[str]) -> None:
    with pytest.raises(BadRequest):
        AsyncClient(servers)


def test_servers_may_be_a_list_or_a_text() -> None:
    assert parse_servers("a:1, https://b:2/") == ["http://a:1", "https://b:2"]
    assert parse_servers(["a:1"]) == ["http://a:1"]


def test_pauses_double_up_to_a_bound_and_are_spread() -> None:
    policy = RetryPolicy(backoff_s=0.1, backoff_max_s=1.0)

    assert [policy.pause_s(n, 0.0) for n in (1, 2, 3, 5, 500)] == [0.1, 0.2, 0.4, 1.0, 1.0]
    assert policy.pause_s(2, 1.0) == 0.1


@pytest.mark.parametrize(
    ("status", "body", "family", "outcome"),
    [
        (429, b"rate limit exceeded", Busy, "none"),
        (502, b"<html>bad gateway</html>", ServerError, "unknown"),
        (404, b"404 page not found", BadRequest, "none"),
        (400, b'{"error":"x","code":"bad_batch","status":400}', BatchError, "none"),
        (500, b"[1]", ServerError, "unknown"),
        (503, b"", ServerError, "unknown"),
    ],
)
def test_answers_of_other_makes_become_errors(
    status: int, body: bytes, family: type[GoQueueError], outcome: str
) -> None:
    error = error_of(Answer(status, {"Retry-After": "7"}, body))

    assert type(error) is family
    assert (error.http_status, error.outcome) == (status, outcome)
    assert error.data["retry_after_s"] == 7


# reading


async def fill(client: AsyncClient, cluster: FakeCluster, partitions: int, count: int) -> None:
    """Values 0 to count - 1, dealt to the partitions in turn, at START_MS, START_MS + 10, ..."""
    cluster.create("numbers", partitions)
    for number in range(count):
        await client.publish("numbers", str(number), partition=number % partitions)


async def test_a_page_begins_at_the_offset_and_holds_at_most_the_limit(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("numbers", 1)
    await client.publish_many("numbers", [str(n) for n in range(10)])  # one batch
    await client.publish_many("numbers", [str(n) for n in range(10, 20)])

    page = await client.read("numbers", 0, 7, limit=8)

    assert [m.offset for m in page] == list(range(7, 15))
    assert [m.text for m in page] == [str(n) for n in range(7, 15)]
    assert (page.next_offset, page.log_start, page.end_offset) == (15, 0, 20)
    assert len(page) == 8
    assert [m.timestamp_ms for m in page] == [START_MS] * 3 + [START_MS + 10] * 5
    assert page.messages[0].published_ms > 0


async def test_reading_beyond_the_end_is_out_of_range(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 1, 3)

    with pytest.raises(OffsetOutOfRange) as beyond:
        await client.read("numbers", 0, 4)

    assert beyond.value.data == {"offset": 4, "first": 0, "next": 3}


async def test_a_window_of_time_ends_before_its_end(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 1, 10)

    page = await client.read("numbers", 0, from_time=START_MS + 20, to_time=START_MS + 50)

    assert [m.text for m in page] == ["2", "3", "4"]
    assert page.messages[0].time == datetime.fromtimestamp(START_MS / 1000 + 0.02, UTC)


async def test_a_partition_is_iterated_to_its_end(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 1, 25)

    pages = [page async for page in client.pages("numbers", 0, 3, limit=10)]

    assert [len(page) for page in pages] == [10, 10, 2]
    assert [m.offset for page in pages for m in page] == list(range(3, 25))


async def test_iteration_ends_where_the_partition_ended_when_it_began(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 1, 6)
    seen: list[int] = []

    async for page in client.pages("numbers", 0, limit=2):
        seen += [message.offset for message in page]
        await client.publish("numbers", "more", partition=0)
        await client.publish("numbers", "and more", partition=0)
        assert len(seen) <= 6

    assert seen == [0, 1, 2, 3, 4, 5]


async def test_a_whole_topic_is_iterated_in_order_of_time(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 3, 100)

    seen = [message.text async for message in client.messages("numbers")]

    assert seen == [str(number) for number in range(100)]


async def test_an_empty_topic_ends_at_once(client: AsyncClient, cluster: FakeCluster) -> None:
    cluster.create("numbers", 3)

    assert [m async for m in client.messages("numbers")] == []


async def test_following_goes_on_with_what_is_published_later(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 1, 2)
    seen: list[str] = []

    async for message in client.messages("numbers", 0, follow=True):
        seen.append(message.text)
        if len(seen) == 5:
            break
        if len(seen) >= 2:
            await client.publish("numbers", f"later {len(seen)}", partition=0)

    assert seen == ["0", "1", "later 2", "later 3", "later 4"]


async def test_following_ends_at_the_end_of_its_window(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 1, 5)

    window = client.messages("numbers", 0, follow=True, to_time=START_MS + 30)

    assert [message.text async for message in window] == ["0", "1", "2"]


async def test_a_whole_topic_is_followed_in_order_within_each_partition(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 3, 9)
    seen: dict[int, list[int]] = {}

    async with aclosing(client.messages("numbers", follow=True)) as messages:
        async for message in messages:
            seen.setdefault(message.partition, []).append(message.offset)
            read = sum(map(len, seen.values()))
            if read == 9:
                await client.publish("numbers", "later", partition=1)
            if read == 10:
                break

    assert seen == {0: [0, 1, 2], 1: [0, 1, 2, 3], 2: [0, 1, 2]}
    assert FOLLOWING not in {task.get_name() for task in asyncio.all_tasks()}


async def test_following_a_whole_topic_ends_with_its_window(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 3, 9)

    window = client.messages("numbers", follow=True, to_time=START_MS + 50)

    assert sorted([int(message.text) async for message in window]) == [0, 1, 2, 3, 4]


async def test_an_error_ends_the_following_of_a_whole_topic(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    await fill(client, cluster, 3, 3)

    with pytest.raises(UnknownTopic):
        async for _ in client.messages("numbers", follow=True):
            cluster.topics.clear()


async def test_a_message_shows_its_value_as_json_and_text(
    client: AsyncClient, cluster: FakeCluster
) -> None:
    cluster.create("numbers", 1)
    await client.publish("numbers", '{"a":[1,2]}')

    (message,) = await client.read("numbers")

    assert message.json() == {"a": [1, 2]}
    assert message.id == "numbers:0:0"
    assert (message.key, message.key_text) == (None, None)


async def test_a_topic_that_is_compressed_reads_back(url: str, cluster: FakeCluster) -> None:
    cluster.create("numbers", 1)
    values = [f"line {n} of many that look alike" for n in range(500)]

    async with AsyncClient(url, compression="zstd") as client:
        await client.publish_many("numbers", values)
        assert len(cluster.bodies[0]) < sum(map(len, values)) // 2
        assert [m.text async for m in client.messages("numbers")] == values


async def test_a_server_that_is_about_to_stop_is_turned_away_from_once() -> None:
    one, two = FakeCluster(), FakeCluster()
    async with one.serve() as first, two.serve() as second:
        async with AsyncClient([first, second], retry=QUICK) as client:
            await client.health()
            assert client.transport.turn_away()
            assert client.transport.turn_away()
            await client.health()
        async with AsyncClient(first) as client:
            assert not client.transport.turn_away()
            await client.health()

    assert (len(one.paths("GET")), len(two.paths("GET"))) == (2, 1)


# durability


@pytest.mark.parametrize("told", ["majority", "relaxed", ""])
async def test_what_is_published_says_how_durable_it_is(
    client: AsyncClient, cluster: FakeCluster, url: str, told: str
) -> None:
    """Nothing is made up for an older server, which does not say."""
    cluster.create("orders", 1)
    cluster.durability = {"durability": told} if told else {}

    one = await client.publish("orders", "a", message_id="a")
    again = await client.publish("orders", "a", message_id="a")
    delayed = await client.publish_many("orders", [OutgoingMessage("b", delay=3600)])
    several = await client.publish_many("orders", ["c", "d"], json=True)
    async with client.producer() as producer:
        sent = await (await producer.send("orders", "e"))
    blocking = await asyncio.to_thread(_publish_blocking, url)

    found = [one, again, *delayed, *several, sent, *blocking]
    assert again.duplicate
    assert [published.durability for published in found] == [told] * 8


def _publish_blocking(url: str) -> list[Published]:
    with Client(url) as client, client.producer() as producer:
        return [client.publish("orders", "f"), producer.send("orders", "g").result(30)]
