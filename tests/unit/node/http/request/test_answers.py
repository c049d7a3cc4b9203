"""Large answers: judged as they are encoded, charged until they are taken, and sent in pieces."""

from __future__ import annotations

import asyncio
import json

import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, Codec, encode_columns
from node.http.budget.limits import MIB, HttpLimits
from node.http.budget.memory import Bounds, Budgets, Kind
from node.http.request.answers import PAGE_BYTES_MIN
from node.http.text import pieces
from node.http.text.pieces import SLICE_BYTES
from tests.unit.node.http.connections import unread
from tests.unit.node.http.text.test_pieces import Spy

READ = "/topics/orders/partitions/0/messages"
NULS = bytes(MIB // 32)
"""A few bytes compressed, 192 KiB as JSON."""


@pytest.fixture
def spy(monkeypatch):
    spy = Spy()
    monkeypatch.setattr(pieces, "_encoder", spy)
    return spy


@pytest.fixture
def answers(front):
    """What is charged for answers."""
    return front.budgets[Kind.ANSWERS]


@pytest.fixture
async def bombs(put):
    """Four batches of 4 MiB each, of 128 messages, which are a few hundred bytes each."""
    for _ in range(4):
        await put(*[NULS] * 128, codec=Codec.ZSTD)


async def read_on(client, path, key="messages"):
    """All pages: how many messages each has, and how many bytes it takes."""
    pages, offset = [], 0
    while True:
        answer = await client.get(f"{path}?offset={offset}&limit=1000")
        assert answer.status == 200, answer.body
        messages = answer.json[key]
        if not messages:
            return pages
        assert [m["offset"] for m in messages] == list(range(offset, offset + len(messages)))
        assert all(m["value"] == NULS.decode() for m in messages)
        pages.append((len(messages), len(answer.body)))
        offset = answer.json["next_offset"]


async def test_pages_end_where_their_json_would_be_too_large(client, bombs, spy, answers):
    pages = await read_on(client, READ)

    assert sum(count for count, _ in pages) == 512
    assert max(size for _, size in pages) <= HttpLimits().read_bytes_max
    assert spy.largest <= SLICE_BYTES + 1000
    assert answers.used == 0


@pytest.mark.parametrize("settings", [{"defaults.topic.maxMessageBytes": 2 * MIB}])
async def test_a_message_larger_than_the_bound_is_served_alone(client, orders, put, spy, answers):
    await put(b"before", bytes(2 * MIB), b"behind", codec=Codec.ZSTD)

    first = await client.get(READ)
    second = await client.get(f"{READ}?offset=1")
    one = await client.get("/messages/orders:0:1")
    third = await client.get(f"{READ}?offset=2")

    assert [len(page.json["messages"]) for page in (first, second, third)] == [1, 1, 1]
    assert second.json["messages"][0]["value"] == one.json["value"] == "\x00" * 2 * MIB
    assert spy.largest <= SLICE_BYTES + 1000
    assert answers.used == 0


async def test_messages_of_all_partitions_end_early_too(client, orders, put):
    for partition in range(3):
        await put(*[NULS] * 128, partition=partition, codec=Codec.ZSTD)

    seen, offsets = 0, ""
    while True:
        page = await client.get(f"/topics/orders/messages?limit=1000&offsets={offsets}")
        if not page.json["messages"]:
            break
        seen += len(page.json["messages"])
        offsets = ",".join(f"{n}:{at}" for n, at in page.json["next_offsets"].items())
        assert len(page.body) <= 2 * HttpLimits().read_bytes_max

    assert seen == 3 * 128


async def test_what_an_answer_is_too_small_for_is_given_back(client, bombs, take, spy, answers):
    seen = []
    while len(seen) < 512:
        answer = await client.post("/groups/workers/receive", {"topic": "orders", "limit": 512})
        assert len(answer.body) <= HttpLimits().queue_bytes_max + MIB
        seen += [(m["offset"], m["attempt"]) for m in answer.json["messages"]]

    assert sorted(seen) == [(offset, 1) for offset in range(512)]
    assert spy.largest <= SLICE_BYTES + 1000
    assert answers.used == 0


async def test_a_receive_without_room_leases_nothing(front, client, bombs, take, answers):
    bounds, answers.bounds = answers.bounds, Bounds(100_000, 100_000, 100_000, 0, 0)

    refused = await client.post("/groups/workers/receive", {"topic": "orders", "limit": 100})

    assert (refused.status, refused.json["code"]) == (429, "over_budget")
    assert refused.json["kind"] == "answers"
    answers.bounds = bounds
    assert [m["attempt"] for m in await take(limit=2)] == [1, 1]
    assert answers.used == 0


async def test_many_who_read_at_once_wait_for_each_other(front, client, put, answers):
    await put(*[b"x" * 100] * 100)
    answers.bounds = Bounds(MIB, MIB, MIB, 0, 0)

    pages = await asyncio.gather(*(client.get(READ) for _ in range(40)))

    assert {page.status for page in pages} == {200}
    assert answers.used == 0
    assert not front._shared.lines


async def test_peeks_and_searches_end_early(client, bombs, take, spy):
    await take(limit=1)
    peeked = await client.post("/groups/workers/peek", {"topic": "orders", "limit": 512})
    found = await client.get("/messages?topic=orders&limit=512")

    assert 1 <= len(peeked.json["messages"]) < 512
    assert 1 <= len(found.json["messages"]) < 512
    following = await client.get(f"/messages?topic=orders&limit=512&next={found.json['next']}")
    last, first = found.json["messages"][-1], following.json["messages"][0]
    assert first["offset"] == last["offset"] - 1
    assert spy.largest <= SLICE_BYTES + 1000


async def test_long_lists_are_encoded_in_slices_and_charged(client, front, broker, spy, answers):
    names = [f"{n:04}-{'x' * 240}" for n in range(300)]
    for name in names:
        await broker.topics.create_topic(name, {"partitions": 1})

    told = await client.get("/topics")
    answers.bounds = Bounds(50_000, 50_000, 50_000, 0, 0)
    refused = await client.get("/topics")

    assert told.json["topics"] == names
    assert int(told.headers["Content-Length"]) == len(told.body)
    assert spy.largest <= SLICE_BYTES + 1000
    assert (refused.status, refused.json["kind"]) == (429, "answers")
    assert answers.used == 0


async def test_a_search_without_room_is_refused_before_it_begins(client, broker, bombs, answers):
    answers.bounds = Bounds(100_000, 100_000, 100_000, 0, 0)
    searched = []
    broker.lookup.search = searched.append

    for path in ("/messages?topic=orders", "/traces", "/traces/search?topic=orders"):
        assert (await client.get(path)).status == 429

    assert searched == []


class TestWhoTakesNothing:
    """Clients that ask, and leave the answer where it is."""

    @pytest.fixture
    def limits(self):
        return HttpLimits(write_stall_s=30.0)

    async def ask(self, front, media_type="application/json"):
        return await unread.ask(front, READ, f"Accept: {media_type}")

    @pytest.fixture
    def stuck(self, front, eventually):
        """Waits until the one connection's answer is on its way, and goes no further."""

        async def wait():
            await eventually(lambda: any(one.writing_paused for one in front._server.connections))
            (connection,) = front._server.connections
            return connection

        return wait

    async def test_its_answer_is_charged_until_it_leaves(
        self, front, bombs, answers, eventually, stuck
    ):
        link = await self.ask(front)
        await stuck()
        assert answers.used > 6 * MIB

        link.close()

        await eventually(lambda: answers.used == 0)

    async def test_stored_batches_are_charged_too(self, front, put, answers, eventually, stuck):
        for n in range(8):
            await put(bytes([n]) * MIB)
        link = await self.ask(front, media_type=BATCH_MEDIA_TYPE)
        await stuck()
        assert answers.used > 3 * MIB

        link.close()

        await eventually(lambda: answers.used == 0)

    async def test_it_gets_no_more_than_its_share(self, front, client, bombs, answers, eventually):
        answers.bounds = Bounds(64 * MIB, 16 * MIB, 16 * MIB, 8 * MIB, MIB)
        asking = [await self.ask(front) for _ in range(6)]

        refused = None
        while refused is None or refused.status == 200:
            asking.append(await self.ask(front))
            refused = await client.get(READ)

        assert refused.status == 429
        assert (refused.json["code"], refused.json["bound"]) == ("over_budget", "holder")
        assert answers.used <= 16 * MIB
        for link in asking:
            link.close()
        await eventually(lambda: answers.used == 0)
        assert (await client.get(READ)).status == 200

    async def test_a_page_is_cut_to_what_there_is_room_for(self, front, client, put, answers):
        for _ in range(100):
            await put(b"x" * 10_000)
        answers.bounds = Bounds(64 * MIB, 700_000, 700_000, 0, 0)

        page = await client.get(READ)

        assert page.status == 200
        assert 1 <= len(page.json["messages"]) * 10_000 <= PAGE_BYTES_MIN * 8

    async def test_it_is_cut_off_in_time(self, front, bombs, answers, eventually, stuck):
        link = await self.ask(front)
        connection, server = await stuck(), front._server

        server.sweep(connection.taken_by_s - 1)
        assert answers.used > 6 * MIB
        server.sweep(connection.taken_by_s + 1)

        await eventually(lambda: answers.used == 0)
        assert await unread.rest(link) < MIB


def test_a_client_has_time_by_the_size_of_its_answer():
    limits = HttpLimits()

    assert limits.answer_bytes_per_s_min == limits.body_bytes_per_s_min


async def test_budgets_are_the_fronts_own(front):
    assert isinstance(front.budgets, Budgets)


async def test_a_batch_of_the_largest_kind_is_a_few_bytes():
    batch = encode_columns([NULS] * 128, codec=Codec.ZSTD)

    assert len(batch) < 2000
    assert len(json.dumps(NULS.decode())) > 6 * len(NULS)
