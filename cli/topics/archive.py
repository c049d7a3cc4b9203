"""`goqueue-cli topic archive`: how far a topic is archived, and to tell it by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column, Row, duration_text
from cli.run.options import command
from cli.run.session import Json, Session
from goqueue.transport.http import join

COLUMNS = (
    Column("PARTITION", "partition"),
    Column("ARCHIVED", "position"),
    Column("NOT ARCHIVED", "lag"),
    Column("SINCE", lambda row: duration_text(round(row["lag_seconds"] * 1000))),
    Column("WAITS", lambda row: "yes" if row["required"] else "no"),
    Column("REPORTED", "reported_at"),
    Column("ARCHIVE", "archive", wide=True),
)
Compression = Annotated[
    str | None,
    typer.Option(help="Compression of JSON messages: none, zstd, lz4 or gzip (none)."),
]
RequireArchive = Annotated[
    bool | None,
    typer.Option(
        "--require-archive/--no-require-archive",
        help="Retention deletes only what is archived (no).",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    command(app, "archive")(archive)


async def archive(
    session: Session,
    name: Annotated[str, typer.Argument(help="The topic's name.", show_default=False)],
    report: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Report that this archive holds all below --position."),
    ] = None,
    position: Annotated[
        list[str] | None, typer.Option(metavar="PARTITION=OFFSET", help="With --report; repeat.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="With --report: replace the archive reported before.")
    ] = False,
) -> None:
    """Show how far each partition is archived.

    `goqueue-pipeline archive` reports by itself. What is reported by hand is believed: where the
    topic waits for its archive, messages below the position may be deleted then.
    """
    if (report is None) != (not position):
        raise CliError("--report and --position belong together", exit_code=EXIT_USAGE)
    async with session:
        if report is None:
            topic = await session.get(join("topics", name))
            details = topic["partition_details"]
            rows: list[Row] = [row["archive"] for row in details if row["archive"] is not None]
        else:
            body = {"archive": report, "positions": _positions(position), "replace": replace}
            told = await session.request("POST", join("topics", name, "archived"), body=body)
            rows = told["partitions"]
    session.output.rows(COLUMNS, rows, empty=f"Topic {name} has no archive, and waits for none.")


def archive_text(topic: Json) -> str:
    """As `describe` shows it."""
    waits = "messages wait for it" if topic["config"]["require_archive"] else "nothing waits for it"
    return f"{topic.get('archive') or 'none'} ({waits})"


def _positions(pairs: list[str] | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for pair in pairs or ():
        partition, equals, offset = pair.partition("=")
        if not equals or not partition.isdigit() or not offset.isdigit():
            raise CliError(f"--position takes PARTITION=OFFSET, not {pair!r}", exit_code=EXIT_USAGE)
        found[partition] = int(offset)
    return found
