"""Settles that no leader answers, and what is in the way of messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from coordinator.brokers.registry import DRAINING
from goqueue.wire.errors import GoQueueError, NoQuorum, NotInFlight, ReceiptExpired
from node.api.claims import NOBODY, Claim
from node.api.queue import SettleRequest, SettleView
from node.api.streams import Stream
from node.broker.node import NodeBroker
from node.http.request import troubles
from node.listeners.h2 import subscription
from node.listeners.h2.commands import Command, Verb
from node.listeners.h2.connection import Connection
from node.listeners.h2.subscription import _Given, dacks_of, request_of
from tests.one_node import cluster_of, eventually
from tests.unit.node.listeners.h2.talk import h2_node, port_of, talking
from tests.unit.node.listeners.h2.test_listener import listening


class Faulty:
    """A broker whose streams answer their settles, or their receives, with these errors first."""

    def __init__(
        self,
        broker: NodeBroker,
        settles: Sequence[GoQueueError] = (),
        receives: Sequence[GoQueueError] = (),
    ) -> None:
        self._broker = broker
        self.settles = list(settles)
        self.receives = list(receives)
        self.settled: list[int] = []
        """How many each settle was of."""
        self.may_settle = asyncio.Event()
        self.may_settle.set()
        self.streams = self

    async def open(self, group: str, **named: Any) -> Stream:
        self._stream = await self._broker.streams.open(group, **named)
        return cast(Stream, self)

    async def settle(
        self, requests: Sequence[SettleRequest], claim: Claim = NOBODY
    ) -> Sequence[SettleView | GoQueueError]:
        self.settled.append(len(requests))
        await self.may_settle.wait()
        if self.settles:
            error = self.settles.pop(0)
            return [error] * len(requests)
        return await self._stream.settle(requests, claim)

    async def receive(self, topics: Sequence[str], **named: Any) -> Any:
        if self.receives:
            raise self.receives.pop(0)
        return await self._stream.receive(topics, **named)

    async def end(self, *, returned: bool) -> None:
        await self._stream.end(returned=returned)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(troubles, "FIRST_S", 0.0)


async def heard(faulty: Mapping[str, Sequence[GoQueueError]], said: Sequence[str]) -> list[Any]:
    """Each line that a subscriber is told of two messages, that says these commands."""
    async with h2_node() as node:
        broker = cast(NodeBroker, Faulty(node.broker, **faulty))
        async with listening(broker) as listener, talking(listener.port) as talker:
            for value in (b"one", b"two"):
                await talker.publish("foo", value)
            answer = await talker.ask("POST", "/subscribe/foo")
            await talker.say(answer, *said, is_last=True)
            lines = []
            while (line := await talker.line(answer)) is not None:
                lines.append(line)
            left = await node.broker.queue.peek("foo.miniqueue", ["foo"], limit=9, partitions=None)
    return [*lines, [(one.value.decode(), one.attempt) for one in left]]


ONE, TWO = {"msg": "b25l"}, {"msg": "dHdv"}


async def test_a_settle_without_an_answer_is_repeated_and_then_the_next_one_comes() -> None:
    found = await heard({"settles": [NoQuorum(), NoQuorum()]}, ["INIT", "ACK", "ACK"])

    assert found == [ONE, TWO, []]


async def test_a_settle_that_no_repeat_mends_ends_the_stream_and_the_message_comes_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription, "SETTLE_S", -1.0)

    first, error, left = await heard({"settles": [NoQuorum()]}, ["INIT", "ACK", "ACK"])

    assert (first, error["code"]) == (ONE, "no_quorum")
    assert [value for value, _ in left] == ["one", "two"]


@pytest.mark.parametrize("error", [ReceiptExpired(), NotInFlight()])
async def test_a_lease_that_is_over_is_told_and_the_next_message_comes(error: GoQueueError) -> None:
    first, told, second, _ = await heard({"settles": [error]}, ["INIT", "ACK", "ACK"])

    assert (first, second) == (ONE, TWO)
    assert told["error"].startswith("error ACKing message: ") and told["code"] == error.code


async def test_what_is_in_the_way_is_told_once_and_it_goes_on() -> None:
    told, first, second, left = await heard(
        {"receives": [NoQuorum(), NoQuorum()]}, ["INIT", "ACK", "ACK"]
    )

    assert told["error"].startswith("error getting next value for consumer: ")
    assert (first, second, left) == (ONE, TWO, [])


async def test_messages_that_come_together_go_in_one_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames: list[int] = []
    send = Connection.send

    def counted(self: Connection, stream: int, data: bytes, *, is_last: bool) -> None:
        frames.append(bytes(data).count(b"\n"))
        send(self, stream, data, is_last=is_last)

    monkeypatch.setattr(Connection, "send", counted)
    async with h2_node() as node, talking(port_of(node)) as talker:
        for _ in range(8):
            await talker.publish("foo", bytes(2000))
        answer = await talker.subscribe("foo", "?credit=8")
        found = [await talker.message(answer) for _ in range(8)]

    assert found == [("\0" * 2000, 0)] * 8
    assert frames == [6, 2]  # lines of 2,680 bytes each in frames of 16 KiB


async def test_commands_that_come_while_others_are_settled_are_settled_together() -> None:
    async with h2_node() as node:
        faulty = Faulty(node.broker)
        async with (
            listening(cast(NodeBroker, faulty)) as listener,
            talking(listener.port) as talker,
        ):
            for _ in range(6):
                await talker.publish("foo", b"x")
            answer = await talker.subscribe("foo", "?credit=6")
            for _ in range(6):
                await talker.message(answer)
            faulty.may_settle.clear()
            await talker.say(answer, "ACK")
            await eventually(lambda: faulty.settled)
            for _ in range(5):
                await talker.say(answer, "ACK")
            await talker.publish("bar", b"x")  # what was said before has come
            faulty.may_settle.set()
            await talker.say(answer, is_last=True)
            await talker.ended(answer)

    assert faulty.settled == [1, 5]


async def test_a_node_that_is_drained_ends_its_subscriptions_once() -> None:
    async with h2_node() as node, listening(node.broker) as listener:
        brokers = cluster_of(node.broker).state.brokers
        async with talking(listener.port) as talker:
            await talker.publish("foo", b"x")
            answer = await talker.subscribe("foo")
            await talker.message(answer)
            brokers["node-1"] = replace(brokers["node-1"], state=DRAINING)
            listener.look(0.0)
            told = await talker.line(answer)
            await talker.ended(answer)
            left = await node.broker.queue.peek("foo.miniqueue", ["foo"], limit=9, partitions=None)

            again = await talker.subscribe("foo")  # there is no other node
            listener.look(0.0)
            message = await talker.message(again)

    assert told is not None
    assert (told["code"], "is drained" in told["error"]) == ("unavailable", True)
    assert [one.attempt for one in left] == [1]  # it would be the first one again
    assert message == ("x", 0)


def test_a_failed_attempt_keeps_how_often_there_was_a_dack() -> None:
    given = _Given("r", 0)
    reasons = []
    for verb, delay_s in ((Verb.DACK, 3), (Verb.NACK, 0), (Verb.DACK, 6), (Verb.BACK, 0)):
        request = request_of(Command(verb, delay_s), given)
        given = _Given("r", dacks_of(request.reason))
        reasons.append((request.reason, request.delay_ms, request.to_back))

    assert reasons == [
        ("DACK (dackCount 1)", 3000, False),
        ("NACK (dackCount 1)", 0, False),
        ("DACK (dackCount 2)", 6000, False),
        ("BACK (dackCount 2)", 0, True),
    ]
    assert dacks_of("consumer lost") == dacks_of("") == 0
    assert request_of(Command(Verb.ACK), given) == SettleRequest("r", "ack")
