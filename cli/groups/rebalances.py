"""`goqueue-cli group rebalances`: why partitions changed hands, and what it cost."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.groups.columns import MOVE_COLUMNS, REBALANCE_COLUMNS
from cli.output.formats import age_text, count_text
from cli.run.options import command
from cli.run.session import Json, Session
from goqueue.transport.http import join

REMEMBERED_MAX = 100


async def rebalances(
    session: Session,
    name: Annotated[str, typer.Argument(help="The group's name.", show_default=False)],
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=REMEMBERED_MAX, help="At most this many.")
    ] = 20,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List every partition that moved.")
    ] = False,
) -> None:
    """List a group's rebalances, newest first: what caused each, and how long partitions paused."""
    async with session:
        answer = await session.get(join("groups", name, "rebalances"), limit=limit)
    found: list[Json] = answer["rebalances"]
    output = session.output
    output.rows(REBALANCE_COLUMNS, found, empty="No rebalances.")
    if not found or not output.is_table:
        return
    moves = [
        {"id": one["id"], **move}
        for one in found
        for move in sorted(one["moves"], key=lambda move: (move["topic"], move["partition"]))
    ]
    if verbose and moves:
        output.line()
        output.line("MOVES:", style="bold")
        output.table(MOVE_COLUMNS, moves)
    output.line()
    output.line(_totals_text(answer["totals"]))


def _totals_text(totals: Json) -> str:
    count = count_text(int(totals["total"]), "rebalance")
    moved = count_text(int(totals["moved"]), "move")
    fenced = f", {totals['fenced']} of them from a consumer that was lost" * bool(totals["fenced"])
    pause = f", longest pause {age_text(totals['pause_ms_max'])}" * bool(totals["moved"])
    return f"{count}, {moved}{fenced}{pause}"


def register(app: typer.Typer) -> None:
    command(app, "rebalances")(rebalances)
