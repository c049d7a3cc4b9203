"""`goqueue-cli cluster status`, `add`, `drain`, `undrain`, `remove`: brokers that come and go."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

import typer

from cli.cluster.moves import MOVES_COLUMNS, DryRun, Throttle, Wait, show_plan, start_rebalance
from cli.output.errors import EXIT_UNAVAILABLE, CliError
from cli.output.formats import Column, Row, bytes_text, count_text
from cli.output.terminal import note
from cli.run.dry_runs import answering
from cli.run.options import byte_rate, command, confirm, span
from cli.run.progress import Look, follow, left_text
from cli.run.session import Json, Session
from goqueue.errors import ConnectionFailed, GoQueueError
from goqueue.transport.http import join

LOOK_S = 0.5

Broker = Annotated[str, typer.Argument(help="The broker's name.", show_default=False)]

STATUS_COLUMNS = (
    Column("BROKER", "id"),
    Column("STATE", "state"),
    Column("ZONE", "zone"),
    Column("UP", lambda row: "yes" if row["up"] else row["status"]),
    Column("REPLICAS", "replicas"),
    Column("LEADERS", "leaders"),
    Column("LEFT", lambda row: _left(row)),
    Column("CLIENT ADDRESS", "url", wide=True),
    Column("PEER ADDRESS", "peer_address", wide=True),
    Column("INCARNATION", "incarnation", wide=True),
)


async def status(session: Session) -> None:
    """Show the brokers: what each holds and leads, what is left on those that are drained; and
    what moves."""
    async with session:
        found = await session.get("/v1/admin/cluster")

    def show() -> None:
        session.output.table(STATUS_COLUMNS, found["brokers"])
        session.output.line()
        if found["reassignments"]:
            session.output.line("MOVING:", style="bold")
            session.output.table(MOVES_COLUMNS, found["reassignments"])
        else:
            session.output.line("Nothing moves.")
        for text in _waiting(found):
            session.output.line(f"waiting: {text}", style="yellow")
        for problem in _lacking(found) + found["problems"]:
            session.output.line(f"✗ {problem}", style="red")

    session.output.detail(found, show)


async def add(
    session: Session,
    broker: Annotated[
        str, typer.Argument(help="The new broker's name, or its URL.", show_default=False)
    ],
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Then move its share of the replicas to it.")
    ] = False,
    throttle: Throttle = None,
    within: Annotated[str, typer.Option(help="How long to wait for it, such as 5m.")] = "10m",
) -> None:
    """Wait until a new broker has joined the cluster.

    A broker is added by starting a node that knows another one and the cluster's secret; this
    says how, waits for it, and can give it its share.
    """
    body = {} if throttle is None else {"throttle_bytes_per_sec": byte_rate("--throttle", throttle)}
    patience_s = int(span("--within", within).removesuffix("ms")) / 1000
    async with session:
        ends_s = asyncio.get_running_loop().time() + patience_s
        name = await _name_at(session, broker, ends_s) if "://" in broker else broker
        found = await _joined(session, name, ends_s)
        if session.output.is_table or not rebalance:
            held = count_text(int(found["replicas"]), "replica")
            session.output.success(f"{name} is in the cluster and has {held}", found)
        if rebalance:
            await start_rebalance(session, body, wait=True)
        elif session.output.is_table and not found["replicas"]:
            note("`goqueue-cli cluster rebalance --dry-run` shows what would move to it.")


async def drain(
    session: Session,
    broker: Broker,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    wait: Wait = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Wait until it is empty, then remove it.")
    ] = False,
) -> None:
    """Move all replicas off a broker; it gets no more. Nothing is lost, and nothing stops.

    It goes on by itself until the broker is empty, also when it is dead; `undrain` calls it off.
    """
    path = join("admin", "brokers", broker, "drain")
    body = {} if throttle is None else {"throttle_bytes_per_sec": byte_rate("--throttle", throttle)}
    async with session:
        if dry_run:
            with answering(session, dry_run=True):
                plan = await session.request("POST", path, body={**body, "dry_run": True})
                show_plan(session, plan, f"Nothing would move: {broker} has no replicas.")
            return
        answer = await session.request("POST", path, body=body)
        is_followed = answer["state"] != "drained" and (wait or remove)
        if is_followed:
            answer = await _drained(session, broker)
        if session.output.is_table or not is_followed:
            _show_drain(session, broker, answer)
        if remove:
            await _remove(session, broker)


async def undrain(session: Session, broker: Broker) -> None:
    """Let a broker take replicas again; those that were on their way off it come back."""
    async with session:
        answer = await session.request("DELETE", join("admin", "brokers", broker, "drain"))
    held = count_text(int(answer["held"]), "replica")
    session.output.success(f"{broker} is active and has {held}", answer)


async def remove(
    session: Session,
    broker: Broker,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Take a drained broker out of the cluster. Its data directory is never let in again."""
    async with session:
        question = f"Remove {broker}? Its data directory is never let in again."
        confirm(session, question, yes=yes, needs=f"removing {broker}")
        await _remove(session, broker)


