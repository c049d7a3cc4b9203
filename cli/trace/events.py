"""`goqueue-cli trace events`: what happened to a topic's messages, all of it, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated

import typer

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column, time_of
from cli.output.terminal import warn
from cli.run.options import command
from cli.run.session import Json, Session
from cli.trace.tree import details_text
from goqueue.wire.events import EventsPage

COLUMNS = (
    Column("INDEX", "index"),
    Column("TIMESTAMP", "timestamp"),
    Column("ID", "id", whole=True),
    Column("EVENT", "event_type", whole=True),
    Column("GROUP", "group"),
    Column("CONSUMER", "consumer"),
    Column("ATTEMPT", "attempt"),
    Column("DETAILS", lambda row: details_text(_details(row)), wide=True),
)
_ROW = ("index", "timestamp", "id", "event_type", "group", "consumer", "attempt")


async def events(
    session: Session,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="This one only.")
    ] = None,
    after: Annotated[
        int, typer.Option(min=0, help="Only of the log's entries after this index.")
    ] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print events as they come.")
    ] = False,
) -> None:
    """Print what happened to a topic's messages, one event a line, in the order of each partition's
    log.

    Whoever goes on later does so --after the last index. --follow goes on until Ctrl-C.
    """
    if after and partition is None:
        raise CliError("--after goes with --partition", exit_code=EXIT_USAGE)
    async with session:
        count = (await session.client.topic(topic)).partitions
        numbers = range(count) if partition is None else [partition]
        if follow:
            async with asyncio.TaskGroup() as tasks:
                for number in numbers:
                    tasks.create_task(_print(session, topic, number, after, follow=True))
        else:
            for number in numbers:
                await _print(session, topic, number, after, follow=False)


async def _print(session: Session, topic: str, partition: int, after: int, *, follow: bool) -> None:
    is_told = False
    async for page in session.client.events_pages(topic, partition, after, follow=follow):
        if not is_told and after + 1 < page.first and after:
            warn(f"partition {partition}: the log begins with entry {page.first} now")
            is_told = True
        session.output.stream_rows(COLUMNS, _rows(page))


def _rows(page: EventsPage) -> list[Json]:
    from goqueue.api.events import events_of

    return [
        {
            "index": event.index,
            "timestamp": time_of(event.timestamp_ms),
            "id": event.id,
            "event_type": event.event_type,
            "group": event.group,
            "consumer": event.consumer,
            "lane": event.lane,
            "attempt": event.attempt,
            "reason": event.reason,
            "message_id": event.message_id,
            "key": None if event.key is None else event.key.decode("utf-8", "backslashreplace"),
            **(event.attributes or {}),
        }
        for event in events_of(page)
    ]


def _details(row: Mapping[str, object]) -> Json:
    return {name: value for name, value in row.items() if name not in _ROW and value is not None}


def register(app: typer.Typer) -> None:
    """Add the verb to `trace`."""
    command(app, "events")(events)
