"""`goqueue-cli delayed`: messages that are not due yet."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column, Row
from cli.run.options import command
from cli.run.session import Session
from goqueue.errors import BadRequest
from goqueue.transport.http import join
from goqueue.wire.ids import MessageId

app = typer.Typer(
    help="Delayed messages: published, and delivered later.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Id = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC:PARTITION:OFFSET",
        help="The id that `produce --delay` printed.",
        show_default=False,
    ),
]

DELAYED_COLUMNS = (
    Column("ID", lambda row: _id(row), whole=True),
    Column("DELIVER AT", "deliver_at"),
    Column("REMAINING", lambda row: _remaining(row)),
    Column("STATE", "state"),
    Column("KEY", "key"),
    Column("PRIORITY", "priority", wide=True),
    Column("MESSAGE ID", "message_id", wide=True),
)


@command(app, "list")
async def list_delayed(
    session: Session,
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many.")] = 100,
    skip: Annotated[int, typer.Option(min=0, help="Skip this many first.")] = 0,
) -> None:
    """List messages that are not due yet, soonest first."""
    async with session:
        answer = await session.get(join("topics", topic, "delayed"), limit=limit, skip=skip)
    rows: list[Row] = answer["messages"]
    session.output.rows(DELAYED_COLUMNS, rows, empty="No delayed messages.")


@command(app, "get")
async def get(session: Session, message: Id) -> None:
    """Show one delayed message: when it is due, or what became of it."""
    path = _path(message)
    async with session:
        row = await session.get(path)
    session.output.detail(
        row,
        lambda: session.output.fields(
            [
                ("ID", _id(row)),
                ("State", row["state"]),
                ("Deliver At", row["deliver_at"]),
                ("Remaining", _remaining(row)),
                ("Priority", row.get("priority")),
                ("Key", row.get("key")),
                ("Message ID", row.get("message_id")),
            ]
        ),
    )


@command(app, "cancel")
async def cancel(session: Session, message: Id) -> None:
    """Never deliver a delayed message. It stays in the log, and no group receives it."""
    path = _path(message)
    async with session:
        answer = await session.request("DELETE", path)
    session.output.success(f"Cancelled {message}", answer)


def _path(text: str) -> str:
    """Raises `CliError` on what is no message id."""
    try:
        found = MessageId.parse(text)
    except BadRequest as error:
        raise CliError(error.message, exit_code=EXIT_USAGE) from None
    return join("topics", found.topic, "delayed", found.partition, found.offset)


def _remaining(row: Row) -> object:
    return row.get("time_remaining") if row["state"] == "pending" else None


def _id(row: Row) -> str:
    return f"{row['topic']}:{row['partition']}:{row['offset']}"
