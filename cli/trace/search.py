"""`goqueue-cli trace search` and `trace list`: which messages match, newest first."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

import typer

from cli.output import moments
from cli.output.errors import EXIT_UNAVAILABLE, CliError
from cli.output.formats import Column, age_text
from cli.output.terminal import note, warn
from cli.run.options import command, pairs
from cli.run.session import Json, Session
from goqueue.transport.http import join

PAGE_MAX = 1000
STATUSES = frozenset({"in_progress", "completed", "failed", "error", "pending"})
"""GoQueue's words that are none of a state's."""

COLUMNS = (
    Column("ID", "id", whole=True),
    Column("TIMESTAMP", "timestamp"),
    Column("STATUS", "status"),
    Column("STATES", "states"),
    Column("KEY", "key"),
    Column("MESSAGE ID", "message_id"),
    Column("TRACE ID", "trace_id", wide=True),
    Column("PRIORITY", "priority", wide=True),
    Column("VALUE", "value", wide=True),
)
TRACE_COLUMNS = (
    Column("TRACE ID", "trace_id", whole=True),
    Column("TOPIC", "topic", whole=True),
    Column("PARTITION", "partition"),
    Column("OFFSET", "offset"),
    Column("STATUS", "status"),
    Column("DURATION", lambda row: age_text(row["duration_ms"])),
    Column("MESSAGE ID", "message_id", wide=True),
    Column("EVENTS", "span_count", wide=True),
)


async def search(
    session: Session,
    topic: Annotated[str | None, typer.Option(help="Search this topic only (all topics).")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "--consumer-group", "-g", help="The group that --state is about."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="With this key.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="With this header; repeat."),
    ] = None,
    message_id: Annotated[
        str | None, typer.Option(help="With this message_id, as the producer gave it.")
    ] = None,
    trace_id: Annotated[str | None, typer.Option(help="With this W3C trace id.")] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            "--status",
            help="ready, delayed, in_flight, retrying, acked, dead, cancelled, expired; "
            "or in_progress, completed, failed.",
        ),
    ] = None,
    start: Annotated[str | None, moments.option(help="From this log time on.")] = None,
    end: Annotated[str | None, moments.option(help="Before this log time.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many.")] = 20,
) -> None:
    """Find messages by what they carry, by time and by state, newest first."""
    is_status = state is not None and state in STATUSES
    query: Json = {
        "topic": topic,
        "partition": partition,
        "group": group,
        "key": key,
        "header": [f"{name}:{value.decode()}" for name, value in pairs("--header", header)],
        "message_id": message_id,
        "trace_id": trace_id,
        "state": None if is_status else state,
        "status": state if is_status else None,
        "from_time": start,
        "to_time": end,
    }
    async with session:
        found = await _pages(session, query, limit)
    print_found(session, found)


async def list_traces(
    session: Session,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=1000, help="At most this many.")
    ] = 20,
) -> None:
    """List the newest messages of all topics with their trace ids."""
    async with session:
        found = await session.get(join("traces"), limit=limit)
    session.output.rows(TRACE_COLUMNS, found["traces"], empty="No messages.")
    _warn(found.get("not_searched", []))


def print_found(session: Session, found: Json) -> None:
    """Messages that match, what was not searched, and how to see one. Raises `CliError` where
    nothing was found and something not searched."""
    rows, missing = found["messages"], found["not_searched"]
    session.output.rows(COLUMNS, rows, empty="No messages match.")
    _warn(missing)
    if rows and session.output.is_table:
        note(f"\n`goqueue-cli trace {rows[0]['id']}` shows what happened to one.")
    if found.get("next"):
        note("There may be others: -n takes more.")
    if missing and not rows:
        raise CliError("not all could be searched", exit_code=EXIT_UNAVAILABLE)


def register(app: typer.Typer) -> None:
    command(app, "search")(search)
    command(app, "list")(list_traces)


async def _pages(session: Session, query: Json, limit: int) -> Json:
    """As many pages as it takes; the last one says whether there are others."""
    found: Json = {"messages": [], "not_searched": [], "next": None}
    while True:
        left = min(PAGE_MAX, limit - len(found["messages"]))
        asked = {**query, "limit": left, "next": found["next"]}
        given = {name: value for name, value in asked.items() if value is not None}
        page = await session.get(join("messages") + "?" + urlencode(given, doseq=True))
        found["messages"] += page["messages"]
        found["not_searched"] += page["not_searched"]
        found["next"] = page.get("next")
        if len(found["messages"]) >= limit or found["next"] is None:
            return found


def _warn(missing: list[Json]) -> None:
    for one in missing:
        warn(f"{one['topic']}:{one['partition']} was not searched: {one['reason']}")
