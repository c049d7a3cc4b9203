"""`goqueue-cli local`: what is in a directory, whether it is sound, and what can be saved of it.

All but `compact` and `repair` only read, also while a program has the directory open.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cli.consume.messages import stored_row
from cli.output.errors import EXIT_ERROR, EXIT_NOT_FOUND, CliError
from cli.output.formats import Column, Row, bytes_text, count_text
from cli.output.terminal import warn
from cli.run.options import command
from cli.run.session import Json, Session

if TYPE_CHECKING:
    from goqueue import AsyncClient
    from goqueue.models.messages import Message
    from node.embedded.check import Damage

TOPIC = "queue"
LOST_HEADER = "goqueue-lost"
GROUP = "queue"

app = typer.Typer(
    help="A queue in a directory: look at it, verify, compact and repair it. Needs no server.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Directory = Annotated[
    Path, typer.Argument(help="The directory.", metavar="DIR", show_default=False)
]
Topic = Annotated[str, typer.Argument(help="The topic.")]
Group = Annotated[str, typer.Option("--group", "-g", help="The group that takes items out.")]

STATS_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("GROUP", "group"),
    Column("MESSAGES", "messages"),
    Column("SIZE", "size"),
    Column("READY", "ready"),
    Column("IN FLIGHT", "in_flight"),
    Column("WAITING", "waiting"),
    Column("DELAYED", "delayed"),
    Column("DEAD", "dead"),
    Column("ACKED", "acked"),
)
FILE_COLUMNS = (
    Column("FILE", "file", whole=True),
    Column("BYTES", lambda row: bytes_text(row["bytes"])),
    Column("HOLDS", "holds"),
    Column("FIRST", "first"),
    Column("LAST", "last"),
)
MESSAGE_COLUMNS = (
    Column("PARTITION", "partition"),
    Column("OFFSET", "offset"),
    Column("TIME", "timestamp"),
    Column("PRIORITY", "priority"),
    Column("VALUE", "value"),
    Column("KEY", "key", wide=True),
    Column("HEADERS", "headers", wide=True),
)
COMPACT_COLUMNS = (
    Column("TOPIC", "topic"),
    Column("MESSAGES GONE", "messages"),
    Column("BYTES GONE", lambda row: bytes_text(row["bytes"])),
    Column("KEPT FOR", "kept_for"),
)
DAMAGE_COLUMNS = (
    Column("FILE", "file", whole=True),
    Column("BYTE", "byte"),
    Column("WHAT", "kind"),
    Column("REASON", "reason", whole=True),
    Column("LOST", "lost", whole=True),
)


@command(app, "stats")
async def stats(session: Session, directory: Directory) -> None:
    """How many items of each topic are ready, taken out, delayed, dead and done."""
    rows: list[Row] = []
    async with _opened(directory) as client:
        groups = [await client.group(one.name) for one in await client.list_groups()]
        for topic in await client.list_topics():
            messages = (await client.topic(topic)).total_messages
            of_topic = [g for g in groups if any(p.topic == topic for p in g.partitions)]
            for group in of_topic:
                lag = await client.lag(group.name, topic)
                places = [place for place in group.partitions if place.topic == topic]
                delayed = sum(place.delayed for place in lag.partitions)
                rows.append(
                    {
                        "topic": topic,
                        "group": group.name,
                        "messages": messages,
                        "size": lag.total_lag + delayed,
                        "ready": sum(place.ready for place in places),
                        "in_flight": sum(place.in_flight for place in places),
                        "waiting": sum(place.waiting for place in places),
                        "delayed": delayed,
                        "dead": sum(place.dead for place in lag.partitions),
                        "acked": sum(place.acked for place in places),
                    }
                )
            if not of_topic:
                rows.append({"topic": topic, "group": None, "messages": messages})
    session.output.rows(STATS_COLUMNS, rows, empty="No topics.")


@command(app, "inspect")
async def inspect(session: Session, directory: Directory) -> None:
    """Show the files: what each holds, and how large it is."""
    from cli.directory.files import files_of

    _silence()
    rows = files_of(_existing(directory))
    session.output.rows(FILE_COLUMNS, rows, empty="No files.")


@command(app, "peek")
async def peek(
    session: Session,
    directory: Directory,
    topic: Topic = TOPIC,
    group: Group = GROUP,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="So many.")] = 10,
) -> None:
    """Show what would be taken out next. It stays."""
    async with _opened(directory) as client:
        found = await client.peek(group, topic, limit=limit)
    rows = [stored_row(message) for message in found]
    session.output.rows(MESSAGE_COLUMNS, rows, empty="Nothing is ready.")


@command(app, "dump")
async def dump(
    session: Session,
    directory: Directory,
    topic: Topic = TOPIC,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0)] = None,
    offset: Annotated[int, typer.Option("--from", min=0, help="First offset.")] = 0,
) -> None:
    """Print all messages that are stored, done or not, so that `produce` takes them back.

    Of a damaged directory all that can be read; what can't is named, and the exit code is 1.
    """
    damaged = _damage(directory)
    lost = [damage for damage in damaged if damage.loses]
    for damage in lost:
        warn(str(damage))
    async with _opened(directory, lose=bool(lost)) as client:
        count = (await client.topic(topic)).partitions
        for number in range(count) if partition is None else (partition,):
            await _dump(session, client, topic, number, offset)
    if lost:
        raise CliError(
            f"{count_text(len(lost), 'place')} could not be read: this is not all",
            exit_code=EXIT_ERROR,
        )


@command(app, "verify")
async def verify(session: Session, directory: Directory) -> None:
    """Read everything, and compare it with its checksums.

    Exit code 0: all is sound, but for what a crash cut short (it was never acknowledged). 1: some
    of it is damaged; each place is named by file and byte, with what is lost.
    """
    found = _damage(directory)
    session.output.rows(DAMAGE_COLUMNS, [_damage_row(d) for d in found], empty="All is sound.")
    damaged = [damage for damage in found if not damage.is_tear]
    if damaged:
        raise CliError(
            f"{directory} is damaged in {count_text(len(damaged), 'place')}",
            hint=f"`goqueue-cli local repair {directory}` says what it would lose",
        )


@command(app, "repair")
async def repair(
    session: Session,
    directory: Directory,
    lose: Annotated[
        bool, typer.Option("--lose", help="Go on without what can't be read any more.")
    ] = False,
) -> None:
    """Cut what a crash left unfinished, and put right what can be made again.

    Where something that was acknowledged can't be read, it says what would be lost, and changes
    nothing (exit code 1); with `--lose` it goes on without, and keeps the damaged files in
    `DIR/damaged`. No program may have the directory open.
    """
    _silence()
    from node.embedded.repair import repair as mend

    done = mend(str(_existing(directory)), lose=lose)
    rows = [_damage_row(damage) for damage in done.damage]
    session.output.rows(DAMAGE_COLUMNS, rows, empty="All is sound.")
    lossy = [damage for damage in done.damage if damage.loses]
    if lossy and not lose:
        raise CliError(
            "nothing was changed: what is lost can't be made again",
            hint="--lose goes on without it; `local dump` shows what can be read",
        )
    if session.output.is_table and done.damage:
        kept = f"; the damaged files are in {done.aside}" if done.aside else ""
        session.output.line(f"Repaired{kept}.")


async def _dump(
    session: Session, client: AsyncClient, topic: str, partition: int, offset: int
) -> None:
    held = {one.partition: one for one in await client.partitions(topic)}
    if partition not in held:
        raise CliError(f"{topic} has no partition {partition}", exit_code=EXIT_NOT_FOUND)
    offset, end = max(offset, held[partition].earliest), held[partition].next
    while offset < end:
        page = await client.read(topic, partition, offset=offset, limit=1000)
        session.output.stream_rows(
            MESSAGE_COLUMNS,
            [stored_row(m) for m in page.messages if m.offset < end and not _is_lost(m)],
        )
        if page.next_offset <= offset:
            return
        offset = page.next_offset


def _is_lost(message: Message) -> bool:
    """Whether it stands in the place of one that can't be read."""
    return any(name == LOST_HEADER for name, _ in message.headers)


