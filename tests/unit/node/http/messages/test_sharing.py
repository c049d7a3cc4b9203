"""Small publishes that come at once share batches, and each is told its own place or error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import BatchError, NoQuorum
from node.http.auth.authenticator import Authenticator
from node.http.messages import publish
from node.http.server.app import Entrance, HttpFront
from tests.unit.node.three_nodes import three_nodes

COUNT = 64
PATH = "/topics/orders/messages"


class Appends:
    """What the front appends, as (partition, messages)."""

    def __init__(self, broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[int, int]] = []
        self.refused: Exception | None = None
        append = broker.records.append

        async def counted(topic: str, partition: int, batch: bytes, **options: Any) -> Any:
            self.made.append((partition, RecordBatch.parse(batch).count))
            if self.refused is not None:
                raise self.refused
            return await append(topic, partition, batch, **options)

        monkeypatch.setattr(broker.records, "append", counted)


class AtOnce:
    """Connections whose requests arrive in one turn of the loop: all are written before it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._open: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(
        self, bodies: list[dict[str, Any]], *heads: str, path: str = PATH
    ) -> list[tuple[int, Any]]:
        """(status, answer) of each, in order; `heads` are the header lines of each in turn."""
        while len(self._open) < len(bodies):
            self._open.append(await asyncio.open_connection("127.0.0.1", self.port))
        await asyncio.sleep(0)
        for number, ((_, writer), body) in enumerate(zip(self._open, bodies, strict=False)):
            text = json.dumps(body)
            own = heads[number % len(heads)] if heads else ""
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                f"{own}Content-Length: {len(text)}\r\n\r\n{text}".encode()
            )
        return [await self._answer(reader) for reader, _ in self._open[: len(bodies)]]

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, Any]:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].split(b"\r")[0])
        return int(head.split()[1]), json.loads(await reader.readexactly(length))

    def close(self) -> None:
        for _, writer in self._open:
            writer.close()


@pytest.fixture
async def at_once(front):
    asking = AtOnce(front.port)
    yield asking
    asking.close()


@pytest.fixture
def appends(broker, monkeypatch) -> Appends:
    return Appends(broker, monkeypatch)


def numbered(**more: Any) -> list[dict[str, Any]]:
    return [{"messages": [{"value": str(n), **more}]} for n in range(COUNT)]


async def stored(broker, partition: int) -> dict[int, str]:
    found = await broker.records.read(
        "orders", partition, 0, max_records=10**6, max_bytes=10**9, wait_s=0
    )
    return {
        batch.base_offset + row: record.value.decode()
        for batch in found.batches
        for row, record in enumerate(RecordBatch.parse(batch.batch).records())
    }


async def test_what_comes_at_once_is_a_batch_a_partition_and_each_is_told_its_place(
    at_once, orders, broker, appends
):
    answers = await at_once.ask(numbered())

    assert len(appends.made) <= broker.topics.partition_count("orders")
    assert sum(count for _, count in appends.made) == COUNT
    kept = [await stored(broker, partition) for partition in range(3)]
    for number, (status, body) in enumerate(answers):
        (result,) = body["results"]
        assert (status, body["durability"]) == (200, "majority")
        assert kept[result["partition"]][result["offset"]] == str(number)
    assert sum(map(len, kept)) == COUNT


async def test_a_lone_publish_is_a_batch_by_itself(at_once, orders, appends):
    for number in range(3):
        await at_once.ask([{"value": str(number), "priority": "high"}])

    assert [count for _, count in appends.made] == [1, 1, 1]


async def test_messages_with_keys_go_where_their_keys_are_and_share_too(
    at_once, orders, broker, appends
):
    bodies = [{"messages": [{"key": f"k{n % 7}", "value": f"k{n % 7}"}]} for n in range(COUNT)]

    answers = await at_once.ask(bodies)

    places = {(body["results"][0]["partition"], n % 7) for n, (_, body) in enumerate(answers)}
    assert len(places) == 7
    assert len(appends.made) == len({partition for partition, _ in places})


