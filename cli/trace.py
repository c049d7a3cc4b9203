"""`goqueue-cli trace`: where a message is, and what happened to it."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.default_command import DefaultGroup
from cli.errors import EXIT_USAGE, CliError
from cli.options import command
from cli.output import Format
from cli.session import Session
from cli.trace_tree import print_tree
from goqueue.errors import GoQueueError
from goqueue.http import join
from goqueue.wire.ids import MessageId

app = typer.Typer(
    cls=DefaultGroup,
    help="Where a message is, and what happened to it. `trace ID` is `trace show ID`; "
    "`trace -- ID` is for an id that is named like a verb.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@command(app, "show")
async def show(
    session: Session,
    message: Annotated[
        str, typer.Argument(metavar="ID", help="TOPIC:PARTITION:OFFSET.", show_default=False)
    ],
) -> None:
    """Show what happened to a message: published, replicated, delivered, retained until when.

    Prints a tree, in a pipe too, unless -o says json or yaml.
    """
    try:
        found = MessageId.parse(message)
    except GoQueueError as error:
        raise CliError(
            error.message, hint="an id is topic:partition:offset", exit_code=EXIT_USAGE
        ) from None
    async with session:
        answer = await session.get(join("messages", found, "timeline"))
    if session.given.output in (Format.json, Format.yaml):
        session.output.record(answer)
    else:  # a tree in a pipe too: it is what the command is for
        print_tree(session, answer)