def _damage(directory: Path) -> list[Damage]:
    """All damage; what a writer disturbed is read again."""
    _silence()
    from node.embedded.reading import checked

    return checked(str(_existing(directory)))


def _damage_row(damage: Damage) -> Json:
    kind = "torn" if damage.is_tear else "damaged" if damage.loses else "index"
    return {
        "file": damage.path,
        "byte": damage.position,
        "kind": kind,
        "reason": damage.reason,
        "lost": damage.loses or None,
    }


@command(app, "compact")
async def compact(
    session: Session,
    directory: Directory,
    topic: Annotated[
        str | None, typer.Argument(help="The topic; all of them if not given.")
    ] = None,
) -> None:
    """Give the space of what is done back, now.

    Of each topic all goes, in whole files, up to the first message that a group has not settled.
    What is not done stays, dead letters and delayed messages too. A program that has the directory
    open is asked to do it; else it is opened for that.
    """
    rows: list[Row] = []
    async with _owned(directory) as client:
        for name in await client.list_topics() if topic is None else (topic,):
            if topic is None and (await client.topic(name)).is_compacted:
                continue  # by key: `topic compact` does that
            went = await client.trim_topic(name)
            kept_for = sorted({part.kept_for for part in went.partitions if part.kept_for})
            rows.append(
                {
                    "topic": name,
                    "messages": went.messages,
                    "bytes": went.bytes,
                    "kept_for": ", ".join(kept_for) or None,
                }
            )
    session.output.rows(COMPACT_COLUMNS, rows, empty="No topics.")


@asynccontextmanager
async def _owned(directory: Path) -> AsyncIterator[AsyncClient]:
    """A client that has the directory open, or asks the program that has."""
    _silence()
    from goqueue import AsyncClient
    from goqueue.local.directory import DirectoryChannel

    async with AsyncClient(DirectoryChannel(_existing(directory))) as client:
        yield client


@asynccontextmanager
async def _opened(directory: Path, *, lose: bool = False) -> AsyncIterator[AsyncClient]:
    """A client that reads the directory; with `lose`, what can be read of it."""
    _silence()
    from goqueue import AsyncClient
    from goqueue.local.engine import ReadingEngine
    from goqueue.local.reading import ReadingChannel
    from node.embedded.reading import open_reader, open_what_is_left

    opened = cast(Callable[[str], ReadingEngine], open_what_is_left if lose else open_reader)
    channel = ReadingChannel(_existing(directory), opened)
    async with AsyncClient(channel) as client:
        yield client


def _existing(directory: Path) -> Path:
    """Raises CliError where nothing is there."""
    if not (directory / "wal").is_dir() and not (directory / "groups").is_dir():
        raise CliError(
            f"there is no queue in {directory}", exit_code=EXIT_NOT_FOUND, code="no_directory"
        )
    return Path(os.path.abspath(directory))


def _silence() -> None:
    """What is found is printed as an answer; the engine's own words are for programs' logs."""
    for name in ("log", "raft", "goqueue"):
        logging.getLogger(name).addHandler(logging.NullHandler())
        logging.getLogger(name).propagate = False
