"""Connections of Redis' clients over a real node: keys, pipelines, waits, bounds, and the stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from goqueue.wire.errors import Unauthenticated
from node.api.auth.access import Access
from node.api.auth.key_verifier import Origin
from node.api.auth.principal import Principal, Role
from node.api.claims import NOBODY
from node.api.groups import GroupView
from node.api.queue import PendingFilter
from node.api.spans import Work
from node.assembly import NodeAssembly
from node.http.auth.admission import Admission
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Bounds, Budgets, Kind
from node.http.connections.crowd import Crowd
from node.listeners.parts import ListenerParts
from node.listeners.redis.listener import RedisListener
from tests.one_node import eventually, one_node
from tests.unit.node.listeners.redis.resp import Error, Status, Talker, command

HOST = "127.0.0.1"
KEYS = {
    "admin.0123456789abcdef": Principal("admin", Role.ADMIN),
    "mine.0123456789abcdef": Principal("mine", Role.PRODUCER, ("mine.",)),
    "reader.0123456789abcdef": Principal("reader", Role.CONSUMER, ("mine.",)),
}


class Keys:
    """Knows those of `KEYS` that are not revoked."""

    def __init__(self) -> None:
        self.revoked = set[str]()

    def known(self, token: str) -> Principal | None:
        return None if token in self.revoked else KEYS.get(token)

    async def prove(self, token: str, origin: Origin) -> Principal:
        raise Unauthenticated("this key does not hold", reason="unknown")

    def refused(self, result: str) -> None:
        return None

    def denied(self, missing: str) -> None:
        return None


class Told:
    """Metrics, the audit log and spans."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str, int]] = []
        self.accesses: list[Access] = []
        self.works: list[Work] = []
        self.open = 0

    def answered(
        self, protocol: str, operation: str, code: str, seconds: float, count: int = 1
    ) -> None:
        assert protocol == "redis"
        self.answers.append((operation, code, count))

    def connected(self, protocol: str, count: int) -> None:
        self.open = count

    def tell(self, work: Work) -> None:
        self.works.append(work)


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with one_node(**{"broker.autoCreateTopics": True}) as started:
        await started.broker.upgrade.finish_level()
        yield started


@asynccontextmanager
async def listening(node: NodeAssembly, **parts: Any) -> AsyncIterator[RedisListener]:
    limits = parts.pop("limits", HttpLimits(drain_s=0.2))
    made = ListenerParts(node.broker, limits=limits, crowd=Crowd(limits))
    listener = RedisListener(replace(made, **parts), HOST, 0)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop()


async def test_a_pipeline_is_stored_in_order_in_few_batches_and_answered_one_by_one(
    node: NodeAssembly,
) -> None:
    told = Told()
    async with listening(node, metrics=told, spans=told) as listener:
        client = await Talker.to(listener.port)
        said = [command("XADD", "s", "*", "value", str(n)) for n in range(20)]
        said[7] = command("XADD", "s", "1-1", "value", "7")
        said[12] = command("PUBLISH", "other", "x")
        client.writer.write(b"".join(said) + command("XLEN", "s"))

        replies = [await client.hear() for _ in range(21)]

        ids = [reply for n, reply in enumerate(replies[:20]) if n not in (7, 12)]
        assert [int(id.partition(b"-")[2]) for id in ids] == list(range(18))
        assert isinstance(replies[7], Error) and replies[12] == Status("OK")
        assert replies[20] == 18
        values = [fields[1] for _, fields in await client.ask("XRANGE", "s", "-", "+")]
        assert values == [str(n).encode() for n in range(20) if n not in (7, 12)]
        assert sum(n for name, code, n in told.answers if name == "XADD" and not code) == 18
        assert len([one for one in told.answers if one[0] == "XADD"]) <= 4
        assert sum(work.count for work in told.works if work.operation == "publish") == 19


