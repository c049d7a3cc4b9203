"""`goqueue-cli group lag`, `offsets`, `reset-offsets`, `seek`: where a group stands."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.groups.columns import LAG_COLUMNS, OFFSET_COLUMNS, RESET_COLUMNS
from cli.output import moments
from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import age_text, count_text
from cli.run.dry_runs import stands_in_the_way
from cli.run.options import command, span
from cli.run.session import Json, Session
from goqueue.transport.http import join

Name = Annotated[str, typer.Argument(help="The group's name.", show_default=False)]
Topic = Annotated[str, typer.Option("--topic", "-t", help="The topic.")]
OneTopic = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Even while the group has members.")]


async def lag(session: Session, name: Name, topic: OneTopic = None) -> None:
    """Show how far a group is behind, in messages and in time.

    BEHIND is for how long the oldest message that isn't settled could have been delivered.
    """
    async with session:
        answer = await session.get(join("groups", name, "lag"), topic=topic)

    def show() -> None:
        if answer["partitions"]:
            session.output.table(LAG_COLUMNS, answer["partitions"])
            session.output.line()
        behind = age_text(answer["max_lag_seconds"] * 1000)
        total = count_text(int(answer["total_lag"]), "message")
        session.output.line(f"{total}, {behind} behind")

    session.output.detail(answer, show)


async def offsets(session: Session, name: Name, topic: OneTopic = None) -> None:
    """List a group's committed offsets: all below them is settled."""
    async with session:
        answer = await session.get(join("groups", name, "offsets"), topic=topic)
    session.output.rows(OFFSET_COLUMNS, answer["details"], empty="No offsets.")


async def reset_offsets(
    session: Session,
    name: Name,
    topic: Topic,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="The oldest message.")] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="After the newest message.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(min=0, help="This offset.")] = None,
    to_timestamp: Annotated[
        str | None,
        moments.option(
            "--to-timestamp", "--to-datetime", help="The first message of this time or later."
        ),
    ] = None,
    by_duration: Annotated[str | None, typer.Option(help="This long ago, such as 1h30m.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Move by this many offsets; negative: back.")
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; repeat.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    force: Force = False,
) -> None:
    """Replay, or skip: set where a group goes on. Dead letters stay.

    Refused while the group has members, whose work it would take away. REPLAYED messages were
    settled and come again; SKIPPED ones were not, and don't come any more.
    """
    target = _target(
        {
            "--to-earliest": {"to": "earliest"} if to_earliest else None,
            "--to-latest": {"to": "latest"} if to_latest else None,
            "--to-offset": None if to_offset is None else {"offset": to_offset},
            "--to-timestamp": None if to_timestamp is None else {"time": to_timestamp},
            "--by-duration": None
            if by_duration is None
            else {"duration": span("--by-duration", by_duration)},
            "--shift-by": None if shift_by is None else {"shift": shift_by},
        }
    )
    body: Json = {"topic": topic, **target, "dry_run": dry_run, "force": force}
    if partition:
        body["partitions"] = partition
    async with session:
        answer = await reset(session, name, body)
    rows: list[Json] = answer["offsets"]
    session.output.success(_reset_text(name, topic, rows, dry_run=dry_run), answer)
    if refusal := answer.get("refusal"):
        stands_in_the_way(refusal["code"], refusal["error"])
    if session.output.is_table and rows:
        session.output.table(RESET_COLUMNS, [{"topic": topic, **row} for row in rows])


async def reset(session: Session, group: str, body: Json) -> Json:
    """Set a group's positions; see `reset_offsets`."""
    return await session.request("POST", join("groups", group, "offsets", "reset"), body=body)


async def seek(
    session: Session,
    name: Name,
    topic: Topic,
    to: Annotated[
        str, typer.Option(help="earliest, latest, an offset, or a time as 2030-01-15T10:30:00Z.")
    ],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this one.")
    ] = None,
    force: Force = False,
) -> None:
    """As `reset-offsets`, in short: the group goes on from there. Dead letters stay."""
    body: Json = {"topic": topic, "to": to}
    if partition is not None:
        body["partition"] = partition
    if force:
        body["force"] = True
    async with session:
        answer = await session.request("POST", join("groups", name, "seek"), body=body)
    found: dict[str, int] = answer["offsets"]
    text = ", ".join(f"{number} at {offset}" for number, offset in found.items())
    session.output.success(f"Group {name} goes on in {topic}: partition {text}", answer)


def _target(options: dict[str, Json | None]) -> Json:
    """The one that was given. Raises `CliError`."""
    found = {option: target for option, target in options.items() if target is not None}
    if len(found) != 1:
        named = " and ".join(found) + " exclude each other" if found else "where to?"
        raise CliError(named, hint=f"give one of {', '.join(options)}", exit_code=EXIT_USAGE)
    (target,) = found.values()
    return target


def _reset_text(name: str, topic: str, rows: list[Json], *, dry_run: bool) -> str:
    replayed = sum(int(row["replayed"]) for row in rows)
    skipped = sum(int(row["skipped"]) for row in rows)
    verb = "Would reset" if dry_run else "Reset"
    return (
        f"{verb} group {name} in {count_text(len(rows), 'partition')} of {topic}: "
        f"{count_text(replayed, 'message')} replayed, {skipped} skipped"
    )


def register(app: typer.Typer) -> None:
    command(app, "lag")(lag)
    command(app, "offsets")(offsets)
    command(app, "reset-offsets")(reset_offsets)
    command(app, "seek")(seek)
