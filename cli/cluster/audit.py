"""`goqueue-cli audit`: what was done by whom, and what was denied."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output import moments
from cli.output.formats import Column, Row
from cli.run.options import command
from cli.run.session import Session
from goqueue.transport.http import join

FOLLOW_WAIT_S = 20
PAGE = 1000

COLUMNS = (
    Column("TIME", "time"),
    Column("WHO", "who"),
    Column("ACTION", lambda row: row.get("action") or row.get("method", "")),
    Column("TARGET", "target"),
    Column("OUTCOME", lambda row: _outcome(row)),
    Column("ADDRESS", "address"),
    Column("ROLE", "role", wide=True),
    Column("NODE", "node", wide=True),
    Column("REQUEST", "request_id", wide=True),
)


def register(app: typer.Typer) -> None:
    command(app, "audit")(audit)


async def audit(
    session: Session,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records until Ctrl-C.")
    ] = False,
    key: Annotated[
        str | None, typer.Option("--key", help="Done with this key; or `anonymous`.")
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", help="This operation, such as deleteTopic.")
    ] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="ok, failed, denied or lost.")
    ] = None,
    since: Annotated[
        str | None,
        moments.option("--since", help="From this time on."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=PAGE, help="How many of the newest records.")
    ] = 100,
) -> None:
    """Show the audit log, for admins of every topic: oldest first.

    With --key, --action or --outcome it looks at the last 5,000, or at all since a time.
    """
    path = join("admin", "audit")
    query: dict[str, str | int | None] = {"from_time": since, "limit": limit}
    narrowed = {"key": key, "action": action, "outcome": outcome}
    async with session:
        found = await session.request("GET", path, query={**narrowed, **query})
        if not follow:
            session.output.rows(COLUMNS, found["records"], empty="Nothing is recorded.")
            return
        while True:
            session.output.stream_rows(COLUMNS, found["records"])
            query = {"offset": found["next"], "limit": PAGE, "wait": f"{FOLLOW_WAIT_S}s"}
            found = await session.request(
                "GET", path, query={**narrowed, **query}, wait_s=FOLLOW_WAIT_S
            )


def _outcome(row: Row) -> str:
    if row["outcome"] == "lost":
        return f"{row['count']} lost"
    if row["action"] == "sum":
        return f"{row['count']} denied from {row['addresses']} addresses"
    return f"{row['outcome']} ({row['code']})" if row.get("code") else str(row["outcome"])
