"""Reading: nothing is skipped, windows are exact, and a long poll ends when something comes."""

from __future__ import annotations

import asyncio

import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch, encode_columns
from goqueue.wire.errors import UnknownTopic
from goqueue.wire.stream import decode_frames
from node.api.times import format_time
from tests.one_node import until

READ = "/topics/orders/partitions/0/messages"
HOUR_MS = 3_600_000


async def append(broker, *values, partition=0, **columns):
    batch = encode_columns([value.encode() for value in values], **columns)
    return await broker.records.append("orders", partition, batch, deadline_s=30)


def values(answer):
    return [message["value"] for message in answer.json["messages"]]


async def test_a_reader_that_follows_next_offset_sees_everything_once(client, orders, broker):
    written = []
    for size in (1, 7, 100, 3, 250):
        batch = [f"{len(written) + n}" for n in range(size)]
        written += batch
        await append(broker, *batch)

    for limit in (1, 2, 99, 100, 101, 1000):
        seen, offset = [], 0
        while True:
            answer = await client.get(f"{READ}?offset={offset}&limit={limit}")
            assert len(values(answer)) <= limit
            assert [m["offset"] for m in answer.json["messages"]] == list(
                range(offset, offset + len(values(answer)))
            )
            if not values(answer):
                break
            seen += values(answer)
            offset = answer.json["next_offset"]
        assert seen == written
        assert offset == 361


async def test_a_reader_of_batches_follows_next_offset_too(client, orders, broker):
    for start in range(0, 40, 10):
        await append(broker, *(str(n) for n in range(start, start + 10)))

    seen, offset = {}, 0
    while offset < 40:
        answer = await client.get(
            f"{READ}?offset={offset}&limit=12", headers={"Accept": BATCH_MEDIA_TYPE}
        )
        assert answer.headers["X-GoQueue-End-Offset"] == "40"
        assert answer.headers["X-GoQueue-Log-Start"] == "0"
        for frame in decode_frames(answer.body):
            for row, value in enumerate(RecordBatch.parse(frame.batch).values()):
                seen[frame.base_offset + row] = value
        offset = int(answer.headers["X-GoQueue-Next-Offset"])

    assert seen == {n: str(n).encode() for n in range(40)}


async def test_lanes_do_not_reorder_or_hide_messages(client, orders, broker):
    await append(broker, "a", "b", "crit", "c", lanes=[2, 2, 0, 4])

    answer = await client.get(f"{READ}?offset=0")

    assert values(answer) == ["a", "b", "crit", "c"]
    assert [m["priority"] for m in answer.json["messages"]] == [
        "normal",
        "normal",
        "critical",
        "background",
    ]


async def test_bytes_that_are_not_text_come_as_base64_and_say_so(client, orders, broker):
    batch = encode_columns(
        [b"\xff\x00", b"text"],
        [b"\xfe", b"key"],
        headers=[(("h", b"\xfd"), ("t", b"x")), ()],
        message_ids=["m-1", None],
    )
    await broker.records.append("orders", 0, batch, deadline_s=30)

    binary, text = (await client.get(READ)).json["messages"]

    assert (binary["value"], binary["value_encoding"]) == ("/wA=", "base64")
    assert (binary["key"], binary["key_encoding"]) == ("/g==", "base64")
    assert binary["headers"] == {"h": "/Q==", "t": "x"}
    assert binary["header_encodings"] == {"h": "base64"}
    assert binary["message_id"] == "m-1"
    assert text["value"] == "text"
    assert text["key"] == "key"
    assert not {"value_encoding", "key_encoding", "headers", "message_id"} & set(text)


async def test_a_published_binary_value_reads_back_the_same(client, orders):
    message = {"value": "gIGC", "value_encoding": "base64", "partition": 0}
    await client.post("/topics/orders/messages", {"messages": [message]})

    read = (await client.get(READ)).json["messages"][0]

    assert (read["value"], read["value_encoding"]) == ("gIGC", "base64")


