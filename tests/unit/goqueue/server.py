"""A server in memory that speaks the HTTP API and misbehaves on request, for testing the client.

`faults` are taken one a publish, in order: an error to answer, or what to do to the connection.
It recognises a producer's repeats as a real partition does.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count

from aiohttp import web
from aiohttp.test_utils import TestServer
from aiohttp.typedefs import Handler

from goqueue.wire.batch import BATCH_MEDIA_TYPE, RecordBatch, encode_columns, split_batches
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    OffsetOutOfRange,
    OutOfOrder,
    PayloadTooLarge,
    TopicExists,
    UnknownTopic,
)
from goqueue.wire.partitioner import partition_for
from goqueue.wire.stream import (
    END_OFFSET_HEADER,
    LOG_START_HEADER,
    NEXT_OFFSET_HEADER,
    BatchFrame,
    encode_frame,
)
from goqueue.wire.types import Offset

START_MS = 1_700_000_000_000


class Fault(Enum):
    CUT_BEFORE = auto()
    """Close the connection without having done anything."""
    CUT_AFTER = auto()
    """Do it, then close the connection without an answer."""
    HANG = auto()
    """Never answer."""
    FORGET_PRODUCERS = auto()
    """Lose every producer's state, then go on."""
    SECOND_FAILS = auto()
    """Refuse the second batch of the request and those behind it, as busy."""


@dataclass(slots=True)
class FakePartition:
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    next: int = 0
    producers: dict[int, tuple[int, dict[int, int]]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)

    def append(self, data: bytes, time_ms: int) -> tuple[int, bool]:
        batch = RecordBatch.parse(data)
        batch.validate()
        if batch.producer_id:
            expected, seen = self.producers.get(batch.producer_id, (0, {}))
            if batch.base_sequence in seen:
                return seen[batch.base_sequence], True
            if batch.base_sequence != expected:
                raise OutOfOrder(expected, batch.base_sequence)
            seen[batch.base_sequence] = self.next
            self.producers[batch.producer_id] = (expected + batch.count, seen)
        else:
            ids = [message_id for message_id in batch.message_ids() if message_id]
            if ids and ids[0] in self.ids:  # whole batches are enough here
                return self.ids[ids[0]], True
            self.ids.update({message_id: self.next + n for n, message_id in enumerate(ids)})
        base, self.next = self.next, self.next + batch.count
        self.batches.append((base, time_ms, data))
        return base, False

    def values(self) -> list[bytes]:
        return [value for _, _, data in self.batches for value in RecordBatch.parse(data).values()]


