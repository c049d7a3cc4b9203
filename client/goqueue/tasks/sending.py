"""Steps on their way: each first one becomes a message, with what follows it in its headers.

Every message has an id. Those that an end of a task leads to have one that is made of that task's
own, so that a task which ends twice sends what follows once: topics of tasks know an id again for
`dedup_window`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from goqueue.api.client import AsyncClient
from goqueue.models.messages import OutgoingMessage, Published
from goqueue.models.times import Duration, retention_ms
from goqueue.tasks.results import Results, ensure_topic, listed
from goqueue.tasks.steps import Part, Rest, Step, Value, headers_of
from goqueue.wire.errors import BadRequest

JOIN, DONE = "join", "done"


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """How the topics of an app's queues are made, and who works on them."""

    group: str
    partitions: int | None = None
    keep: Duration | None = None
    dedup_window: Duration = "1h"


class Sending:
    """Publishes steps through one client; queues are made where they are missing."""

    def __init__(self, client: AsyncClient, settings: QueueSettings) -> None:
        self._client = client
        self._settings = settings
        self._known: set[str] = set()
        self.results = Results(client, settings.group)

    async def send(
        self, steps: Sequence[Step], rest: Rest, seed: str, *, delay: Duration | None = None
    ) -> Published | None:
        """Begin a chain of steps, and `rest` after it; durable when this returns. Where it was
        begun before by the same `seed`, nothing is sent twice. None where the first step has parts:
        several messages."""
        first, after = steps[0], Rest([*steps[1:], *rest.then], rest.part, rest.keep)
        if first.parts:
            await self._fork(first.parts, after, seed, delay)
            return None
        await self.ensure(first.queue)
        outgoing = message_of(first, after, seed, delay)
        return await self._client.publish(
            first.queue,
            outgoing.value,
            headers=outgoing.headers,
            priority=outgoing.priority,
            message_id=outgoing.message_id,
            delay=delay,
        )

    async def send_many(self, queue: str, messages: Sequence[OutgoingMessage]) -> list[Published]:
        """Messages of one queue together. Raises PublishFailed."""
        await self.ensure(queue)
        return await self._client.publish_many(queue, messages)

    async def follow(self, rest: Rest, result: Value, seed: str) -> None:
        """A chain's step is done: begin the next one. Or the chain has ended: that is noted where
        it is a part, and its result kept where that was asked for. Done again by the same `seed`,
        it does the same."""
        if rest.then:
            first, *others = rest.then
            given = [first.given(result), *others]
            if first.parts:
                given[0] = msgspec.structs.replace(
                    first, parts=[[part[0].given(result), *part[1:]] for part in first.parts]
                )
            await self.send(given, Rest([], rest.part, rest.keep), f"{seed}.then")
        elif rest.part is not None:
            await self._join(rest.part, result)
        elif rest.keep is not None:
            ttl_s = rest.keep.ttl_ms / 1000
            await self.results.put(rest.keep.id, bytes(result), ttl=ttl_s)

    async def ensure(self, queue: str) -> None:
        """The queue's topic is there."""
        if queue in self._known:
            return
        await ensure_topic(
            self._client,
            queue,
            retention_ms=retention_ms(self._settings.keep),
            dedup_window=self._settings.dedup_window,
            partitions=self._settings.partitions,
        )
        self._known.add(queue)

    async def _fork(
        self, parts: Sequence[list[Step]], after: Rest, seed: str, delay: Duration | None
    ) -> None:
        """What comes after is stored before any part is sent, so that whichever ends last finds
        it."""
        value = msgspec.json.encode(after)
        await self.results.put(f"{seed}.{JOIN}", value, key=seed)
        for number, part in enumerate(parts):
            rest = Rest(part=Part(seed, number, len(parts)))
            await self.send(part, rest, f"{seed}.{number}", delay=delay)

    async def _join(self, part: Part, result: Value) -> None:
        """Whoever ends last sees the ends of all, as each notes its own before it looks; where two
        see them, the same id sends what follows once."""
        await self.results.put(f"{part.id}.end.{part.number}", bytes(result), key=part.id)
        found = await self.results.parts(part.id)
        ends = [found.get(f"{part.id}.end.{number}") for number in range(part.of)]
        values = [end for end in ends if end is not None]
        if len(values) < part.of or f"{part.id}.{DONE}" in found:
            return
        join = found.get(f"{part.id}.{JOIN}")
        if join is None:
            raise BadRequest("what follows these tasks is not kept any more")
        after = msgspec.json.decode(join, type=Rest)
        await self.follow(after, listed(values), f"{part.id}.joined")
        await self.results.put(f"{part.id}.{DONE}", b"null", key=part.id)


def message_of(step: Step, rest: Rest, seed: str, delay: Duration | None) -> OutgoingMessage:
    """The message that carries a step."""
    return OutgoingMessage(
        msgspec.json.encode(step.args),
        headers=headers_of(step, rest),
        priority=step.priority,
        message_id=seed if step.dedup_id is None else f"{step.task}:{step.dedup_id}",
        delay=delay,
    )


def new_seed() -> str:
    """Of a chain that nobody sends twice on purpose."""
    return uuid.uuid4().hex
