"""`goqueue-cli cluster rebalance`, `reassign`, `moves`, `cancel`: what goes where, how far it is.

Plans and reassignments as the other commands show them, too.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column, Row, bytes_text, count_text
from cli.output.terminal import note
from cli.run.dry_runs import answering
from cli.run.options import byte_rate, command
from cli.run.progress import Look, follow, left_text
from cli.run.session import Json, Session
from goqueue.transport.http import join
from goqueue.wire.unreadable import UNREADABLE

REBALANCE = "/v1/admin/cluster/rebalance"
REASSIGNMENT = "/v1/admin/reassignment"
PARTITIONS_MAX = 2000
ID = re.compile(r"\d{1,18}", re.ASCII)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would move.")]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Wait until it is done.")]
Throttle = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help="Copy at most this much a second to each new replica: 50MB. Logs of less than 64 MiB"
        " are sent at once.",
    ),
]

PLAN_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("FROM", "from"),
    Column("TO", "to"),
    Column("COPIED", lambda row: _size(row["bytes"])),
)
MOVES_COLUMNS = (
    Column("ID", "id"),
    Column("CAUSE", lambda row: cause_text(row)),
    Column("STATE", "state"),
    Column("DONE", lambda row: _done(row)),
    Column("TO COPY", lambda row: _size(row["bytes_left"])),
    Column("STARTED", "started_at"),
    Column("ENDED", "ended_at", wide=True),
    Column("RATE", lambda row: f"{bytes_text(row['bytes_per_sec'])}/s", wide=True),
    Column("THROTTLE", lambda row: throttle_text(row["throttle_bytes_per_sec"]), wide=True),
)
PARTITION_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("FROM", "old_replicas"),
    Column("TO", "new_replicas"),
    Column("STATE", "state"),
    Column("TO COPY", lambda row: _size(row["bytes_left"])),
    Column("WAITING", "waiting"),
)


async def rebalance(
    session: Session,
    leaders_only: Annotated[
        bool, typer.Option("--leaders-only", help="Move no replica, only leaders.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="At most this many partitions.")
    ] = None,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    wait: Wait = False,
) -> None:
    """Spread replicas over the brokers, and leaders over the replicas, with few moves.

    Brokers that were added get their share; zones come before equal shares.
    """
    body = {"leaders_only": leaders_only, "limit": limit, **_throttle(throttle)}
    async with session:
        if dry_run:
            with answering(session, dry_run=True):
                plan = await session.request("POST", REBALANCE, body={**body, "dry_run": True})
                show_plan(session, plan, "Nothing to move: the brokers have equal shares.")
            return
        await start_rebalance(session, body, wait=wait)


async def start_rebalance(session: Session, body: Json, *, wait: bool) -> None:
    """Rebalance, and say what becomes of it."""
    answer = await session.request("POST", REBALANCE, body=body)
    if "id" in answer:
        await _begun(session, answer, wait=wait)
    else:
        session.output.success("Nothing to move: the brokers have equal shares", answer)


async def reassign(
    session: Session,
    file: Annotated[
        Path,
        typer.Option("--file", "-f", help="The plan; - is standard input.", show_default=False),
    ],
    throttle: Throttle = None,
    dry_run: DryRun = False,
    wait: Wait = False,
) -> None:
    """Move partitions as a plan says, all of them or none.

    The plan is JSON: what a dry run prints with `-o json`, changed as you like, or
    {"partitions": [{"topic": "orders", "partition": 0, "new_replicas": ["node-1", "node-2"]}]}. The
    first replica should lead. Where "from" or "old_replicas" is there and not so, nothing moves.
    """
    body = {"partitions": _plan_of(file), **_throttle(throttle)}
    async with session:
        if dry_run:
            with answering(session, dry_run=True):
                plan = await session.request("POST", REASSIGNMENT, body={**body, "dry_run": True})
                show_plan(session, plan, "Nothing would move.")
            return
        await _begun(session, await session.request("POST", REASSIGNMENT, body=body), wait=wait)


async def moves(
    session: Session,
    id: Annotated[
        str | None, typer.Argument(help="Only this one, with its partitions.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="Include those that ended.")] = False,
    wait: Annotated[
        bool, typer.Option("--wait", "-w", help="Watch the named one until it ends.")
    ] = False,
) -> None:
    """List the reassignments that run; or show one, partition by partition."""
    if wait and id is None:
        raise CliError("--wait: for which reassignment?", exit_code=EXIT_USAGE)
    async with session:
        if id is not None:
            found = await (follow_moves(session, id) if wait else session.get(_path(id)))
            if session.output.is_table or not wait:
                _show_one(session, found)
            if wait:
                _check_arrived(found)
            return
        found = await session.get(REASSIGNMENT, running=None if every else "true")
    session.output.rows(
        MOVES_COLUMNS, found["reassignments"], empty="No moves." if every else "Nothing moves."
    )


async def cancel(
    session: Session,
    id: Annotated[str, typer.Argument(help="Its number, from `cluster moves`.")],
    wait: Wait = False,
) -> None:
    """Send back what has not arrived yet; what has arrived stays."""
    async with session:
        answer = await session.request("DELETE", _path(id))
        if answer["state"] == "done":
            session.output.success(f"Reassignment {id} is done: nothing is left to go back", answer)
            return
        if wait and answer["state"] == "cancelling":
            answer = await follow_moves(session, id)
    text = f"Reassignment {id} is {answer['state']}: {_counts(answer)}"
    session.output.success(text, answer)


async def follow_moves(session: Session, id: str) -> Json:
    """Show a reassignment until it has ended; the last answer."""

    async def look() -> Look:
        found = await session.get(_path(id))
        total, left = int(found["partitions_total"]), int(found["partitions_left"])
        text = f"{total - left} of {count_text(total, 'partition')}"
        copied = left_text(found["bytes_left"], found["bytes_per_sec"])
        is_over = found["state"] in ("done", "cancelled")
        return Look(total - left, total, text + copied, found, is_over, found["waiting"])

    goes_on = (
        f"Reassignment {id} goes on. `goqueue-cli cluster moves {id} --wait` shows it, "
        f"`goqueue-cli cluster cancel {id}` calls it off."
    )
    return (await follow(session, f"Reassignment {id}", look, goes_on)).record


def show_plan(session: Session, plan: Json, nothing: str) -> None:
    """What a dry run told."""

    def show() -> None:
        if not plan["moves"]:
            session.output.line(nothing)
            return
        session.output.table(PLAN_COLUMNS, plan["moves"])
        session.output.line()
        session.output.line(_sum(plan))

    session.output.detail(plan, show)


def cause_text(row: Row) -> str:
    """`drain node-3`, `rebalance`."""
    return " ".join([row["cause"].replace("_", " "), *row["brokers"]])


def throttle_text(bytes_s: int) -> str:
    """`50.0 MiB/s`; nothing where there is none."""
    return f"{bytes_text(bytes_s)}/s" if bytes_s else "-"


async def _begun(session: Session, answer: Json, *, wait: bool) -> None:
    id, total = answer["id"], int(answer["partitions_total"])
    moving = f"{count_text(total, 'partition')} (reassignment {id})"
    if answer["state"] == "done":
        session.output.success(f"Moved {moving}", answer)
    elif wait:
        ended = await follow_moves(session, id)
        _check_arrived(ended)
        if session.output.is_table:
            session.output.success(f"Moved {moving}", ended)
    else:
        session.output.success(f"Moving {moving}", answer)
        if session.output.is_table:
            note(
                f"`goqueue-cli cluster moves {id}` shows how far it is, "
                f"`goqueue-cli cluster cancel {id}` calls it off."
            )
    if total >= PARTITIONS_MAX:
        note("That is as much as moves at once: run it again when it is done.")


def _check_arrived(ended: Json) -> None:
    """Raises CliError where something else was decided while it was waited for."""
    overtaken = any(one["state"] == "overtaken" for one in ended["partitions"])
    if ended["state"] == "done" and not overtaken:
        return
    what = "was overtaken by later plans" if ended["state"] == "done" else "was called off"
    raise CliError(
        f"reassignment {ended['id']} {what}: {_counts(ended)}",
        hint=f"`goqueue-cli cluster moves {ended['id']}` shows them; `cluster status` what moves",
    )


def _show_one(session: Session, row: Json) -> None:
    def show() -> None:
        session.output.fields(
            [
                ("ID", row["id"]),
                ("Cause", cause_text(row)),
                ("State", row["state"]),
                ("Partitions", f"{_done(row)} done"),
                ("To Copy", _size(row["bytes_left"])),
                ("Throttle", throttle_text(row["throttle_bytes_per_sec"])),
                ("Started", row["started_at"]),
                ("Ended", row["ended_at"]),
            ]
        )
        session.output.line()
        session.output.table(PARTITION_COLUMNS, row["partitions"])

    session.output.detail(row, show)


def _plan_of(file: Path) -> list[Json]:
    """The partitions of a plan. Raises CliError."""
    text = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        plan: Any = msgspec.json.decode(text)
    except UNREADABLE as error:
        raise CliError(f"{file}: not JSON: {error}", exit_code=EXIT_USAGE) from None
    rows = plan.get("partitions", plan.get("moves")) if isinstance(plan, dict) else plan
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise CliError(
            f"{file}: not a plan",
            hint="`goqueue-cli cluster rebalance --dry-run -o json` prints one",
            exit_code=EXIT_USAGE,
        )
    return [
        {
            "topic": row.get("topic"),
            "partition": row.get("partition"),
            "new_replicas": row.get("new_replicas", row.get("to")),
            "old_replicas": row.get("old_replicas", row.get("from")),
        }
        for row in rows
    ]


def _throttle(text: str | None) -> Json:
    return {} if text is None else {"throttle_bytes_per_sec": byte_rate("--throttle", text)}


def _path(id: str) -> str:
    if not ID.fullmatch(id):
        raise CliError(
            f"a reassignment has a number, not {id!r}",
            hint="`goqueue-cli cluster moves --all` shows them",
            exit_code=EXIT_USAGE,
        )
    return join("admin", "reassignment", id)


def _sum(plan: Json) -> str:
    rows: list[Json] = plan["moves"]
    text = f"{count_text(len(rows), 'partition')}, {count_text(plan['replicas_moved'], 'replica')}"
    text += f" to copy ({bytes_text(plan['bytes'])})" if plan["replicas_moved"] else " to copy"
    if plan["bytes_unknown"]:
        text += f", and {count_text(plan['bytes_unknown'], 'partition')} of unknown size"
    return text if plan["complete"] else text + "; more is left for a further plan"


def _counts(row: Json) -> str:
    """`3 arrived, 5 returning`: of its partitions."""
    states = Counter(str(one["state"]) for one in row["partitions"])
    return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))


def _done(row: Row) -> str:
    total = int(row["partitions_total"])
    return f"{total - int(row['partitions_left'])} of {total}"


def _size(count: int | None) -> str:
    return "unknown" if count is None else bytes_text(count)


def register(app: typer.Typer) -> None:
    command(app, "rebalance")(rebalance)
    command(app, "reassign")(reassign)
    command(app, "moves")(moves)
    command(app, "cancel")(cancel)