class FakeCluster:
    """State shared by any number of servers."""

    def __init__(self) -> None:
        self.topics: dict[str, list[FakePartition]] = {}
        self.faults: deque[Fault | GoQueueError] = deque()
        self.answers: deque[list[dict[str, object]]] = deque()
        """What publishes are answered, in order, without doing anything."""
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[bytes] = []
        self.value_bytes_max = 1 << 20
        self.auto_create = False
        self.durability: dict[str, str] = {}
        """What publishes are told beside their places: nothing, as by an older server."""
        self.dedup_window_ms = 300_000
        self.refusing_producers: GoQueueError | None = None
        self.producer_ids = count(1000)
        self.clock_ms = count(START_MS, 10)
        self.holding = asyncio.Event()
        self.holding.set()
        self.asked = asyncio.Event()

    def create(self, name: str, partitions: int) -> list[FakePartition]:
        self.topics[name] = [FakePartition() for _ in range(partitions)]
        return self.topics[name]

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._errors])
        topics = "/v1/topics"
        app.add_routes(
            [
                web.post(topics, self._create_topic),
                web.get(topics, self._list_topics),
                web.get(f"{topics}/{{topic}}", self._describe),
                web.patch(f"{topics}/{{topic}}", self._alter),
                web.delete(f"{topics}/{{topic}}", self._delete),
                web.get(f"{topics}/{{topic}}/partitions", self._partitions),
                web.post(f"{topics}/{{topic}}/messages", self._publish_json),
                web.post(f"{topics}/{{topic}}/partitions/{{partition}}/messages", self._publish),
                web.get(f"{topics}/{{topic}}/partitions/{{partition}}/messages", self._read),
                web.post("/v1/producers/init", self._init_producer),
                web.get("/v1/cluster", self._cluster),
                web.get("/health", self._health),
            ]
        )
        return app

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """One more server; the URL of it."""
        server = TestServer(self.app())
        await server.start_server(shutdown_timeout=0)
        try:
            yield str(server.make_url("")).rstrip("/")
        finally:
            await server.close()

    def paths(self, method: str) -> list[str]:
        return [path for asked, path in self.requests if asked == method]

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.requests.append((request.method, request.path))
        try:
            return await handler(request)
        except GoQueueError as error:
            return web.json_response(error.to_body(), status=error.http_status)

    def _topic(self, request: web.Request) -> list[FakePartition]:
        name = request.match_info["topic"]
        if name not in self.topics:
            raise UnknownTopic(name)
        return self.topics[name]

    async def _create_topic(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["name"] in self.topics:
            raise TopicExists(body["name"])
        self.create(body["name"], body.get("partitions", 6))
        return web.json_response(
            {"name": body["name"], "partitions": body.get("partitions", 6), "created": True},
            status=201,
        )

    async def _list_topics(self, request: web.Request) -> web.Response:
        return web.json_response({"topics": sorted(self.topics)})

    async def _describe(self, request: web.Request) -> web.Response:
        partitions = self._topic(request)
        total = sum(partition.next for partition in partitions)
        return web.json_response(
            {
                "name": request.match_info["topic"],
                "partitions": len(partitions),
                "total_messages": total,
                "unknown_to_this_client": 1,
                "config": {"dedup_window_ms": self.dedup_window_ms},
            }
        )

    async def _alter(self, request: web.Request) -> web.Response:
        self._topic(request)
        body = await request.json()
        return web.json_response(
            {"name": request.match_info["topic"], "partitions": 6, "config": body}
        )

    async def _delete(self, request: web.Request) -> web.Response:
        self._topic(request)
        del self.topics[request.match_info["topic"]]
        return web.json_response({"deleted": True})

    async def _partitions(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "partitions": [
                    {
                        "partition": number,
                        "leader": "node-1",
                        "replicas": ["node-1"],
                        "next": p.next,
                    }
                    for number, p in enumerate(self._topic(request))
                ]
            }
        )

    async def _publish(self, request: web.Request) -> web.Response:
        assert request.content_type == BATCH_MEDIA_TYPE
        body = await request.read()
        self.bodies.append(body)
        self.asked.set()
        await self.holding.wait()
        if self.answers:
            return web.json_response({"results": self.answers.popleft()})
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, GoQueueError):
            raise fault
        partition = self._topic(request)[int(request.match_info["partition"])]
        if fault is Fault.HANG:
            await asyncio.sleep(3600)
        if fault is Fault.CUT_BEFORE:
            return self._cut(request)
        if fault is Fault.FORGET_PRODUCERS:
            partition.producers.clear()
        results: list[dict[str, object]] = []
        for number, data in enumerate(map(bytes, split_batches(body))):
            batch = RecordBatch.parse(data)
            try:
                if fault is Fault.SECOND_FAILS and number >= 1:
                    raise GoQueueError("busy", retriable=True)
                if max(batch.value_lengths()) > self.value_bytes_max:
                    raise PayloadTooLarge(f"over {self.value_bytes_max}")
                base, duplicate = partition.append(data, next(self.clock_ms))
                result: dict[str, object] = {"partition": 0, "offset": base, "duplicate": duplicate}
                results.append({**result, **self.durability})
            except GoQueueError as error:
                results.append(error.to_body())
        if fault is Fault.CUT_AFTER:
            return self._cut(request)
        return web.json_response({"results": results})

    def _cut(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async def _publish_json(self, request: web.Request) -> web.Response:
        name = request.match_info["topic"]
        if name not in self.topics and self.auto_create:
            self.create(name, 3)
        partitions = self._topic(request)
        body = await request.read()
        self.bodies.append(body)
        results: list[dict[str, object]] = []
        for message in json.loads(body)["messages"]:
            if message["value"] == "bad":
                results.append(BadRequest("a bad message").to_body())
                continue
            key = message["key"].encode() if "key" in message else None
            number = message.get("partition", partition_for(key or b"", len(partitions)))
            data = encode_columns([message["value"].encode()], [key])
            base, _ = partitions[number].append(data, next(self.clock_ms))
            results.append({"partition": number, "offset": base})
        return web.json_response({"results": results, **self.durability})

    async def _read(self, request: web.Request) -> web.Response:
        assert request.headers["Accept"] == BATCH_MEDIA_TYPE
        partition = self._topic(request)[int(request.match_info["partition"])]
        query = request.query
        offset, limit = int(query["offset"]), int(query["limit"])
        from_ms, to_ms = int(query.get("from_time", 0)), int(query.get("to_time", 2**63))
        if offset > partition.next:
            raise OffsetOutOfRange(offset, 0, partition.next)
        if "wait" in query and offset == partition.next:
            await asyncio.sleep(0.005)
        frames: list[bytes] = []
        following = offset
        for base, time_ms, data in partition.batches:
            rows = RecordBatch.parse(data).count
            if base + rows <= offset or not from_ms <= time_ms < to_ms:
                continue
            frames.append(encode_frame(BatchFrame(Offset(base), time_ms, data)))
            following = base + rows
            limit -= base + rows - max(base, offset)
            if limit <= 0:
                break
        return web.Response(
            body=b"".join(frames),
            headers={
                "Content-Type": BATCH_MEDIA_TYPE,
                NEXT_OFFSET_HEADER: str(following),
                LOG_START_HEADER: "0",
                END_OFFSET_HEADER: str(partition.next),
            },
        )

    async def _init_producer(self, request: web.Request) -> web.Response:
        if self.refusing_producers is not None:
            raise self.refusing_producers
        return web.json_response({"producer_id": next(self.producer_ids), "epoch": 0})

    async def _cluster(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"cluster_id": "c", "node_id": "node-1", "nodes": 3, "nodes_alive": 2}
        )

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})
