"""Producers and consumers of a queue over HTTP; what they ask and are told goes into a history."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from goqueue.wire.batch import LANES
from tests.chaos.cluster import Cluster, Node
from tests.chaos.http import Answer, Http, NoAnswer
from tests.check.queuehistory import QueueHistory

RETRY_S = 0.05
GIVE_UP_S = 30.0
PACE_S = 0.05
KEYS = 6
DELAYS_MS = (0, 0, 0, 0, 300, 1500, 4000)
WAIT_S = 1.0
CHOICES = ("ack",) * 16 + ("nack",) * 3 + ("reject", "extend", "vanish")


class Unanswered(Exception):
    """A request was given up; `in_doubt` where some try of it may have been done."""

    def __init__(self, why: str, *, in_doubt: bool) -> None:
        super().__init__(why)
        self.in_doubt = in_doubt


class Client:
    """Asks one node, and another one when that fails."""

    def __init__(
        self, cluster: Cluster, http: Http, history: QueueHistory, rng: random.Random
    ) -> None:
        self.history = history
        self.rng = rng
        self.errors: Counter[str] = Counter()
        self._cluster = cluster
        self._http = http
        self._node: Node = rng.choice(cluster.nodes)
        self.stopping = asyncio.Event()

    def stop(self) -> None:
        self.stopping.set()

    async def ask(
        self, path: str, body: dict[str, Any], *, repeat: bool, timeout_s: float = 15.0
    ) -> tuple[dict[str, Any], bool]:
        """The answer, and whether an earlier try may have been done. Repeats what was certainly
        not done; the rest only with `repeat`. Raises Unanswered."""
        give_up, in_doubt = time.monotonic() + GIVE_UP_S, False
        while True:
            try:
                url = self._node.url + path
                answer = await self._http.ask("POST", url, json=body, timeout_s=timeout_s)
            except NoAnswer as error:
                why, unknown = "no answer", not error.is_unsent
                self._fail_over()
            else:
                if answer.status < 400:
                    return answer.body, in_doubt
                why, unknown, may_repeat = _refusal(answer)
                if not may_repeat:
                    raise Unanswered(why, in_doubt=in_doubt or unknown)
            self.errors[why] += 1
            in_doubt = in_doubt or unknown
            if (unknown and not repeat) or time.monotonic() > give_up:
                raise Unanswered(why, in_doubt=in_doubt)
            await asyncio.sleep(RETRY_S)

    def _fail_over(self) -> None:
        others = [node for node in self._cluster.running() if node is not self._node]
        if others:
            self._node = self.rng.choice(others)


def _refusal(answer: Answer) -> tuple[str, bool, bool]:
    """Of an error: its code, whether it may have been done, whether it may be repeated."""
    body = answer.body if isinstance(answer.body, dict) else {}
    code = str(body.get("code", f"status {answer.status}"))
    unknown = body.get("outcome", "unknown") != "none"
    return code, unknown, bool(body.get("retriable", answer.status >= 500))


class Producer(Client):
    """Publishes to all partitions: every lane, delays, keys; some messages with an id, which it
    repeats until they are acked, and at times once more."""

    def __init__(
        self, number: int, topic: str, partitions: int, *rest: Any, pace_s: float = PACE_S
    ) -> None:
        super().__init__(*rest)
        self._pace_s = pace_s
        self._name = f"p{number}"
        self._path = f"/topics/{topic}/messages"
        self._partitions = partitions
        self._count = 0

    async def run(self) -> None:
        """Until `stop()`."""
        async with asyncio.TaskGroup() as tasks:
            for partition in range(self._partitions):
                tasks.create_task(self._work(partition))

    async def _work(self, partition: int) -> None:
        while not self.stopping.is_set():
            await self._rest(self._pace_s * self.rng.uniform(0.5, 6.0))
            if self.stopping.is_set():
                return
            message = self._message(partition)
            await self._publish(message)
            if "message_id" in message and self.rng.random() < 0.3:
                await self._publish(message)

    async def _rest(self, seconds: float) -> None:
        """Until `stop()`, or so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)

    def _message(self, partition: int) -> dict[str, Any]:
        self._count += 1
        value = f"{self._name}.{self._count}"
        message: dict[str, Any] = {"value": value, "partition": partition}
        message["priority"] = self.rng.choice(LANES)
        if self.rng.random() < 0.6:
            message["key"] = f"k{self.rng.randrange(KEYS)}"
        delay_ms = self.rng.choice(DELAYS_MS)
        if delay_ms:
            message["delay"] = delay_ms
        if self.rng.random() < 0.5:
            message["message_id"] = value
        return message

    async def _publish(self, message: dict[str, Any]) -> None:
        op = self.history.publish(
            message["value"],
            partition=message["partition"],
            lane=LANES.index(message["priority"]),
            key=message.get("key"),
            message_id=message.get("message_id"),
            delay_ms=message.get("delay", 0),
        )
        try:
            body, _ = await self.ask(
                self._path, {"messages": [message]}, repeat="message_id" in message
            )
        except Unanswered as error:
            self.history.unpublished(op, in_doubt=error.in_doubt, why=str(error))
            return
        (row,) = body["results"]
        if row.get("error"):
            self.errors[str(row.get("code"))] += 1
            self.history.unpublished(op, in_doubt=row.get("outcome") != "none", why=row["error"])
            return
        duplicate = bool(row.get("duplicate"))
        self.history.published(op, row["partition"], row["offset"], duplicate=duplicate)