def _show_drain(session: Session, broker: str, answer: Json) -> None:
    if answer["state"] == "drained":
        session.output.success(f"{broker} is drained: it holds nothing", answer)
        return
    held = count_text(int(answer["held"]), "replica")
    session.output.success(f"Draining {broker}: {held} to move to other brokers", answer)
    if session.output.is_table:
        note(
            "`goqueue-cli cluster status` shows how far it is, "
            f"`goqueue-cli cluster undrain {broker}` calls it off."
        )


async def _remove(session: Session, broker: str) -> None:
    answer = await session.request("DELETE", join("admin", "brokers", broker))
    session.output.success(f"Removed {broker} from the cluster", answer)
    if session.output.is_table:
        note("Stop its process; with an empty data directory it could join anew.")


async def _drained(session: Session, broker: str) -> Json:
    async def look() -> Look:
        found = await session.get(join("admin", "brokers", broker))
        told: Json = found["drain"] or {}
        if found["state"] != "draining":
            return Look(1, 1, "", found, is_over=True)
        total, left = int(told["replicas_at_start"]), int(told["replicas_left"])
        text = f"{left} of {count_text(total, 'replica')} left"
        text += left_text(told["bytes_left"], told["bytes_per_sec"])
        waiting = [told["problem"]] if told["problem"] else told["waiting"]
        return Look(max(total - left, 0), total, text, found, waiting=waiting)

    goes_on = (
        f"The drain of {broker} goes on. `goqueue-cli cluster status` shows it, "
        f"`goqueue-cli cluster undrain {broker}` calls it off."
    )
    ended = (await follow(session, f"Draining {broker}", look, goes_on)).record
    if ended["state"] == "active":
        raise CliError(f"the drain of {broker} was called off")
    return ended


async def _joined(session: Session, name: str, ends_s: float) -> Json:
    """The broker, once it is there and up. Raises CliError."""
    found, has_told = await _find(session, name), False
    while found is None or not found["up"]:
        if not has_told:
            has_told = True
            await _tell_how(session, name, found)
        if asyncio.get_running_loop().time() > ends_s:
            raise CliError(
                f"{name} has not joined the cluster",
                hint="its log says what it waits for; `cluster status` shows who is there",
                exit_code=EXIT_UNAVAILABLE,
            )
        await asyncio.sleep(LOOK_S)
        found = await _find(session, name)
    return found


async def _find(session: Session, name: str) -> Json | None:
    try:
        return await session.get(join("admin", "brokers", name))
    except GoQueueError as error:
        if error.code == "unknown_broker":
            return None
        raise


async def _tell_how(session: Session, name: str, found: Json | None) -> None:
    """What to start, on the new broker's machine."""
    if found is not None:
        note(f"Waiting for {name}: the cluster knows it, and it is {found['status']}.")
        return
    brokers = (await session.get("/v1/admin/brokers"))["brokers"]
    peers = " ".join(
        f"--peer {one['id']}={one['peer_address']}" for one in brokers if one["peer_address"]
    )
    note(f"Waiting for {name}. If it is not running, start it with the cluster's secret:")
    note(
        f"  goqueue-cli serve --node-id {name} --data DIRECTORY --http HOST:8080 "
        f"--peer-listen HOST:7000 --secret-file FILE {peers}"
    )


async def _name_at(session: Session, url: str, ends_s: float) -> str:
    """Who answers at this URL. Raises CliError where it belongs to another cluster."""
    ours = await session.get("/v1/cluster")
    async with Session(replace(session.given, server=url, timeout=session.timeout_s)) as other:
        while True:
            try:
                found = await other.get("/v1/cluster")
            except ConnectionFailed:
                if asyncio.get_running_loop().time() > ends_s:
                    raise
                await asyncio.sleep(LOOK_S)
                continue
            if found["cluster_id"] not in ("", ours["cluster_id"]):
                raise CliError(f"{found['node_id']} at {url} belongs to another cluster")
            return str(found["node_id"])


def _left(row: Row) -> str:
    told = row["drain"]
    if told is None:
        return "-"
    if row["state"] == "drained":
        return "nothing"
    size = f", {bytes_text(told['bytes_left'])}" if told["bytes_left"] else ""
    return f"{told['replicas_left']} of {told['replicas_at_start']}{size}"


def _waiting(found: Json) -> list[str]:
    """What keeps drains and moves, each once."""
    told: list[str] = []
    for broker in found["brokers"]:
        if broker["drain"] is not None and broker["drain"]["problem"]:
            told.append(f"{broker['id']}: {broker['drain']['problem']}")
        told += (broker["drain"] or {}).get("waiting", [])
    for one in found["reassignments"]:
        told += one["waiting"]
    return list(dict.fromkeys(told))


def _lacking(found: Json) -> list[str]:
    """Partitions that are not whole: nothing has to move for that, as while a wiped broker copies
    again what it had."""
    told = (
        (int(found["under_replicated_partitions"]), "under-replicated"),
        (int(found["leaderless_partitions"]), "without leader"),
    )
    return [f"{count_text(count, 'partition')} {what}" for count, what in told if count]


def register(app: typer.Typer) -> None:
    command(app, "status")(status)
    command(app, "add")(add)
    command(app, "drain")(drain)
    command(app, "undrain")(undrain)
    command(app, "remove")(remove)
