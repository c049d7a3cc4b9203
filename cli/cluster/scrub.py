"""`goqueue-cli cluster scrub`: every node reads again what it stores; replicas are compared."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output.errors import EXIT_ERROR, EXIT_UNAVAILABLE
from cli.output.formats import Column, bytes_text
from cli.run.options import command
from cli.run.progress import Look, follow
from cli.run.session import Json, Session

SCRUB = "/v1/admin/scrub"
COLUMNS = (
    Column("NODE", "id"),
    Column("STATE", "state"),
    Column("READ", lambda row: f"{bytes_text(row['bytes_done'])}"),
    Column("DAMAGED ENTRIES", "damaged_entries"),
    Column("MENDED FILES", "mended_files"),
    Column("RANGES COMPARED", "ranges_compared"),
    Column("ENDED", "ended_at"),
    Column("STARTED", "started_at", wide=True),
    Column("ROUNDS", "rounds", wide=True),
)


def register(app: typer.Typer) -> None:
    command(app, "scrub")(scrub)


async def scrub(
    session: Session,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait until it is done.")] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Only show progress; start nothing.")
    ] = False,
) -> None:
    """Have every node read again all that it stores, repair what is damaged, and compare replicas.

    Nodes do that by themselves once a storage.scrubInterval. With --wait or --status, exit code 1
    says that something is still damaged, or differs between replicas; 4 that a node does not
    answer.
    """
    async with session:
        found = await session.get(SCRUB) if status else await session.request("POST", SCRUB)
        if wait:
            found = (await follow(session, "Scrub", lambda: _look(session), _GOES_ON)).record
    session.output.detail(found, lambda: _show(session, found))
    if (wait or status) and found["state"] == "damaged":
        raise typer.Exit(EXIT_ERROR)
    if (wait or status) and any(node["state"] == "unknown" for node in found["nodes"]):
        raise typer.Exit(EXIT_UNAVAILABLE)


_GOES_ON = "It goes on; `goqueue-cli cluster scrub --status` tells how far it is."


async def _look(session: Session) -> Look:
    """Over once every node that answers is idle, and nothing waits for repair."""
    found = await session.get(SCRUB)
    nodes = found["nodes"]
    done = sum(node["bytes_done"] for node in nodes)
    total = max(done, sum(node["bytes_total"] for node in nodes))
    return Look(
        done,
        total,
        f"{bytes_text(done)} of {bytes_text(total)}",
        found,
        is_over=found["state"] != "running" and not any(node["damaged"] for node in nodes),
        waiting=[group for node in nodes for group in node["damaged"]],
    )


def _show(session: Session, found: Json) -> None:
    session.output.table(COLUMNS, found["nodes"])
    for node in found["nodes"]:
        if node["state"] == "unknown":
            text = f"✗ {node['id']} does not answer: what it stores is not read"
            session.output.line(text, style="red")
        for group in node["damaged"]:
            session.output.line(f"✗ {node['id']}: {group} waits for repair", style="red")
        for text in node["diverged"]:
            session.output.line(f"✗ {node['id']}: {text}", style="red")