async def test_commands_of_one_pipeline_that_are_not_alike_are_stored_as_each_says(
    node: NodeAssembly,
) -> None:
    """Those that are alike are read by columns, the others one by one."""
    said = [
        command("XADD", "s", "NOMKSTREAM", "*", "value", "nobody asked for the stream"),
        command("XADD", "s", "*", "value", "1"),
        command("xadd", "s", "*", "value", "2"),
        command("XADD", "s", "*", "colour", "blue"),
        command("XADD", "t", "*", "value", "3"),
        command("XADD", "s", "*", "value", "4", "key", "k"),
        command("XADD", "s", "NOMKSTREAM", "*", "value", "5"),
        command("XADD", "s", "*", "value", "6", "value", "7"),
        command("XADD", "bad name", "*", "value", "8"),
        command("XADD", "s", "*", "value", "9"),
        command("XADD", "s", "*", "value", "10"),
    ]
    async with listening(node) as listener:
        client = await Talker.to(listener.port)
        client.writer.write(b"".join(said))

        replies = [await client.hear() for _ in said]

        assert replies[0] is None
        assert [n for n, reply in enumerate(replies) if isinstance(reply, Error)] == [7, 8]
        assert await client.ask("XRANGE", "t", "-", "+") == [[replies[4], [b"value", b"3"]]]
        fields = {
            1: [b"value", b"1"],
            2: [b"value", b"2"],
            3: [b"colour", b"blue"],
            5: [b"value", b"4", b"key", b"k"],
            6: [b"value", b"5"],
            9: [b"value", b"9"],
            10: [b"value", b"10"],
        }
        stored = await client.ask("XRANGE", "s", "-", "+")
        assert {bytes(id): sorted(zip(f[::2], f[1::2], strict=True)) for id, f in stored} == {
            replies[n]: sorted(zip(f[::2], f[1::2], strict=True)) for n, f in fields.items()
        }
        assert [int(id.partition(b"-")[2]) for id, _ in stored] == list(range(7))


async def test_a_value_is_any_bytes_up_to_the_topics_bound(node: NodeAssembly) -> None:
    await node.broker.topics.create_topic("s", {"partitions": 1, "max_message_bytes": 2000})
    async with listening(node) as listener:
        client = await Talker.to(listener.port)
        value = bytes(range(256)) * 4
        client.writer.write(
            command("XADD", "s", "*", "value", value)
            + command("XADD", "s", "*", "value", bytes(3000))
            + command("XADD", "s", "*", "value", b"", "näme", b"\xff")
        )
        first, second, third = [await client.hear() for _ in range(3)]
        assert "payload_too_large" in second.text
        assert await client.ask("XRANGE", "s", "-", "+") == [
            [first, [b"value", value]],
            [third, ["näme".encode(), b"\xff"]],
        ]
        refused = await client.ask("XADD", "s", "*", b"\xff", "x")
        assert refused == Error("ERR a field's name is not UTF-8")


async def test_without_a_key_there_is_little_to_ask_and_each_key_has_its_reach(
    node: NodeAssembly,
) -> None:
    keys, told = Keys(), Told()
    parts = {"admission": Admission(keys), "metrics": told, "on_access": told.accesses.append}
    async with listening(node, **parts) as listener:
        client = await Talker.to(listener.port)
        assert await client.ask("PING") == Status("pong")
        assert len(listener._requests.parts.crowd.idle) == 1, "a ping proves nothing"
        for said in (["XADD", "mine.a", "*", "f", "v"], ["INFO"], ["XREAD", "STREAMS", "a", "0"]):
            assert (await client.ask(*said)).text.startswith("NOAUTH")
        assert (await client.ask("SUBSCRIBE", "mine.a")).text.startswith("NOAUTH")
        assert (await client.ask("AUTH", "mine.ffffffffffffffff")).text.startswith("WRONGPASS")
        assert (await client.ask("AUTH", "nonsense")).text.startswith("WRONGPASS")
        assert (await client.ask("HELLO", "3")).text.startswith("NOAUTH")

        assert await client.ask("AUTH", "mine", "0123456789abcdef") == Status("OK")
        assert len(listener._requests.parts.crowd.idle) == 0
        assert isinstance(await client.ask("XADD", "mine.a", "*", "f", "v"), bytes)
        assert (await client.ask("XADD", "yours", "*", "f", "v")).text.startswith("NOPERM")
        assert (await client.ask("XRANGE", "mine.a", "-", "+")).text.startswith("NOPERM")

        reader = await Talker.to(listener.port)
        await reader.ask("HELLO", "2", "AUTH", "default", "reader.0123456789abcdef")
        assert len(await reader.ask("XRANGE", "mine.a", "-", "+")) == 1
        assert (await reader.ask("XREAD", "STREAMS", "yours", "0")).text.startswith("NOPERM")
        assert (await reader.ask("BLPOP", "yours", "1")).text.startswith("NOPERM")
        assert await reader.ask("TOPICS") == Status("[mine.a]")
        assert (await reader.ask("LPUSH", "mine.a", "x")).text.startswith("NOPERM")

        keys.revoked.add("mine.0123456789abcdef")
        assert (await client.ask("XADD", "mine.a", "*", "f", "v")).text.startswith("WRONGPASS")
    denied = [one for one in told.accesses if one.code == "forbidden"]
    assert {(one.principal.key_id, one.method) for one in denied if one.principal} == {
        ("mine", "redis"),
        ("reader", "redis"),
    }


