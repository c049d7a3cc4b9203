"""`goqueue-cli cluster`: the nodes, who leads, and what is wrong."""

from __future__ import annotations

from typing import Any

import typer

from cli.errors import EXIT_ERROR
from cli.options import command
from cli.output import Column, Row, count_text
from cli.session import Json, Session

app = typer.Typer(
    help="The cluster: its nodes and its health.", no_args_is_help=True, rich_markup_mode="markdown"
)

NODE_COLUMNS = (
    Column("ID", "id"),
    Column("CLIENT ADDRESS", "http_url"),
    Column("PEER ADDRESS", "peer_address"),
    Column("STATUS", "status"),
    Column("CONTROLLER", lambda row: "✓" if row.get("is_controller") else ""),
    Column("LEADS", "leaders"),
    Column("REPLICAS", "replicas"),
    Column("ZONE", "zone", wide=True),
    Column("VERSION", "version", wide=True),
    Column("INCARNATION", "incarnation", wide=True),
)


@command(app, "info")
async def info(session: Session) -> None:
    """Show the cluster: controller, counts, and its nodes."""
    async with session:
        state = await _state(session)

    def show() -> None:
        session.output.fields(
            [
                ("Cluster ID", state["cluster_id"]),
                ("Controller", state["controller_id"]),
                ("Epoch", state["controller_epoch"]),
                ("Version", state["version"]),
                ("Topics", state["topics"]),
                ("Partitions", state["partitions"]),
                ("Asked", state["node"]),
            ]
        )
        session.output.line()
        session.output.line("NODES:", style="bold")
        session.output.table(NODE_COLUMNS, _rows(state))

    session.output.detail(state, show)


@command(app, "nodes")
async def nodes(session: Session) -> None:
    """List the nodes: addresses, status, how many partitions each leads and holds."""
    async with session:
        state = await _state(session)
    session.output.rows(NODE_COLUMNS, _rows(state), empty="No nodes.")


@command(app, "health")
async def health(session: Session) -> None:
    """Say whether the cluster is whole; exit code 1 when something is wrong."""
    async with session:
        state = await _state(session)
    problems = [str(problem) for problem in state.get("problems") or ()]
    dead = [node["id"] for node in state["nodes"] if node["status"] != "alive"]
    healthy = not problems and not dead
    record = {
        "status": "healthy" if healthy else "degraded",
        "has_quorum": state["has_quorum"],
        "nodes": len(state["nodes"]),
        "alive": len(state["nodes"]) - len(dead),
        "not_alive": dead,
        "under_replicated": state["under_replicated"],
        "leaderless": state["leaderless"],
        "problems": problems,
    }

    def show() -> None:
        _show_health(session, record)

    session.output.detail(record, show)
    if not healthy:
        raise typer.Exit(EXIT_ERROR)


def _show_health(session: Session, record: dict[str, Any]) -> None:
    line = session.output.line
    style = "bold green" if record["status"] == "healthy" else "bold red"
    line(record["status"].capitalize(), style=style)
    session.output.fields(
        [
            ("Quorum", record["has_quorum"]),
            ("Nodes", f"{record['alive']} of {record['nodes']} alive"),
            ("Under-replicated", count_text(record["under_replicated"], "partition")),
            ("Without leader", count_text(record["leaderless"], "partition")),
        ]
    )
    for problem in record["problems"]:
        line(f"✗ {problem}", style="red")


async def _state(session: Session) -> Json:
    state: Json = await session.get("/cluster")
    return state


def _rows(state: Json) -> list[Row]:
    return [
        {**node, "is_controller": node["id"] == state["controller_id"]} for node in state["nodes"]
    ]
