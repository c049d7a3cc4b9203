"""`consume --group`: take a group's messages, print them, and say that they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cli.errors import EXIT_UNAVAILABLE, CliError, explain, note, warn
from cli.output import count_text
from cli.session import Json, Session
from goqueue.errors import GoQueueError, NotInFlight, ReceiptExpired
from goqueue.http import join
from goqueue.settling import Settle

FOLLOW_WAIT_S = 20.0
BATCH_MAX = 100
RETRY_FIRST_S = 0.2
RETRY_MAX_S = 5.0


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

    def body(self, count: int) -> Json:
        body: Json = {"topic": self.topic, "limit": count, "member": "goqueue-cli"}
        if self.partition is not None:
            body["partitions"] = [self.partition]
        if self.visibility is not None:
            body["visibility"] = self.visibility
        if self.follow:
            body["wait"] = f"{FOLLOW_WAIT_S:g}s"
        return body


async def take(session: Session, taking: Taking, show: Callable[[list[Json]], None]) -> int:
    """Print and settle until nothing is ready, or the limit; with `follow`, for ever.

    Messages are acked once they are printed. What can't be printed is given back.
    """
    count = 0
    while taking.limit is None or count < taking.limit:
        left = BATCH_MAX if taking.limit is None else min(BATCH_MAX, taking.limit - count)
        messages = await _receive(session, taking, left)
        if messages:
            try:
                show(messages)
            except OSError:  # whoever reads has gone
                with suppress(GoQueueError):
                    await _settle(session, taking.group, "release", messages)
                raise
            count += len(messages)
            if taking.ack:
                await _settle(session, taking.group, "ack", messages)
        elif not taking.follow:
            break
    return count


async def _receive(session: Session, taking: Taking, count: int) -> list[Json]:
    """What one receive brings; when following, an outage is told, and waited out."""
    pause_s = 0.0
    while True:
        try:
            answer = await session.request(
                "POST",
                join("groups", taking.group, "receive"),
                body=taking.body(count),
                wait_s=FOLLOW_WAIT_S if taking.follow else 0.0,
            )
        except GoQueueError as error:
            if not taking.follow or not error.retriable:
                raise _told(error) from error
            if not pause_s:
                report = explain(error)
                note(f"{report.message if report else error}; trying again")
            pause_s = min(RETRY_MAX_S, pause_s * 2 or RETRY_FIRST_S)
            await asyncio.sleep(pause_s)
            continue
        messages: list[Json] = answer["messages"]
        return messages


def _told(error: GoQueueError) -> Exception:
    """The error, with what a lost answer means for a receive."""
    if error.outcome != "unknown":
        return error
    return CliError(
        f"{error.message} ({error.code})",
        hint="consume again; what this one may have taken comes again after its visibility timeout",
        exit_code=EXIT_UNAVAILABLE,
    )


async def _settle(session: Session, group: str, action: str, messages: list[Json]) -> None:
    """Through the library, which repeats what is safe to repeat. Raises the first error; that a
    message was held too long is only told."""
    settles = [Settle(message["receipt"], action) for message in messages]
    late = 0
    for result in await session.client.settle(group, settles):
        if isinstance(result, ReceiptExpired | NotInFlight):
            late += result.outcome == "none"  # else an answer that was lost has done it
        elif isinstance(result, GoQueueError):
            raise result
    if late:
        warn(f"{count_text(late, 'message')} printed too late to be acked: delivered again")
