"""`goqueue-cli cluster version`, `upgrade`: which versions run, and finishing a feature level."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output.formats import Column
from cli.run.options import command
from cli.run.session import Json, Session

VERSION, UPGRADE = "/v1/cluster/version", "/v1/admin/cluster/upgrade"

COLUMNS = (
    Column("BROKER", "id"),
    Column("VERSION", "version"),
    Column("STATUS", "status"),
    Column("LOWEST LEVEL", "lowest_level"),
    Column("HIGHEST LEVEL", "highest_level"),
)

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would be finished, and what it waits for.")
]
Finish = Annotated[
    bool,
    typer.Option(
        "--finish", help="Let the cluster use new formats. Older versions can't run then."
    ),
]


async def version(session: Session) -> None:
    """Show each broker's version and feature levels, the finished level, and what waits."""
    async with session:
        found = await session.get(VERSION)
    session.output.detail(found, lambda: _show(session, found))


async def upgrade(session: Session, dry_run: DryRun = False, finish: Finish = False) -> None:
    """Finish the feature level of a new version, once every broker runs it; or look ahead.

    Until then the cluster uses nothing that the version before does not know, and that version can
    come back.
    """
    if dry_run == finish:
        raise typer.BadParameter("say --dry-run or --finish")
    async with session:
        found = await session.request("POST", UPGRADE, body={"dry_run": dry_run})
    finished, following = found["finished_level"], found["next_level"]
    if dry_run:
        session.output.detail(found, lambda: _show(session, found))
        return
    session.output.success(f"level {max(finished, following)} is finished", found)


def _show(session: Session, found: Json) -> None:
    finished, following = found["finished_level"], found["next_level"]
    session.output.table(COLUMNS, found["brokers"])
    session.output.line()
    session.output.line(f"Finished level: {finished}")
    if following == finished:
        session.output.line("Nothing to finish.")
        return
    session.output.line(f"Next level: {following}")
    for text in found["waiting"]:
        session.output.line(f"✗ {text}", style="red")
    if not found["waiting"]:
        session.output.line("`goqueue-cli cluster upgrade --finish` finishes it.")


def register(app: typer.Typer) -> None:
    command(app, "version")(version)
    command(app, "upgrade")(upgrade)
