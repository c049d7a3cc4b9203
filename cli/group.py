"""`goqueue-cli group`: consumer groups, their settings, and where they stand."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors import EXIT_ERROR, EXIT_USAGE, CliError
from cli.options import command, confirm
from cli.output import Column, Row, cell_text, count_text
from cli.session import Json, Session
from goqueue.errors import UnknownGroup
from goqueue.http import join

app = typer.Typer(
    help="Groups: each takes every message of its topics once.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[str, typer.Argument(help="The group's name.", show_default=False)]
Topic = Annotated[str, typer.Option("--topic", "-t", help="The topic.")]
OneTopic = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]
Visibility = Annotated[
    str | None, typer.Option(help="How long a received message is held, as 30s (30s).")
]
MaxAttempts = Annotated[
    int | None, typer.Option(min=0, help="Failed attempts before it is dead; 0: never (3).")
]
Ordering = Annotated[
    str | None, typer.Option(help="key: a key's next message waits for its last one (none).")
]
Start = Annotated[str | None, typer.Option(help="earliest or latest, in a new topic (earliest).")]
Backoff = Annotated[
    str | None, typer.Option(help="Wait before the first retry; doubles each time (0s).")
]
BackoffMax = Annotated[str | None, typer.Option(help="The longest such wait (1m).")]
OnPoison = Annotated[
    str | None, typer.Option(help="What fails too often: dead, or park: its key waits (dead).")
]
LaneMaxWait = Annotated[
    str | None, typer.Option(help="After this a low priority goes ahead (30s).")
]
LaneShare = Annotated[int | None, typer.Option(min=1, help="... in one of so many deliveries (5).")]
HaltPercent = Annotated[
    int | None, typer.Option(min=0, max=100, help="Halt when so many die; 0: never (0).")
]
HaltWindow = Annotated[int | None, typer.Option(min=1, help="... of the last so many (100).")]
RedrivesMax = Annotated[
    int | None, typer.Option(min=0, help="What died again so often is not redriven (5).")
]
InFlightMax = Annotated[
    int | None, typer.Option(min=1, help="Messages of a partition held at once (10000).")
]
DeadMax = Annotated[
    int | None, typer.Option(min=1, help="Dead letters of a partition; then it halts (100000).")
]

GROUP_COLUMNS = (
    Column("GROUP", "name"),
    Column("CREATED", "created_at"),
    Column("VISIBILITY", lambda row: row["settings"].get("visibility_timeout"), wide=True),
    Column("ATTEMPTS", lambda row: row["settings"].get("max_attempts"), wide=True),
    Column("ORDERING", lambda row: row["settings"].get("ordering"), wide=True),
)
PARTITION_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("COMMITTED", "committed_offset"),
    Column("END", "end_offset"),
    Column("LAG", "lag"),
    Column("READY", "ready"),
    Column("IN FLIGHT", "in_flight"),
    Column("WAITING", "waiting"),
    Column("DEAD", "dead"),
    Column("HALTED", lambda row: row["halted"] or "no"),
    Column("ACKED", "acked", wide=True),
    Column("NACKED", "nacked", wide=True),
    Column("REJECTED", "rejected", wide=True),
    Column("EXPIRED", "expired", wide=True),
    Column("DELIVERED", "delivered", wide=True),
)
PARKED_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("PARTITION", "partition"),
    Column("KEY", "key"),
    Column("WAITING", "waiting"),
)


@command(app, "list")
async def list_groups(session: Session) -> None:
    """List the groups; `-o wide` adds their settings."""
    async with session:
        rows: list[Row] = (await session.get("/v1/groups"))["details"]
    session.output.rows(GROUP_COLUMNS, rows, empty="No groups.")


@command(app, "describe")
async def describe(session: Session, name: Name, topic: OneTopic = None) -> None:
    """Show a group's settings, and how far it is in each partition."""
    async with session:
        group = await session.get(join("groups", name), topic=topic)

    def show() -> None:
        settings = [(key.replace("_", " ").title(), v) for key, v in group["settings"].items()]
        session.output.fields(
            [("Group", group["name"]), ("Created", group["created_at"]), *settings]
        )
        partitions: list[Json] = group["partitions"]
        if partitions:
            session.output.line()
            session.output.line("PARTITIONS:", style="bold")
            session.output.table(PARTITION_COLUMNS, partitions)
        parked = [
            {"topic": one["topic"], "partition": one["partition"], **key}
            for one in partitions
            for key in one.get("parked") or ()
        ]
        if parked:
            session.output.line()
            session.output.line("PARKED KEYS:", style="bold")
            session.output.table(PARKED_COLUMNS, parked)

    session.output.detail(group, show)


