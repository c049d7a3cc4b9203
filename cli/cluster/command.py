"""`goqueue-cli cluster`: the nodes, who leads, and what is wrong; see `brokers` and `moves` too."""

from __future__ import annotations

import asyncio

import typer

from cli.cluster import brokers, moves, scrub, upgrade
from cli.output.errors import EXIT_ERROR, EXIT_UNAVAILABLE
from cli.output.formats import Column, count_text
from cli.run.options import command
from cli.run.session import Json, Session

app = typer.Typer(
    help="The cluster: its nodes, its health, and what moves.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

CLUSTER, NODES, HEALTH = "/v1/cluster", "/v1/cluster/nodes", "/v1/cluster/health"
NODE_COLUMNS = (
    Column("ID", "id"),
    Column("CLIENT ADDRESS", "http_url"),
    Column("PEER ADDRESS", "peer_address"),
    Column("STATUS", "status"),
    Column("CONTROLLER", lambda row: "✓" if row["role"] == "controller" else " "),
    Column("LEADS", "leaders"),
    Column("REPLICAS", "replicas"),
    Column("STATE", "state", wide=True),
    Column("ZONE", "zone", wide=True),
    Column("VERSION", "version", wide=True),
    Column("INCARNATION", "incarnation", wide=True),
)


@command(app, "info")
async def info(session: Session) -> None:
    """Show the cluster: controller, counts, and its nodes."""
    async with session:
        state, listed = await asyncio.gather(session.get("/v1/cluster"), session.get(NODES))

    def show() -> None:
        session.output.fields(
            [
                ("Cluster ID", state["cluster_id"]),
                ("Controller", state["controller"]),
                ("Epoch", state["controller_epoch"]),
                ("Nodes", f"{state['nodes_alive']} of {state['nodes']} alive"),
                ("Topics", state["topics"]),
                ("Partitions", state["partitions"]),
                ("Answered by", state["node_id"]),
            ]
        )
        session.output.line()
        session.output.line("NODES:", style="bold")
        session.output.table(NODE_COLUMNS, listed["nodes"])

    session.output.detail({**state, "node_details": listed["nodes"]}, show)


@command(app, "nodes")
async def nodes(session: Session) -> None:
    """List the nodes: addresses, status, how many partitions each leads and holds."""
    async with session:
        listed = await session.get(NODES)
    session.output.rows(NODE_COLUMNS, listed["nodes"], empty="No nodes.")


@command(app, "health")
async def health(session: Session) -> None:
    """Say whether the cluster is whole; exit code 1 when it isn't, 4 when it can't serve."""
    async with session:
        found = await session.get(HEALTH)
    session.output.detail(found, lambda: _show_health(session, found))
    if found["status"] != "healthy":
        raise typer.Exit(EXIT_UNAVAILABLE if found["status"] == "unavailable" else EXIT_ERROR)


brokers.register(app)
moves.register(app)
scrub.register(app)
upgrade.register(app)


def _show_health(session: Session, found: Json) -> None:
    style = "bold green" if found["status"] == "healthy" else "bold red"
    session.output.line(found["status"].capitalize(), style=style)
    alive = sum(status == "alive" for status in found["nodes"].values())
    session.output.fields(
        [
            ("Quorum", found["has_quorum"]),
            ("Nodes", f"{alive} of {len(found['nodes'])} alive"),
            ("Under-replicated", count_text(found["under_replicated_partitions"], "partition")),
            ("Without leader", count_text(found["leaderless_partitions"], "partition")),
        ]
    )
    for problem in _problems(found):
        session.output.line(f"✗ {problem}", style="red")
    for warning in found.get("warnings", []):
        session.output.line(f"! {warning}", style="yellow")


def _problems(found: Json) -> list[str]:
    problems = [str(problem) for problem in found["problems"]]
    told = " ".join(problems)
    return problems + [
        f"{node} is {status}"
        for node, status in found["nodes"].items()
        if status != "alive" and node not in told
    ]
