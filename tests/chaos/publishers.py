"""Publishers that never stop: each sends to every partition, one request a partition at a time.

Three kinds take turns. A *plain* one sends JSON without identity and never repeats what may have
been received. An *idempotent* one, in JSON or in record batches, has a producer id and repeats the
identical request until it is acked. All go through a node that answers, and to another when the
connection fails.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

from goqueue.wire.batch import BATCH_MEDIA_TYPE, encode_columns
from tests.chaos.cluster import Cluster
from tests.chaos.http import Answer, Http, NoAnswer
from tests.check.history import History

PACE_S = 0.1
BATCH = 6
RETRY_S = 0.02
ATTEMPT_S = 15.0
GIVE_UP_S = 60.0
KEYS = 3
KINDS = ("plain", "plain", "json", "batch")


@dataclass
class Identity:
    """A producer id with the next sequence of each partition."""

    producer_id: int = 0
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Request:
    """One publish: what to send, and where it stands in the history."""

    op: int
    partition: int
    values: list[str]
    path: str
    json: dict[str, Any] | None = None
    data: bytes | None = None


class Refused(Exception):
    """A definite no; `outcome` is what the error says of it."""

    def __init__(self, code: str, *, is_unknown: bool, is_retriable: bool) -> None:
        super().__init__(code)
        self.code = code
        self.is_unknown = is_unknown
        self.is_retriable = is_retriable


class Publisher:
    """One client with a worker for every partition."""

    def __init__(
        self,
        number: int,
        cluster: Cluster,
        http: Http,
        topic: str,
        partitions: int,
        history: History,
        rng: random.Random,
        *,
        pace_s: float = PACE_S,
        batch: int = BATCH,
    ) -> None:
        """`batch`: messages in each of the record batches; a worker rests for `pace_s` between two
        requests."""
        self.name = f"p{number}"
        self.kind = KINDS[number % len(KINDS)]
        self.errors: dict[str, int] = {}
        self.identities_lost = 0
        self._cluster = cluster
        self._http = http
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._rng = rng
        self._pace_s = pace_s
        self._batch = batch
        self._node = cluster.nodes[number % len(cluster.nodes)]
        self._next_value = 0
        self._identity = [Identity() for _ in range(partitions)]
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Publish until `stop()`; every operation begun is brought to an outcome."""
        async with asyncio.TaskGroup() as tasks:
            for partition in range(self._partitions):
                tasks.create_task(self._work(partition))

    def stop(self) -> None:
        self._stopping.set()

    async def _work(self, partition: int) -> None:
        await asyncio.sleep(self._rng.uniform(0, self._pace_s))
        while not self._stopping.is_set():
            if self.kind != "plain" and not self._identity[partition].producer_id:
                await self._identify(partition)
                continue
            request = self._make(partition)
            acked = await self._publish(request)
            await asyncio.sleep(self._pace_s * self._rng.uniform(0.7, 1.3) if acked else RETRY_S)

    async def _identify(self, partition: int) -> None:
        try:
            answer = await self._http.ask("POST", f"{self._node.url}/producers/init", json={})
        except NoAnswer:
            self._fail_over()
        else:
            if answer.status == 200:
                body = answer.body
                self._identity[partition] = Identity(body["producer_id"], body["epoch"])
                return
        await asyncio.sleep(RETRY_S)

    def _make(self, partition: int) -> Request:
        count = {"plain": self._rng.randrange(1, 4), "json": 2, "batch": self._batch}[self.kind]
        first = self._next_value
        self._next_value += count
        values = [f"{self.name}.{n}.{'x' * 40}" for n in range(first, first + count)]
        key = f"{self.name}-{partition}-{self._rng.randrange(KEYS)}"
        op = self._history.invoke(self.name, partition, key, values)
        path = f"/topics/{self._topic}/messages"
        identity = self._identity[partition]
        sequence = identity.sequences.get(partition, 0)
        if self.kind == "batch":
            data = encode_columns(
                [value.encode() for value in values],
                [key.encode()] * count,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=sequence,
            )
            path = f"/topics/{self._topic}/partitions/{partition}/messages"
            return Request(op, partition, values, path, data=data)
        body: dict[str, Any] = {
            "messages": [{"value": v, "key": key, "partition": partition} for v in values]
        }
        if self.kind == "json":
            body |= {
                "producer_id": identity.producer_id,
                "producer_epoch": identity.epoch,
                "sequence": sequence,
            }
        return Request(op, partition, values, path, json=body)

    async def _publish(self, request: Request) -> bool:
        """Bring one operation to its outcome; whether it was acked."""
        give_up = time.monotonic() + GIVE_UP_S
        in_doubt = False
        while True:
            sent = time.monotonic()
            try:
                offsets, duplicate = await self._attempt(request)
            except NoAnswer as error:
                self._count("no answer" if not error.is_unsent else "no connection")
                self._fail_over()
                in_doubt |= not error.is_unsent
                may_repeat = error.is_unsent or self.kind != "plain"
                reason = str(error)
            except Refused as error:
                self._count(error.code)
                in_doubt |= error.is_unknown
                may_repeat = self.kind != "plain" and error.is_retriable
                reason = error.code
            else:
                self._acked(request, offsets, sent, duplicate)
                return True
            if not may_repeat or time.monotonic() > give_up:
                self._ended(request, reason, in_doubt)
                return False
            await asyncio.sleep(RETRY_S)

    async def _attempt(self, request: Request) -> tuple[list[int], bool]:
        headers = {"Content-Type": BATCH_MEDIA_TYPE} if request.data is not None else None
        answer = await self._http.ask(
            "POST",
            self._node.url + request.path,
            json=request.json,
            data=request.data,
            headers=headers,
            timeout_s=ATTEMPT_S,
        )
        return offsets_of(answer, len(request.values), is_batch=request.data is not None)

    def _acked(self, request: Request, offsets: list[int], sent: float, duplicate: bool) -> None:
        self._history.ok(request.op, offsets, sent=sent, duplicate=duplicate)
        identity = self._identity[request.partition]
        sequence = identity.sequences.get(request.partition, 0)
        identity.sequences[request.partition] = sequence + len(request.values)

    def _ended(self, request: Request, reason: str, in_doubt: bool) -> None:
        if in_doubt:
            self._history.info(request.op, reason)
        else:
            self._history.fail(request.op, reason)
        if self.kind != "plain":
            self.identities_lost += 1
            self._history.note("identity lost", publisher=self.name, op=request.op, why=reason)
            self._identity[request.partition] = Identity()

    def _fail_over(self) -> None:
        others = [node for node in self._cluster.running() if node is not self._node]
        if others:
            self._node = self._rng.choice(others)

    def _count(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


def offsets_of(answer: Answer, count: int, *, is_batch: bool) -> tuple[list[int], bool]:
    """The offsets that were acked, and whether they were a duplicate's. Raises Refused."""
    body = answer.body if isinstance(answer.body, dict) else {}
    results = body.get("results") or []
    failed = next((r for r in [body, *results] if isinstance(r, dict) and r.get("error")), None)
    if failed is None and answer.status >= 400:
        failed = {"code": f"status {answer.status}", "outcome": "unknown"}
    if failed is not None:
        raise Refused(
            str(failed.get("code", "error")),
            is_unknown=failed.get("outcome") != "none",
            is_retriable=bool(failed.get("retriable", answer.status >= 500)),
        )
    duplicate = any(result.get("duplicate") for result in results)
    if is_batch:
        first = results[0]["offset"]
        return list(range(first, first + results[0].get("count", count))), duplicate
    return [result["offset"] for result in results], duplicate