@pytest.mark.parametrize(
    "more",
    [{"message_id": "m"}, {"delay": "1h"}],
    ids=["ids", "delays"],
)
async def test_what_the_log_judges_one_by_one_goes_by_itself(at_once, orders, appends, more):
    await at_once.ask(numbered(**more))

    assert [count for _, count in appends.made] == [1] * COUNT


async def test_each_has_an_error_of_its_own(at_once, orders, appends):
    appends.refused = NoQuorum("nobody")

    answers = await at_once.ask(numbered())

    assert {status for status, _ in answers} == {503}
    assert {body["code"] for _, body in answers} == {"no_quorum"}
    assert len(appends.made) < COUNT


async def test_a_message_that_cant_be_stored_spoils_no_others(
    at_once, orders, broker, appends, monkeypatch
):
    """All that is known to be too large is refused before: this is for what is not."""
    encode = publish.encode_columns

    def picky(values: list[bytes], *rest: Any, **more: Any) -> bytes:
        if b"7" in values:
            raise BatchError("seven")
        return encode(values, *rest, **more)

    monkeypatch.setattr(publish, "encode_columns", picky)

    answers = await at_once.ask(numbered())

    assert [number for number, (status, _) in enumerate(answers) if status != 200] == [7]
    assert sum([len(await stored(broker, partition)) for partition in range(3)]) == COUNT - 1


async def test_rows_of_one_request_with_different_fields_stay_in_their_places(
    at_once, orders, broker
):
    bodies: list[dict[str, Any]] = [
        {"messages": [{"value": "a", "partition": 0}, {"value": "b", "partition": 0}]},
        {"messages": [{"value": "c", "partition": 0, "headers": {"h": "1"}}]},
        {"messages": [{"value": "d", "partition": 0, "priority": "low", "ttl": "1h"}]},
        {"messages": [{"value": "e", "partition": 0, "key": "k"}]},
    ]

    await at_once.ask(bodies)

    found = await broker.records.read("orders", 0, 0, max_records=10, max_bytes=10**6, wait_s=0)
    records = [one for batch in found.batches for one in RecordBatch.parse(batch.batch).records()]
    assert [(one.value, one.key, len(one.headers), one.lane) for one in records] == [
        (b"a", None, 0, 2),
        (b"b", None, 0, 2),
        (b"c", None, 1, 2),
        (b"d", None, 0, 3),
        (b"e", b"k", 0, 2),
    ]
    assert len(found.batches) == 1


@pytest.fixture
async def keyed_front(broker, keys):
    entrance = Entrance(authenticator=Authenticator(keys.checks), keys=keys)
    front = HttpFront(broker, port=0, entrance=entrance)
    await front.start()
    yield front
    await front.stop()


async def test_different_api_keys_share_nothing(keyed_front, orders, keys, appends):
    """A batch is sent in one name."""
    heads = []
    for id in ("one", "two"):
        made = await keys.create_key(id, name=id, role="producer", prefixes=[""], expires_ms=0)
        heads.append(f"Authorization: Bearer {made.secret}\r\n")
    bodies = [{"messages": [{"value": str(n), "partition": 0}]} for n in range(COUNT)]
    at_once = AtOnce(keyed_front.port)
    await at_once.ask(bodies[:2], *heads)  # keys are proved the first time
    appends.made.clear()

    answers = await at_once.ask(bodies, *heads)

    at_once.close()
    assert {status for status, _ in answers} == {200}
    assert sorted(appends.made) == [(0, COUNT // 2), (0, COUNT // 2)]


async def test_a_node_sends_on_a_request_for_each_batch_and_not_for_each_message():
    async with three_nodes() as nodes:
        node = nodes.running["n1"]
        await node.broker.topics.create_topic("orders", {"partitions": 6})
        forwarded = node.metrics.http.forwarded.labels("append")
        at_once = AtOnce(node.front.port)
        await at_once.ask(numbered())
        before = forwarded.value

        for _ in range(5):
            answers = await at_once.ask(numbered())
            assert {status for status, _ in answers} == {200}
        at_once.close()

        assert forwarded.value - before <= 5 * 6