async def test_time_windows_include_their_start_and_exclude_their_end(
    client, orders, broker, clock
):
    start_ms = clock.now_ms
    for n in range(5):
        clock.now_ms = start_ms + n * 1000
        await append(broker, f"{n}a", f"{n}b")

    def window(begin, end):
        return client.get(f"{READ}?from_time={begin}&to_time={end}")

    exact = await window(start_ms + 1000, start_ms + 3000)
    text = await window(format_time(start_ms + 1000), format_time(start_ms + 3000))
    zoned = await window("2025-01-14T17:00:01%2B02:00", "2025-01-14T17:00:03+02:00")
    finer = await client.get(f"{READ}?from_time=2025-01-14T15:00:00.0001Z&limit=1")
    empty = await window(start_ms + 1, start_ms + 2)

    assert values(exact) == values(text) == values(zoned) == ["1a", "1b", "2a", "2b"]
    assert exact.json["next_offset"] == 6
    assert values(finer) == ["1a"]
    assert values(empty) == []


async def test_a_window_read_in_steps_stops_at_its_end(client, orders, broker, clock):
    start_ms = clock.now_ms
    await append(broker, *"abcde")
    clock.now_ms += 10
    await append(broker, *"xyz")

    seen, offset = [], 0
    for _ in range(5):
        answer = await client.get(f"{READ}?offset={offset}&limit=2&to_time={start_ms + 10}")
        seen += values(answer)
        offset = answer.json["next_offset"]

    assert seen == list("abcde")
    assert offset == 5


async def test_earliest_and_latest(client, orders, broker):
    await append(broker, "a", "b")

    assert values(await client.get(f"{READ}?offset=earliest")) == ["a", "b"]
    latest = await client.get(f"{READ}?offset=latest")
    assert values(latest) == []
    assert latest.json["next_offset"] == 2


async def test_reads_below_the_log_start_begin_there(client, orders, broker, clock):
    await client("PATCH", "/topics/orders", {"retention_ms": 36 * HOUR_MS})
    for _ in range(2):  # a segment is a day long
        await append(broker, "a")
        await append(broker, "b")
        clock.now_ms += 25 * HOUR_MS

    answer = await until(lambda: client.get(f"{READ}?offset=0"), lambda a: a.json["log_start"])

    assert [m["offset"] for m in answer.json["messages"]] == [2, 3]
    assert answer.json["log_start"] == 2


async def test_an_offset_beyond_the_end_names_the_range(client, orders, broker):
    await append(broker, "a")

    answer = await client.get(f"{READ}?offset=2")

    assert answer.status == 400
    assert answer.json["code"] == "offset_out_of_range"
    assert (answer.json["offset"], answer.json["first"], answer.json["next"]) == (2, 0, 1)


@pytest.mark.parametrize(
    "query",
    [
        "offset=-1", "offset=x", "offset=1.5", f"offset={10**30}", "offset=%D9%A1", "limit=0",
        "limit=-5", "limit=x", "limit=1e3", "wait=soon", "wait=-1s", "timeout=5x", "wait=9999999d",
        "from_time=yesterday", "to_time=2025-01-14", "from_time=2025-13-01T00:00:00Z",
        "from_time=2025-01-14T15:00:00", "from_time=-5", "to_time=99999999999999999",
        "max_bytes=no", "offset=%ff", "&".join(f"f{n}=1" for n in range(100)),
    ],
)  # fmt: skip
async def test_bad_queries_are_400(client, orders, query):
    answer = await client.get(f"{READ}?{query}")

    assert answer.status == 400
    assert answer.json["code"] == "bad_request"


@pytest.mark.parametrize("partition", ["x", "-1", "1.0", "%D9%A1", "1" * 30, "0x1"])
async def test_bad_partitions_are_400(client, orders, partition):
    answer = await client.get(f"/topics/orders/partitions/{partition}/messages")

    assert answer.status == 400


@pytest.mark.parametrize("partition", ["3", "4294967295"])
@pytest.mark.parametrize("query", ["", "?offset=latest", "?from_time=0"])
async def test_partitions_that_do_not_exist_are_404(client, orders, partition, query):
    answer = await client.get(f"/topics/orders/partitions/{partition}/messages{query}")

    assert answer.status == 404
    assert answer.json["code"] == "unknown_partition"


async def test_limits_above_the_bound_are_cut_to_it(client, orders, broker):
    await append(broker, *(str(n) for n in range(1500)))

    assert len(values(await client.get(f"{READ}?limit=99999"))) == 1000
    assert len(values(await client.get(READ))) == 100


