"""`goqueue-cli schedule`: messages that are published again and again."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column, Row
from cli.run.options import command, confirm, pairs, span
from cli.run.session import Json, Session
from goqueue.transport.http import join

app = typer.Typer(
    help="Schedules: publish by the clock.", no_args_is_help=True, rich_markup_mode="markdown"
)

Name = Annotated[str, typer.Argument(help="The schedule's name.", show_default=False)]

SCHEDULE_COLUMNS = (
    Column("NAME", "name"),
    Column("TOPIC", "topic"),
    Column("WHEN", lambda row: _when(row)),
    Column("STATE", "state"),
    Column("NEXT", "next_at"),
    Column("RUNS", "runs"),
    Column("LAST", "last_at", wide=True),
    Column("VALUE", "value", wide=True),
    Column("ERROR", "error", wide=True),
)


@command(app, "create")
async def create(
    session: Session,
    name: Name,
    topic: Annotated[str, typer.Argument(help="Where to publish.", show_default=False)],
    message: Annotated[str, typer.Option("--message", "-m", help="The message's value.")],
    cron: Annotated[
        str | None,
        typer.Option(help='"minute hour day month weekday"; six fields begin with the second.'),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Interval between runs, such as 10s or 1h30m.")
    ] = None,
    timezone: Annotated[
        str, typer.Option(help="Time zone of --cron, such as Europe/Berlin.")
    ] = "UTC",
    key: Annotated[str | None, typer.Option("--key", "-k", help="The message's key.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Repeat.")
    ] = None,
    priority: Annotated[str | None, typer.Option(help="critical to background.")] = None,
    missed: Annotated[
        str | None,
        typer.Option(help="Runs missed while the cluster was down: skip, once or all (once)."),
    ] = None,
) -> None:
    """Create a schedule, or replace the one of this name."""
    if (cron is None) == (every is None):
        raise CliError("give either --cron or --every", exit_code=EXIT_USAGE)
    if every is not None and span("--every", every) == "0ms":
        raise CliError("--every: at least 1s", exit_code=EXIT_USAGE)
    body = {
        "name": name,
        "topic": topic,
        "value": message,
        "cron": cron,
        "every": every,
        "timezone": timezone,
        "key": key,
        "headers": {n: value.decode() for n, value in pairs("--header", header)} or None,
        "priority": priority,
        "missed": missed,
    }
    async with session:
        answer = await session.request(
            "POST", "/v1/schedules", body={n: v for n, v in body.items() if v is not None}
        )
    first = f", first at {answer['next_at']}" if answer.get("next_at") else ""
    session.output.success(f"Scheduled {name}: {_when(answer)} to {topic}{first}", answer)


@command(app, "list")
async def list_schedules(session: Session) -> None:
    """List the schedules."""
    async with session:
        rows: list[Row] = (await session.get("/v1/schedules"))["schedules"]
    session.output.rows(SCHEDULE_COLUMNS, rows, empty="No schedules.")


@command(app, "get")
async def get(session: Session, name: Name) -> None:
    """Show one schedule."""
    async with session:
        row = await session.get(join("schedules", name))
    session.output.detail(
        row,
        lambda: session.output.fields(
            [
                ("Name", row["name"]),
                ("Topic", row["topic"]),
                ("When", _when(row)),
                ("Missed Times", row.get("missed")),
                ("State", row["state"]),
                ("Next", row.get("next_at")),
                ("Last", row.get("last_at")),
                ("Runs", row["runs"]),
                ("Key", row.get("key")),
                ("Headers", row.get("headers")),
                ("Priority", row.get("priority")),
                ("Value", row.get("value")),
                *([("Error", row["error"])] if row.get("error") else []),
            ]
        ),
    )


@command(app, "pause")
async def pause(session: Session, name: Name) -> None:
    """Publish nothing until it is resumed."""
    await _turn(session, name, "pause", "Paused")


@command(app, "resume")
async def resume(session: Session, name: Name) -> None:
    """Go on with a paused schedule."""
    await _turn(session, name, "resume", "Resumed")


@command(app, "delete")
async def delete(
    session: Session,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", "--force", "-f", help="Don't ask.")] = False,
) -> None:
    """Delete a schedule. What it published stays."""
    async with session:
        confirm(session, f"Delete schedule {name}?", yes=yes, needs=f"deleting schedule {name}")
        answer = await session.request("DELETE", join("schedules", name))
    session.output.success(f"Deleted schedule {name}", answer)


async def _turn(session: Session, name: str, verb: str, done: str) -> None:
    async with session:
        answer = await session.request("POST", join("schedules", name, verb))
    following = f", next at {answer['next_at']}" if verb == "resume" else ""
    session.output.success(f"{done} schedule {name}{following}", answer)


def _when(row: Row | Json) -> str:
    if row.get("every"):
        return f"every {row['every']}"
    zone = row.get("timezone") or "UTC"
    return f"{row.get('cron')}" if zone == "UTC" else f"{row.get('cron')} ({zone})"