async def test_commands_nobody_knows_are_counted_under_one_name(node: NodeAssembly) -> None:
    told = Told()
    async with listening(node, metrics=told) as listener:
        client = await Talker.to(listener.port)
        for word in ("NONSENSE", "x" * 1000, "GET", "XADD", "\r\n"):
            assert isinstance(await client.ask(word), Error)
        assert {name for name, _, _ in told.answers} == {"unknown"}
        assert told.open == 1


async def test_who_waits_and_goes_leaves_nothing_leased(node: NodeAssembly) -> None:
    async with listening(node) as listener:
        client = await Talker.to(listener.port)
        assert await client.ask("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM") == Status("OK")
        waiting = await Talker.to(listener.port)
        waiting.say("XREADGROUP", "GROUP", "g", "gone", "BLOCK", "0", "STREAMS", "s", ">")
        other = await Talker.to(listener.port)
        other.say("SUBSCRIBE", "s")
        await asyncio.sleep(0.05)
        waiting.close()
        other.close()
        polls = listener._requests.parts.budgets[Kind.POLLS]
        await eventually(lambda: polls.used == 0)

        await client.ask("XADD", "s", "*", "value", "one")
        pending = await node.broker.queue.pending("g", "s", 0, PendingFilter(10))
        assert pending.by_consumer == {}
        taken = await client.ask("XREADGROUP", "GROUP", "g", "here", "STREAMS", "s", ">")
        assert taken[0][1][0][1] == [b"value", b"one"]