class Consumer(Client):
    """A member of a group. It acks, nacks, rejects, extends and lets leases run out, until it is
    told to be calm: then it acks everything."""

    def __init__(self, number: int, group: str, topic: str, *rest: Any) -> None:
        super().__init__(*rest)
        self._name = f"c{number}"
        self._group = group
        self._topic = topic
        self.is_calm = False
        self.receives = 0

    async def run(self) -> None:
        """Until `stop()`."""
        while not self.stopping.is_set():
            await self._receive()

    async def _receive(self) -> None:
        limit = 100 if self.is_calm else self.rng.choice((1, 5, 20))
        body = {"topic": self._topic, "limit": limit, "wait": int(WAIT_S * 1000)}
        sent = self.history.now()
        self.receives += 1
        try:
            answer, _ = await self.ask(
                f"/groups/{self._group}/receive", body | {"member": self._name}, repeat=False
            )
        except Unanswered:
            self.history.unreceived(self._group, sent=sent)
            await asyncio.sleep(RETRY_S)
            return
        messages: list[dict[str, Any]] = answer["messages"]
        unanswered = [place["partition"] for place in answer.get("unanswered", ())]
        if unanswered:
            self.history.unreceived(self._group, sent=sent, partitions=unanswered)
        for message in messages:
            self._received(message, sent)
        if messages:
            await self._settle(messages)

    def _received(self, message: dict[str, Any], sent: float) -> None:
        self.history.received(
            self._group,
            sent=sent,
            partition=message["partition"],
            offset=message["offset"],
            value=message["value"],
            lane=LANES.index(message["priority"]),
            key=message.get("key"),
            attempt=message["attempt"],
            reason=message.get("last_reason") or "",
            redrives=message.get("redrives") or 0,
            receipt=message["receipt"],
        )

    async def _settle(self, messages: list[dict[str, Any]]) -> None:
        """One request for all that it does not forget."""
        items: list[dict[str, Any]] = []
        for message in messages:
            action = "ack" if self.is_calm else self.rng.choice(CHOICES)
            if action == "vanish":
                continue
            item = {"receipt": message["receipt"], "action": action}
            if action in ("nack", "reject"):
                item["reason"] = f"r{self.rng.randrange(1000)}"
            if action == "nack" and self.rng.random() < 0.5:
                item |= {"delay": 200, "position": self.rng.choice(("front", "back"))}
            if action == "extend":
                item["visibility"] = 1500
            items.append(item)
        if not self.is_calm:
            await asyncio.sleep(self.rng.choice((0, 0, 0.05, 0.3)))
        await self._send(items)
        extended = [item for item in items if item["action"] == "extend"]
        await self._send([{"receipt": i["receipt"], "action": "ack"} for i in extended])

    async def _send(self, items: list[dict[str, Any]]) -> None:
        if not items:
            return
        ops = [
            self.history.settle(self._group, i["receipt"], i["action"], i.get("reason", ""))
            for i in items
        ]
        left = list(zip(ops, items, strict=True))
        doubtful: set[int] = set()
        give_up = time.monotonic() + GIVE_UP_S
        while left and time.monotonic() < give_up:
            try:
                body, in_doubt = await self.ask(
                    f"/groups/{self._group}/settle",
                    {"settles": [item for _, item in left]},
                    repeat=True,
                )
            except Unanswered as error:
                if error.in_doubt:
                    doubtful.update(op for op, _ in left)
                break
            if in_doubt:
                doubtful.update(op for op, _ in left)
            left = self._told(left, body["results"], doubtful)
            if left:
                await asyncio.sleep(RETRY_S)
        for op, _ in left:
            self.history.settled(op, "unknown" if op in doubtful else "refused", "given up")

    def _told(
        self,
        asked: list[tuple[int, dict[str, Any]]],
        results: list[dict[str, Any]],
        doubtful: set[int],
    ) -> list[tuple[int, dict[str, Any]]]:
        """What is to be asked again. A refusal after a doubtful try may be that try's success."""
        again: list[tuple[int, dict[str, Any]]] = []
        for (op, item), result in zip(asked, results, strict=True):
            if result["success"]:
                self.history.settled(op, result["state"])
                continue
            self.errors[str(result.get("code"))] += 1
            if result.get("outcome") != "none":
                doubtful.add(op)
            if result.get("retriable"):
                again.append((op, item))
            else:
                outcome = "unknown" if op in doubtful else "refused"
                self.history.settled(op, outcome, str(result.get("code")))
        return again
