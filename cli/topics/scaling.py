"""`goqueue-cli topic partitions`, and what follows from another replication factor."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from cli.output.errors import HINTS, CliError
from cli.output.formats import Column, Row, bytes_text, count_text
from cli.output.stale import warn_of_stale
from cli.output.terminal import note
from cli.run.options import command
from cli.run.progress import Look, follow
from cli.run.session import Json, Session
from goqueue.transport.http import join

Name = Annotated[str, typer.Argument(help="The topic's name.", show_default=False)]

TURN = "waits for its turn"
"""What is told of partitions that nothing keeps."""
PARTITION_COLUMNS = (
    Column("PARTITION", "partition"),
    Column("LEADER", "leader"),
    Column("VOTERS", "voters"),
    Column("IN SYNC", "isr"),
    Column("LEARNING", "learners"),
    Column("MOVING TO", lambda row: _target(row)),
    Column("SIZE", lambda row: bytes_text(int(row["size_bytes"]))),
    Column("WAITING", "waiting"),
)


async def partitions(
    session: Session,
    name: Name,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-p", min=1, help="The new total of partitions.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing.")] = False,
) -> None:
    """Show who holds each partition and what moves; with --count, add partitions.

    Messages stay where they are. Keys are spread over all partitions from then on.
    """
    async with session:
        listed, scaling = await asyncio.gather(
            session.get(join("topics", name, "partitions")),
            session.get(join("admin", "topics", name, "scaling-status")),
        )
        if count is None:
            moving = {one["partition"]: one for one in scaling["moving"]}
            rows = [{**row, **_move(moving, row)} for row in listed["partitions"]]
            if listed.get("stale"):
                warn_of_stale([name])
            session.output.rows(PARTITION_COLUMNS, rows)
            return
        before = len(listed["partitions"])
        if dry_run and count > before:
            check_count(count, before)
            added = count_text(count - before, "partition")
            record = {"topic_name": name, "old_partition_count": before, "dry_run": True}
            session.output.success(f"Would add {added} to {name}, which has {before}", record)
            return
        path = join("admin", "topics", name, "partitions")
        _added(session, await session.request("POST", path, body={"count": count}))


async def follow_to_the_end(session: Session, name: str) -> None:
    """As `follow_scaling`, and say that it is done."""
    await follow_scaling(session, name)
    if session.output.is_table:
        session.output.success(f"Every partition of {name} is where it should be", {})


async def follow_scaling(session: Session, name: str) -> None:
    """Show a topic's moves until its partitions are where they should be."""

    async def look() -> Look:
        found = await session.get(join("admin", "topics", name, "scaling-status"))
        moving: list[Json] = found["moving"]
        left = len({*(one["partition"] for one in moving), *found["unplanned"]})
        total = int(found["partitions"])
        waiting = [
            f"{name}:{one['partition']}: {one['waiting']}"
            for one in moving
            if one["waiting"] not in (None, TURN)
        ]
        text = f"{total - left} of {count_text(total, 'partition')}"
        return Look(total - left, total, text, found, not found["scaling_in_progress"], waiting)

    goes_on = f"It goes on. `goqueue-cli topic partitions {name}` shows how far it is."
    await follow(session, f"Replicas of {name}", look, goes_on)


async def check_factor(session: Session, factor: int) -> None:
    """What the cluster would say of so many copies, which a dry run does not ask it for. Raises
    CliError."""
    brokers = (await session.get("/v1/admin/brokers"))["brokers"]
    takers = sum(one["state"] == "active" for one in brokers)
    if factor > takers:
        raise CliError(
            f"replication factor {factor} with {takers} brokers",
            hint=HINTS["too_few_brokers"],
            code="too_few_brokers",
        )


def check_count(count: int, before: int) -> None:
    """What the cluster would say of so many partitions. Raises CliError."""
    from coordinator.bounds import PARTITIONS_MAX  # only a dry run waits for the import

    if count > PARTITIONS_MAX:
        raise CliError(f"count: {count} is out of range, which is {before} to {PARTITIONS_MAX}")


def _added(session: Session, answer: Json) -> None:
    name, before = answer["topic_name"], int(answer["old_partition_count"])
    count = int(answer["new_partition_count"])
    if count == before:
        session.output.success(f"{name} has {count_text(count, 'partition')} already", answer)
        return
    added = count_text(count - before, "partition")
    session.output.success(f"Added {added} to {name}: it has {count} now", answer)
    if session.output.is_table:
        note(
            "Messages stay where they are. A key's new messages may go to another partition "
            "than its earlier ones."
        )


def _move(moving: dict[int, Json], row: Row) -> Json:
    found = moving.get(int(row["partition"]))
    return {"moving_to": found and found["to"], "waiting": found and found["waiting"]}


def _target(row: Row) -> object:
    return row["moving_to"]


def register(app: typer.Typer) -> None:
    command(app, "partitions")(partitions)
