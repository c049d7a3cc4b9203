"""`goqueue-cli tail`: messages as they are stored, over one stream."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.consume.command import FromTime, Limit, Printer, Raw
from cli.consume.messages import stored_row
from cli.output.errors import EXIT_USAGE, CliError
from cli.run.options import command, pairs, span
from cli.run.session import Session
from cli.run.sigterm import ending_in_order
from goqueue.wire.ids import OFFSET_MAX


async def tail(
    session: Session,
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this one.")
    ] = None,
    offset: Annotated[
        int | None,
        typer.Option(min=0, max=OFFSET_MAX, help="Start at this offset of --partition."),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest message.")
    ] = False,
    from_time: FromTime = None,
    key: Annotated[str | None, typer.Option(help="Only messages with this key.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only messages with this header; repeatable."),
    ] = None,
    wait: Annotated[
        str | None, typer.Option(help="End once no message came for so long, such as 30s.")
    ] = None,
    limit: Limit = None,
    raw: Raw = False,
) -> None:
    """Print messages as they are stored, from now on, until Ctrl-C.

    It takes nothing from any group. Messages of one partition come in their order, each once, also
    when the server that is read from stops: another one goes on. In a pipe every message is a JSON
    line, which `produce` takes back; on a terminal it is `OFFSET [KEY]: VALUE`, with `PARTITION:`
    in front where the topic has several.
    """
    if (offset is not None) + from_beginning + (from_time is not None) > 1:
        raise CliError(
            "--offset, --from-beginning and --from-time exclude each other", exit_code=EXIT_USAGE
        )
    async with session:
        printer = Printer(session, raw=raw, follow=True, several=partition is None)
        runs = session.client.tail_runs(
            topic,
            partition,
            offset="earliest" if from_beginning else "latest" if offset is None else offset,
            from_time=from_time,
            key=key,
            headers={name: value.decode() for name, value in pairs("--header", header)},
            wait=None if wait is None else span("--wait", wait),
        )
        with ending_in_order():
            async for run in runs:
                left = len(run) if limit is None else limit - printer.count
                printer.messages([stored_row(message) for message in run[:left]])
                if printer.count == limit:
                    return


def register(app: typer.Typer) -> None:
    command(app, "tail")(tail)
