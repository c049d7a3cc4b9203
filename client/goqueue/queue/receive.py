"""Taking messages from a group, and settling them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from goqueue.models.failures import SettleFailed
from goqueue.models.groups import TopicPartition
from goqueue.models.options import Action, Position, Priority
from goqueue.models.queued import (
    Leased,
    MessageBody,
    QueuedMessage,
    Received,
    Settles,
    queued_message,
    received_message,
)
from goqueue.models.settles import ACTIONS, SETTLES_MAX, Settle, Settled, SettleResult
from goqueue.models.times import Duration, Time, duration_ms, duration_text, time_text
from goqueue.queue.riding import ReceiveRequests
from goqueue.queue.settling import Body, Settling
from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join
from goqueue.transport.spans import SPANS
from goqueue.wire.errors import BadRequest, GoQueueError

WAIT_S = 20.0
"""How long one receive of `receiving` waits for something."""


class Receiving:
    """The part of the client that works a queue."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._settling = Settling(calls)
        self._requests = ReceiveRequests(calls, self._settling)

    async def close(self) -> None:
        """Settles that wait for a request to share fail as closed. Idempotent."""
        await self._settling.close()

    async def receive(
        self,
        group: str,
        topics: str | Sequence[str] = (),
        *,
        limit: int = 10,
        wait: Duration = 0.0,
        visibility: Duration | None = None,
        partitions: Sequence[int] | None = None,
        member: str | None = None,
        generation: int | None = None,
        assignment: Sequence[TopicPartition] | None = None,
        lowest_priority: Priority | int | None = None,
        settler: Settles | None = None,
        timeout_s: float | None = None,
        settles: Sequence[Settle] = (),
        on_settled: Callable[[list[SettleResult]], object] | None = None,
    ) -> list[Received]:
        """Take up to `limit` messages of the group, leased for `visibility` (the group's if not
        given); with none ready, waits up to `wait` for the first.

        A group that does not exist is created. A receive whose answer may have been lost is not
        repeated: what it took comes back when its visibility timeout is over, at the price of one
        attempt, and the error's outcome is `unknown`. Just receive again.

        `member` names this consumer in traces. One that has joined the group gives its `generation`
        and, in place of topics, the `assignment` to receive from; a `Consumer` does so by itself.
        Messages below `lowest_priority` are left. What is received settles itself through
        `settler`, this client if not given. `timeout_s` bounds the call in place of the client's
        own bound.

        `settles` are done with it, up to 1,000, each on its own and whatever becomes of the
        receive: so a worker's turn is one request. `on_settled` is told the results, in their
        order, before this returns or raises. Before feature level 2 it takes two requests.

        Raises `UnknownTopic`, `GroupHalted`, `StaleGeneration`, and `BadRequest` on settles that
        can't be meant, before anything is sent.
        """
        wait_ms = duration_ms(wait, "wait")
        asked = given(
            {
                **(_topics(topics) if assignment is None else {}),
                "limit": limit,
                "wait": f"{wait_ms}ms",
                "visibility": _text(visibility, "visibility"),
                "partitions": partitions,
                "member": member,
                "generation": generation,
                "assignment": None if assignment is None else list(assignment),
                "lowest_priority": lowest_priority,
            }
        )
        bodies = _bodies(settles)
        if len(bodies) > SETTLES_MAX:
            raise BadRequest(f"{len(bodies)} settles with a receive: at most {SETTLES_MAX}")
        with SPANS.receiving(group) as came:
            found, results = await self._requests.receive(
                group, asked, wait_ms / 1000, timeout_s, bodies
            )
            if on_settled is not None and bodies:
                on_settled(results)
            if isinstance(found, GoQueueError):
                raise found
            messages = [received_message(body, group, settler or self) for body in found]
            came(messages)
        return messages

    async def receiving(
        self,
        group: str,
        topics: str | Sequence[str],
        *,
        limit: int = 1,
        wait: Duration = WAIT_S,
        visibility: Duration | None = None,
        partitions: Sequence[int] | None = None,
        member: str | None = None,
    ) -> AsyncGenerator[Received, None]:
        """Receive for ever, message by message; settle each before its time is over.

        At most `limit` are held: the ones behind wait while their leases run. Goes on over lost
        answers, elections and servers that died. Closing it gives back what was not yet yielded.
        """
        held: list[Received] = []
        failures = 0
        try:
            while True:
                try:
                    held = await self.receive(
                        group,
                        topics,
                        limit=limit,
                        wait=wait,
                        visibility=visibility,
                        partitions=partitions,
                        member=member,
                    )
                except GoQueueError as error:
                    if not error.retriable:
                        raise
                    failures += 1
                    pause_s = self._calls.transport.pause_s(failures)
                    await asyncio.sleep(pause_s)
                    continue
                failures = 0
                while held:
                    yield held.pop(0)
        finally:
            if held:
                with suppress(GoQueueError):
                    await self._settle_all(held, "release")

    async def peek(
        self,
        group: str,
        topics: str | Sequence[str],
        *,
        limit: int = 10,
        partitions: Sequence[int] | None = None,
    ) -> list[QueuedMessage]:
        """What the group would receive next, without taking it."""
        body = given({**_topics(topics), "limit": limit, "partitions": partitions})
        found = await self._calls.send(
            "POST", join("groups", group, "peek"), body, _Messages, repeatable=True
        )
        return [queued_message(message) for message in found.messages]

    # settling

    async def settle(
        self,
        group: str,
        settles: Iterable[Settle],
        *,
        partition: TopicPartition | None = None,
    ) -> list[SettleResult]:
        """Settle many receipts at once, each on its own; the results are in their order. Where all
        are of one `partition`, its leader is asked directly, if it is known.

        Repeats itself where an answer was lost, which is safe: see `goqueue.models.settles`. Raises
        `BadRequest` on what can't be meant, before anything is sent.

        The calls for one message, such as `ack` and the message's own methods, share requests where
        they are made at the same time.
        """
        bodies = _bodies(settles)
        towards = None if partition is None else (partition.topic, partition.partition)
        results: list[SettleResult] = []
        for at in range(0, len(bodies), SETTLES_MAX):
            some = bodies[at : at + SETTLES_MAX]
            results += await self._settling.settle(group, some, towards=towards)
        return results

    async def ack(self, messages: Leased | Iterable[Leased]) -> list[Settled]:
        """Done with these. Raises `SettleFailed`, with each message's result, if any was not."""
        return await self._settle_all(messages, "ack")

    async def nack(
        self,
        messages: Leased | Iterable[Leased],
        reason: str = "",
        *,
        delay: Duration | None = None,
        position: Position | None = None,
    ) -> list[Settled]:
        """These failed: see `Received.nack`. Raises as `ack` does."""
        return await self._settle_all(
            messages, "nack", reason=reason, delay=delay, position=position
        )

    async def reject(self, messages: Leased | Iterable[Leased], reason: str = "") -> list[Settled]:
        """These can't succeed: they are dead at once. Raises as `ack` does."""
        return await self._settle_all(messages, "reject", reason=reason)

    async def extend(
        self, messages: Leased | Iterable[Leased], visibility: Duration
    ) -> list[Settled]:
        """These need longer: see `Received.extend`. Raises as `ack` does."""
        return await self._settle_all(messages, "extend", visibility=visibility)

    async def release(self, messages: Leased | Iterable[Leased]) -> list[Settled]:
        """Give these back as if they had not been delivered. Raises as `ack` does."""
        return await self._settle_all(messages, "release")

    async def settle_one(
        self,
        message: Leased,
        action: Action,
        *,
        reason: str = "",
        delay: Duration | None = None,
        position: Position | None = None,
        visibility: Duration | None = None,
    ) -> Settled:
        """What a received message's own methods do. Raises its error."""
        settle = Settle(message.receipt, action, reason, delay, position, visibility)
        _check(settle)
        ended = SPANS.settling(action, [message])
        result = await self._settling.settle_one(message, settle)
        ended(result if isinstance(result, GoQueueError) else None)
        if isinstance(result, GoQueueError):
            raise result
        return result

    # positions

    async def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Settle all below each partition's offset; the partitions' committed offsets after it."""
        body = {"topic": topic, "offsets": {str(p): offset for p, offset in offsets.items()}}
        path = join("groups", group, "commit")
        return (await self._calls.send("POST", path, body, _Offsets, repeatable=True)).offsets

    async def seek(
        self,
        group: str,
        topic: str,
        to: Time,
        *,
        partition: int | None = None,
        force: bool = False,
    ) -> dict[int, int]:
        """Replay, or skip: the group goes on at an offset (a number), a time, `earliest` or
        `latest`, in one partition or all. Returns where it stands in each partition after it.

        Leases end and attempts are forgotten; dead letters stay. Raises `GroupActive` where members
        have the partitions, unless with `force`.
        """
        body: dict[str, object] = {
            "topic": topic,
            "to": to if isinstance(to, int) else time_text(to),
        }
        if partition is not None:
            body["partition"] = partition
        if force:
            body["force"] = True
        path = join("groups", group, "seek")
        return (await self._calls.send("POST", path, body, _Offsets)).offsets

    # beneath

    async def _settle_all(
        self,
        messages: Leased | Iterable[Leased],
        action: Action,
        *,
        reason: str = "",
        delay: Duration | None = None,
        position: Position | None = None,
        visibility: Duration | None = None,
    ) -> list[Settled]:
        given_ones = [messages] if isinstance(messages, Leased) else list(messages)
        by_group: dict[str, list[int]] = {}
        for row, message in enumerate(given_ones):
            by_group.setdefault(message.group, []).append(row)
        found: dict[int, SettleResult] = {}
        for group, rows in by_group.items():
            settles = [
                Settle(given_ones[row].receipt, action, reason, delay, position, visibility)
                for row in rows
            ]
            ended = SPANS.settling(action, [given_ones[row] for row in rows])
            if len(given_ones) == 1:
                results = [await self._settling.settle_one(given_ones[0], settles[0])]
            else:
                results = await self.settle(group, settles)
            ended(next((one for one in results if isinstance(one, GoQueueError)), None))
            found.update(zip(rows, results, strict=True))
        results = [found[row] for row in range(len(given_ones))]
        settled = [result for result in results if isinstance(result, Settled)]
        if len(settled) < len(results):
            raise SettleFailed(results)
        return settled


class _Messages(msgspec.Struct):
    messages: list[MessageBody]


class _Offsets(msgspec.Struct):
    offsets: dict[int, int]


def _bodies(settles: Iterable[Settle]) -> list[Body]:
    """As they travel. Raises BadRequest on what can't be meant."""
    todo = list(settles)
    for settle in todo:
        _check(settle)
    return [settle.to_body() for settle in todo]


def _check(settle: Settle) -> None:
    if settle.action not in ACTIONS:
        raise BadRequest(f"action {settle.action!r}: want one of {', '.join(ACTIONS)}")


def _topics(topics: str | Sequence[str]) -> dict[str, object]:
    return {"topic": topics} if isinstance(topics, str) else {"topics": list(topics)}


def _text(duration: Duration | None, what: str) -> str | None:
    return None if duration is None else duration_text(duration, what)
