"""Receives and acks by HTTP, as a consumer without a library would; checks each message once."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

import msgspec

from benchmarks.connection import BadAnswer, Connection, get, post
from benchmarks.payloads import MASK, fingerprint
from benchmarks.processes import DevCluster
from benchmarks.publish import Load
from benchmarks.settling import WAIT_S, Settled, work_until
from goqueue import AsyncClient


class _Message(msgspec.Struct, gc=False):
    partition: int
    offset: int
    value: str
    receipt: str


class _Received(msgspec.Struct):
    messages: list[_Message]


class _Ended(msgspec.Struct):
    success: bool


class _ReceivedNext(_Received):
    settle_results: list[_Ended] = []


class _Acked(msgspec.Struct):
    settled: int


class _Partition(msgspec.Struct):
    partition: int
    in_flight: int
    acked: int


class _Group(msgspec.Struct):
    partitions: list[_Partition]


_received = msgspec.json.Decoder(_ReceivedNext)
_acked = msgspec.json.Decoder(_Acked)
_group = msgspec.json.Decoder(_Group)


@dataclass(slots=True)
class Receiver:
    """A group of consumers of one topic, and what each partition has given them."""

    cluster: DevCluster
    topic: str
    group: str
    limit: int
    wait_s: float = WAIT_S
    shuffled: bool = False
    """Acks each batch in another order than it came in."""
    rides: bool = False
    """Acks what came with the next receive, instead of a request of its own."""
    print: int = 0
    settled: dict[int, Settled] = field(default_factory=dict[int, Settled])

    async def open(self) -> None:
        """The group begins in every partition of the topic, which must be empty."""
        connection = await Connection.open(self.cluster.addresses[0])
        _, body = await connection.ask(
            self._ask("receive", {"topic": self.topic, "limit": 1, "wait": "0s"})
        )
        connection.close()
        if _received.decode(body).messages:
            raise BadAnswer(f"{self.topic} is not empty")

    def expect(self, ends: list[int]) -> None:
        """What is to come: as many messages from each partition."""
        self.settled = {number: Settled(end) for number, end in enumerate(ends)}

    async def work(self, connections: int, seconds: float) -> Load:
        opened = [
            await Connection.open(self.cluster.addresses[n % len(self.cluster.addresses)])
            for n in range(connections)
        ]

        held: dict[Connection, list[_Message]] = {}

        async def begin(_: Connection) -> None:
            return

        async def turn(connection: Connection) -> int:
            before = held.pop(connection, [])
            messages = await self._receive(connection, before)
            if messages and self.rides:
                held[connection] = messages
            elif messages:
                await self._ack(connection, messages)
            return len(messages)

        load = await work_until(opened, begin, turn, self.cluster.pids(), seconds)
        for connection, messages in held.items():
            await self._ack(connection, messages)
        for connection in opened:
            connection.close()
        return load

    async def check(self) -> None:
        """The group's figures and the values are what was received. Raises `BadAnswer`."""
        connection = await Connection.open(self.cluster.addresses[-1])
        _, body = await connection.ask(get(f"/v1/groups/{self.group}?topic={self.topic}"))
        connection.close()
        for one in _group.decode(body).partitions:
            settled = self.settled[one.partition].count
            if (one.acked, one.in_flight) != (settled, 0):
                raise BadAnswer(f"{self.topic}/{one.partition}: {settled} acked, it says {one}")
        total = 0
        async with AsyncClient(self.cluster.urls[-1]) as client:
            for partition, numbered in self.settled.items():
                wanted = set(numbered.numbers)
                async for page in client.pages(self.topic, partition):
                    total += fingerprint(m.value for m in page.messages if m.offset in wanted)
        if total & MASK != self.print & MASK:
            raise BadAnswer(f"{self.topic}: what was received is not what was stored")

    async def _receive(self, connection: Connection, before: list[_Message]) -> list[_Message]:
        wait = f"{self.wait_s * 1000:.0f}ms"
        wanted: dict[str, object] = {"topic": self.topic, "limit": self.limit, "wait": wait}
        if before:
            wanted["settle"] = [{"receipt": one.receipt, "action": "ack"} for one in before]
        _, body = await connection.ask(self._ask("receive", wanted))
        found = _received.decode(body)
        if [end.success for end in found.settle_results] != [True] * len(before):
            raise BadAnswer(f"{len(before)} acks with a receive: {body[:300].decode()}")
        self._note(before)
        return found.messages

    async def _ack(self, connection: Connection, messages: list[_Message]) -> None:
        if self.shuffled:
            random.shuffle(messages)
        _, body = await connection.ask(
            self._ask("ack", {"receipts": [message.receipt for message in messages]})
        )
        if _acked.decode(body).settled != len(messages):
            raise BadAnswer(f"{len(messages)} receipts: {body[:300].decode()}")
        self._note(messages)

    def _note(self, messages: list[_Message]) -> None:
        for message in messages:
            self.settled[message.partition].add((message.offset,))
        self.print += fingerprint(message.value.encode() for message in messages)

    def _ask(self, verb: str, body: dict[str, object]) -> bytes:
        path = f"/v1/groups/{self.group}/{verb}"
        return post(path, json.dumps(body, separators=(",", ":")).encode(), "application/json")


async def receive(
    cluster: DevCluster,
    topic: str,
    ends: list[int],
    *,
    limit: int,
    connections: int,
    seconds: float,
    rides: bool = False,
) -> Load:
    """Receive `limit` messages a request and ack them with another, or with the next receive where
    it `rides`; then check."""
    receiver = Receiver(cluster, topic, f"g-{limit}-{connections}", limit, rides=rides)
    receiver.expect(ends)
    load = await receiver.work(connections, seconds)
    await receiver.check()
    return load