async def test_a_group_is_not_made_anew_where_nobody_tells_whether_it_is_there(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = node.broker.groups
    ask = groups.group
    is_silent = True

    async def group(name: str, topic: str | None = None) -> GroupView:
        found = await ask(name, topic)
        return replace(found, partitions=[], stale=True) if is_silent else found

    async with listening(node) as listener:
        client = await Talker.to(listener.port)
        await client.ask("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        id = await client.ask("XADD", "s", "*", "value", "one")
        await client.ask("XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">")
        assert await client.ask("XACK", "s", "g", id) == 1
        monkeypatch.setattr(groups, "group", group)
        other = await Talker.to(listener.port)  # it knows of no group yet
        for said in ("XGROUP DESTROY s g", "XREADGROUP GROUP g me STREAMS s >"):
            refused = await other.ask(*said.split())
            assert refused.text.startswith("TRYAGAIN nobody tells whether group g is in s")
        refused = await other.ask("XGROUP", "CREATE", "s", "g", "0")
        assert refused.text.startswith("BUSYGROUP")
        is_silent = False
        assert await client.ask("XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">") is None


async def test_one_of_all_who_make_a_group_at_once_makes_it(node: NodeAssembly) -> None:
    async with listening(node) as listener:
        clients = [await Talker.to(listener.port) for _ in range(5)]
        await clients[0].ask("XADD", "s", "*", "value", "one")
        told = await asyncio.gather(
            *(one.ask("XGROUP", "CREATE", "s", "g", "0") for one in clients)
        )
        refused = [one for one in told if isinstance(one, Error)]
        assert len(refused) == 4
        assert all(one.text.startswith("BUSYGROUP") for one in refused)
        given = await clients[0].ask("XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">")
        assert len(given[0][1]) == 1


async def test_what_is_given_is_charged_until_it_is_written(node: NodeAssembly) -> None:
    budgets = Budgets()
    async with listening(node, budgets=budgets) as listener:
        client = await Talker.to(listener.port)
        await client.ask("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        for _ in range(3):
            await client.ask("XADD", "s", "*", "value", bytes(200_000))
        taken = await client.ask("XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">")
        assert len(taken[0][1]) == 3
        assert len(await client.ask("XRANGE", "s", "-", "+")) == 3
        assert await client.ask("LPOP", "s") == bytes(200_000)
        await eventually(lambda: not any(one.used for one in budgets.all))


async def test_where_there_is_no_room_it_is_told_and_the_node_goes_on(node: NodeAssembly) -> None:
    tight = Bounds(100_000, 100_000, 100_000, 0, 0)
    limits = HttpLimits(drain_s=0.2, room_wait_s=0.01)
    async with listening(node, budgets=Budgets({Kind.APPENDS: tight}), limits=limits) as listener:
        client = await Talker.to(listener.port)
        refused = await client.ask("XADD", "s", "*", "value", bytes(200_000))
        assert refused.text.startswith("TRYAGAIN")
        assert isinstance(await client.ask("XADD", "s", "*", "value", "small"), bytes)
    async with listening(node, budgets=Budgets({Kind.BODIES: tight}), limits=limits) as listener:
        client = await Talker.to(listener.port)
        client.say("XADD", "s", "*", "value", bytes(300_000))
        assert (await client.hear()).text.startswith("TRYAGAIN")
        assert await client.is_over()
    async with listening(node, budgets=Budgets({Kind.ANSWERS: tight}), limits=limits) as listener:
        client = await Talker.to(listener.port)
        await client.ask("XADD", "big", "*", "value", bytes(150_000))
        assert (await client.ask("XRANGE", "big", "-", "+")).text.startswith("TRYAGAIN")
        assert await client.ask("PING") == Status("pong")


async def test_a_stop_ends_waits_serves_what_arrived_and_closes(node: NodeAssembly) -> None:
    async with listening(node) as listener:
        waiting, idle = await Talker.to(listener.port), await Talker.to(listener.port)
        waiting.say("BLPOP", "jobs", "0")
        waiting.say("PING")
        subscribed = await Talker.to(listener.port)
        subscribed.say("SUBSCRIBE", "jobs2")
        assert await idle.ask("PING") == Status("pong")
        await asyncio.sleep(0.05)

        listener._requests.parts.stopping.set()

        assert await waiting.hear() is None
        assert await waiting.hear() == Status("pong")
        assert isinstance(await subscribed.hear(), Error)
        assert await idle.ask("PING") == Status("pong"), "it is served until the end"
        await listener.stop()
        assert await idle.is_over() and await waiting.is_over() and await subscribed.is_over()


async def test_a_range_that_is_too_large_for_one_reply_is_refused_not_cut(
    node: NodeAssembly, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.listeners.redis.entries.REPLY_BYTES_MAX", 3000)
    monkeypatch.setattr("node.listeners.redis.entries.READ_RECORDS", 4)
    async with listening(node) as listener:
        client = await Talker.to(listener.port)
        ids = [await client.ask("XADD", "s", "*", "value", bytes(500)) for _ in range(10)]
        for said in (["XRANGE", "s", "-", "+"], ["XREVRANGE", "s", "+", "-"]):
            assert "too_much" in (await client.ask(*said)).text
            assert len(await client.ask(*said, "COUNT", "3")) == 3
        found, begin = [], b"-"
        while some := await client.ask("XRANGE", "s", begin, "+", "COUNT", "3"):
            found += [id for id, _ in some]
            begin = b"(" + some[-1][0]
        assert found == ids


async def test_delayed_messages_hold_a_stream_up_until_they_are_due(node: NodeAssembly) -> None:
    from goqueue.wire.batch import encode_columns

    async with listening(node) as listener:
        client = await Talker.to(listener.port)
        first = await client.ask("XADD", "s", "*", "value", "first")
        later = encode_columns([b"later"], deliver_at_ms=[3_600_000])
        await node.broker.records.append("s", 0, later, deadline_s=30)
        await client.ask("XADD", "s", "*", "value", "behind")

        assert [id for id, _ in await client.ask("XRANGE", "s", "-", "+")] == [first]
        assert await client.ask("XREAD", "BLOCK", "20", "STREAMS", "s", first) is None
        assert await client.ask("XLEN", "s") == 3


async def test_pending_entries_are_told_and_taken_over_by_the_broker(node: NodeAssembly) -> None:
    async with listening(node) as listener:
        client = await Talker.to(listener.port)
        await client.ask("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        for n in range(5):
            await client.ask("XADD", "s", "*", "value", str(n))
        await client.ask("XREADGROUP", "GROUP", "g", "a", "COUNT", "4", "STREAMS", "s", ">")
        queue = node.broker.queue

        page = await queue.pending("g", "s", 0, PendingFilter(2, 1))
        assert [one.offset for one in page.found] == [1, 2]
        assert (page.following, page.first, page.last, page.by_consumer) == (3, 0, 3, {"a": 4})
        assert [m.message.value for m in page.found if m.message] == [b"1", b"2"]
        (one,) = (await queue.pending("g", "s", 0, PendingFilter(9, offsets=[3, 4, 99]))).found
        assert (one.offset, one.attempt, one.consumer) == (3, 1, "a")
        idle = await queue.pending("g", "s", 0, PendingFilter(9, idle_ms_min=10**9))
        assert idle.found == [] and idle.by_consumer == {"a": 4}

        taken, before = await queue.take_over("g", "s", 0, "b", PendingFilter(2))
        assert [(m.offset, m.attempt) for m in taken] == [(0, 2), (1, 2)]
        assert [(m.offset, m.consumer) for m in before.found] == [(0, "a"), (1, "a")]
        rest = await queue.receive("g", ["s"], claim=NOBODY, limit=9, wait_s=0, visibility_ms=None)
        assert [message.offset for message in rest] == [4]
        counts = (await queue.pending("g", "s", 0, PendingFilter())).by_consumer
        assert counts == {"a": 2, "b": 2, "": 1}
        none, _ = await queue.take_over("g", "s", 0, "b", PendingFilter(9, offsets=[77]))
        assert none == []
