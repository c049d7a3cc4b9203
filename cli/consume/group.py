"""`consume --group`: take a group's messages, print them, and say that they are done.

Where they come from is a `Source`: a member of the group, or, for who only holds messages or names
a partition, plain receives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cli.consume.until import Holder, Until
from cli.output.errors import EXIT_UNAVAILABLE, CliError, explain
from cli.output.formats import count_text
from cli.output.terminal import note, warn
from cli.run.session import Json, Session
from goqueue.background import TaskSet
from goqueue.errors import GoQueueError, NotInFlight, ReceiptExpired, StaleGeneration
from goqueue.models.settles import Settle, SettleResult
from goqueue.transport.http import join

FOLLOW_WAIT_S = 20.0
BATCH_MAX = 100
RETRY_FIRST_S = 0.2
RETRY_MAX_S = 5.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Taking:
    """What to take, and whether to ack it."""

    group: str
    topic: str
    partition: int | None
    limit: int | None
    visibility: str | None
    ack: bool
    follow: bool

    @property
    def joins(self) -> bool:
        """As a member: what is held for later, or picked by its partition, a member can't take."""
        return self.ack and self.partition is None


class Source(Holder, Protocol):
    """Where a group's messages come from, and where what became of them is told."""

    async def more(self, count: int) -> list[Json]:
        """The next ones, at most `count`: none where nothing is ready; with `follow`, not before
        there are some."""
        ...


class Receives:
    """Takes without joining: from partitions that no member has."""

    def __init__(self, session: Session, taking: Taking, partitions: list[int]) -> None:
        self._session = session
        self._taking = taking
        self._partitions = partitions

    async def more(self, count: int) -> list[Json]:
        """When following, an outage is told, and waited out."""
        pause_s = 0.0
        wait_s = FOLLOW_WAIT_S if self._taking.follow else 0.0
        path = join("groups", self._taking.group, "receive")
        while self._partitions:
            body = self._body(count, wait_s)
            try:
                answer = await self._session.request("POST", path, body=body, wait_s=wait_s)
            except GoQueueError as error:
                if not self._taking.follow or not error.retriable:
                    raise _told(error) from error
                if not pause_s:
                    report = explain(error)
                    note(f"{report.message if report else error}; trying again")
                pause_s = min(RETRY_MAX_S, pause_s * 2 or RETRY_FIRST_S)
                await asyncio.sleep(pause_s)
                continue
            messages: list[Json] = answer["messages"]
            if messages or not self._taking.follow:
                return messages
        return []

    async def settle(self, settles: list[Settle]) -> list[SettleResult]:
        """Through the library, which repeats what is safe to repeat."""
        return await self._session.client.settle(self._taking.group, settles)

    async def skip(self, partition: int) -> None:
        self._partitions.remove(partition)

    def _body(self, count: int, wait_s: float) -> Json:
        body: Json = {
            "topic": self._taking.topic,
            "limit": count,
            "member": "goqueue-cli",
            "partitions": self._partitions,
        }
        if self._taking.visibility is not None:
            body["visibility"] = self._taking.visibility
        if wait_s:
            body["wait"] = f"{wait_s:g}s"
        return body


async def take(
    source: Source, taking: Taking, show: Callable[[list[Json]], None], until: Until | None
) -> int:
    """Print and settle until nothing is ready, the limit or the end; with `follow`, for ever.

    Messages are acked once they are printed. What isn't printed is given back.
    """
    count = 0
    if until is not None:
        await until.look(source)
    try:
        while (taking.limit is None or count < taking.limit) and not (until and until.is_reached):
            left = BATCH_MAX if taking.limit is None else min(BATCH_MAX, taking.limit - count)
            messages = await source.more(left)
            if not messages:
                break
            if until is not None:
                messages, late = until.parted(messages)
                await _surely(until.put_aside(source, late))
            results = await _surely(_print(source, taking, show, messages))
            count += len(messages)
            if until is not None:
                await until.settled(source, results)
    finally:
        if until is not None:
            with suppress(GoQueueError):
                await until.give_back(source)
    return count


async def _print(
    source: Source, taking: Taking, show: Callable[[list[Json]], None], messages: list[Json]
) -> list[SettleResult]:
    """In a thread: a reader that is slow doesn't keep the member from its heartbeats."""
    try:
        await asyncio.to_thread(show, messages)
    except OSError:  # whoever reads has gone
        with suppress(GoQueueError):
            await _settle(source, "release", messages)
        raise
    return await _settle(source, "ack", messages) if taking.ack and messages else []


async def _settle(source: Source, action: str, messages: list[Json]) -> list[SettleResult]:
    """Raises the first error; that a message was held too long is only told."""
    results = await source.settle([Settle(message["receipt"], action) for message in messages])
    late = 0
    for result in results:
        if isinstance(result, ReceiptExpired | NotInFlight | StaleGeneration):
            late += result.outcome == "none"  # else an answer that was lost has done it
        elif isinstance(result, GoQueueError):
            raise result
    if late and action == "ack":
        warn(f"{count_text(late, 'message')} printed too late to be acked: delivered again")
    return results


async def _surely(work: Coroutine[Any, Any, T]) -> T:
    """An interrupt waits for it: what was printed is acked."""
    task = TaskSet(None).begin(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error from None
        raise


def _told(error: GoQueueError) -> Exception:
    """The error, with what it means for a receive."""
    if isinstance(error, StaleGeneration):
        return CliError(
            f"members of the group have these partitions ({error.code})",
            hint="consume without --no-ack and --partition joins them; `group members` shows them",
        )
    if error.outcome != "unknown":
        return error
    return CliError(
        f"{error.message} ({error.code})",
        hint="consume again; what this one may have taken comes again after its visibility timeout",
        exit_code=EXIT_UNAVAILABLE,
    )