async def test_a_long_poll_ends_when_a_message_comes(client, orders, broker, front, eventually):
    waiting = asyncio.ensure_future(client.get(f"{READ}?wait=20s"))
    await eventually(lambda: front.requests_in_flight)

    await append(broker, "late")

    assert values(await asyncio.wait_for(waiting, 30)) == ["late"]


async def test_an_empty_long_poll_answers_after_its_wait(client, orders, broker, monkeypatch):
    read, waited_s = broker.records.read, []

    async def noted(*arguments, wait_s, **options):
        found = await read(*arguments, wait_s=wait_s, **options)
        if wait_s:
            waited_s.append(wait_s)
        return found

    monkeypatch.setattr(broker.records, "read", noted)
    for query in ("wait=50ms", "timeout=50", "wait=0.05s"):
        answer = await client.get(f"{READ}?{query}")
        assert answer.json["messages"] == []
        assert answer.json["next_offset"] == 0
    assert waited_s == [0.05] * 3


async def test_stopping_ends_long_polls_with_an_empty_answer(client, orders, front, eventually):
    waiting = asyncio.ensure_future(client.get(f"{READ}?wait=30s"))
    await eventually(lambda: front.requests_in_flight)

    front.begin_stop()

    assert values(await asyncio.wait_for(waiting, 30)) == []


async def test_one_message_is_found_by_its_id(client, orders, broker):
    await append(broker, "a", "b", "c")

    found = await client.get("/messages/orders:0:1")
    missing = await client.get("/messages/orders:0:3")
    beyond = await client.get("/messages/orders:0:99")

    assert (found.json["value"], found.json["id"]) == ("b", "orders:0:1")
    assert missing.status == beyond.status == 404
    assert beyond.json["code"] == "not_found"


async def test_the_timeline_lists_events_in_order(client, orders, broker):
    await append(broker, "a", message_ids=["m-1"])

    timeline = (await client.get("/messages/orders:0:0/timeline")).json

    assert timeline["message_id"] == "m-1"
    assert [event["event_type"] for event in timeline["events"]] == [
        "PUBLISHED",
        "REPLICATED",
        "RETAINED",
    ]
    assert (await client.get("/messages/orders:0:9/timeline")).status == 404


@pytest.mark.parametrize(
    "text",
    ["x", "orders:0", "orders:0:-1", "orders:0:01", "%2e%2e:0:0", "orders:9999999999:0",
     f"orders:0:{10**19}", "a:b:c"],
)  # fmt: skip
async def test_bad_message_ids_are_400(client, orders, text):
    assert (await client.get(f"/messages/{text}")).status == 400
    assert (await client.get(f"/messages/{text}/timeline")).status == 400


@pytest.mark.parametrize(
    "path", ["/topics/orders/messages", "/topics/orders/partitions/0/messages?offset=latest"]
)
async def test_a_topic_that_another_node_just_created_is_read(
    client, orders, broker, monkeypatch, path
):
    def not_known_yet(topic: str) -> int:
        raise UnknownTopic(topic)

    await append(broker, "a")
    monkeypatch.setattr(broker.topics, "partition_count", not_known_yet)

    assert (await client.get(path)).status == 200


@pytest.mark.parametrize("path", ["/messages", "/partitions/0/messages?offset=latest"])
async def test_reading_creates_no_topic(client, broker, path):
    assert (await client.get(f"/topics/fresh{path}")).status == 404
    assert broker.topics.list_topics() == []


async def test_a_topic_is_read_in_the_order_of_log_time_and_resumes(client, orders, broker, clock):
    written = []
    for n in range(30):
        clock.now_ms += 5
        await append(broker, str(n), partition=n % 3)
        written.append(str(n))

    seen, offsets = [], ""
    for _ in range(20):
        answer = await client.get(f"/topics/orders/messages?limit=7&offsets={offsets}")
        seen += values(answer)
        following = answer.json["next_offsets"].items()
        offsets = ",".join(f"{partition}:{offset}" for partition, offset in following)

    assert seen == written
    assert (await client.get("/topics/orders/messages?offsets=7:1")).status == 400
    assert (await client.get("/topics/orders/messages?offsets=x")).status == 400