@command(app, "create")
async def create(
    session: Session,
    name: Name,
    visibility: Visibility = None,
    max_attempts: MaxAttempts = None,
    ordering: Ordering = None,
    start: Start = None,
    backoff: Backoff = None,
    backoff_max: BackoffMax = None,
    on_poison: OnPoison = None,
    lane_max_wait: LaneMaxWait = None,
    lane_share: LaneShare = None,
    halt_percent: HaltPercent = None,
    halt_window: HaltWindow = None,
    redrives_max: RedrivesMax = None,
    in_flight_max: InFlightMax = None,
    dead_max: DeadMax = None,
) -> None:
    """Create a group. A first `consume --group` does so too, with the defaults in brackets."""
    settings = _given(
        visibility_timeout=visibility,
        max_attempts=max_attempts,
        ordering=ordering,
        start=start,
        backoff=backoff,
        backoff_max=backoff_max,
        on_poison=on_poison,
        lane_max_wait=lane_max_wait,
        lane_share=lane_share,
        halt_percent=halt_percent,
        halt_window=halt_window,
        redrives_max=redrives_max,
        in_flight_max=in_flight_max,
        dead_max=dead_max,
    )
    async with session:
        try:
            await session.get(join("groups", name))
        except UnknownGroup:
            answer = await session.request("PUT", join("groups", name), body=settings)
        else:
            raise CliError(
                f"group already exists: {name}",
                hint=f"`goqueue-cli group set {name}` changes it",
                exit_code=EXIT_ERROR,
            )
    session.output.success(f"Created group {name}", answer)


@command(app, "set")
async def set_group(
    session: Session,
    name: Name,
    visibility: Visibility = None,
    max_attempts: MaxAttempts = None,
    ordering: Ordering = None,
    start: Start = None,
    backoff: Backoff = None,
    backoff_max: BackoffMax = None,
    on_poison: OnPoison = None,
    lane_max_wait: LaneMaxWait = None,
    lane_share: LaneShare = None,
    halt_percent: HaltPercent = None,
    halt_window: HaltWindow = None,
    redrives_max: RedrivesMax = None,
    in_flight_max: InFlightMax = None,
    dead_max: DeadMax = None,
) -> None:
    """Change a group's settings; what isn't named stays."""
    settings = _given(
        visibility_timeout=visibility,
        max_attempts=max_attempts,
        ordering=ordering,
        start=start,
        backoff=backoff,
        backoff_max=backoff_max,
        on_poison=on_poison,
        lane_max_wait=lane_max_wait,
        lane_share=lane_share,
        halt_percent=halt_percent,
        halt_window=halt_window,
        redrives_max=redrives_max,
        in_flight_max=in_flight_max,
        dead_max=dead_max,
    )
    if not settings:
        raise CliError("nothing to change was named", hint="see --help", exit_code=EXIT_USAGE)
    async with session:
        answer = await session.request("PATCH", join("groups", name), body=settings)
    text = ", ".join(f"{key}={cell_text(answer['settings'].get(key))}" for key in settings)
    session.output.success(f"Changed group {name}: {text}", answer)


@command(app, "delete")
async def delete(
    session: Session,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", "--force", "-f", help="Don't ask.")] = False,
) -> None:
    """Delete a group: how far it was, and its dead letters. The messages stay in their topics."""
    async with session:
        if not yes:
            partitions: list[Json] = (await session.get(join("groups", name)))["partitions"]
            lag, dead = (sum(int(one[field]) for one in partitions) for field in ("lag", "dead"))
            what = f"group {name} with {count_text(lag, 'open message')} and {dead} dead"
            confirm(session, f"Delete {what}?", yes=yes, needs=f"deleting {what}")
        answer = await session.request("DELETE", join("groups", name))
    session.output.success(f"Deleted group {name}", answer)


@command(app, "seek")
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
) -> None:
    """Replay, or skip: the group goes on from there. Dead letters stay."""
    body = _given(topic=topic, to=to, partition=partition)
    async with session:
        answer = await session.request("POST", join("groups", name, "seek"), body=body)
    offsets: dict[str, int] = answer["offsets"]
    text = ", ".join(f"{number} at {offset}" for number, offset in offsets.items())
    session.output.success(f"Group {name} goes on in {topic}: partition {text}", answer)


@command(app, "resume")
async def resume(session: Session, name: Name, topic: OneTopic = None) -> None:
    """Let a halted group go on."""
    async with session:
        answer = await session.request(
            "POST", join("groups", name, "resume"), body=_given(topic=topic)
        )
    count = int(answer["resumed"])
    text = f"goes on in {count_text(count, 'partition')}" if count else "was not halted"
    session.output.success(f"Group {name} {text}", answer)


@command(app, "park")
async def park(
    session: Session, name: Name, key: Annotated[str, typer.Argument(help="The key.")], topic: Topic
) -> None:
    """Withhold a key's messages from a group with `--ordering key`."""
    await _turn_key(session, name, topic, key, "park", "is parked")


@command(app, "release")
async def release(
    session: Session, name: Name, key: Annotated[str, typer.Argument(help="The key.")], topic: Topic
) -> None:
    """Let a parked key's messages flow again."""
    await _turn_key(session, name, topic, key, "release", "flows again")


async def _turn_key(
    session: Session, name: str, topic: str, key: str, verb: str, what: str
) -> None:
    async with session:
        answer = await session.request(
            "POST", join("groups", name, "keys", verb), body={"topic": topic, "key": key}
        )
    waiting = count_text(int(answer["waiting"]), "message")
    session.output.success(f"Key {key} of {topic} {what} for group {name} ({waiting})", answer)


def _given(**values: object) -> Json:
    return {key: value for key, value in values.items() if value is not None}
