"""`consume` past retention: a topic from its archive and its log, as one stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.consume.messages import stored_row
from cli.consume.replay_position import ReplayPosition
from cli.output.errors import EXIT_USAGE, CliError, explain
from cli.output.terminal import note
from cli.run.session import Json, Session
from goqueue.errors import BadRequest, GoQueueError, UnknownTopic
from goqueue.models.times import moment_ms

if TYPE_CHECKING:
    from goqueue.archive.reader import ArchivedTopic
    from goqueue.archive.replay import TopicReplay, Wanted
    from goqueue.archive.seam import Missing
    from goqueue.models.topics import Topic

PANEL = "Reading what is deleted"
ARCHIVE_HINT = (
    "--archive URL says where one is (env GOQUEUE_ARCHIVE, `config set-context NAME --archive URL`)"
)

FromSnapshot = Annotated[
    str | None,
    typer.Option(
        help="Start at this day or time, in the archive if it is deleted: 2025-01-01.",
        rich_help_panel=PANEL,
    ),
]
IncludeDeleted = Annotated[
    bool,
    typer.Option(
        "--include-deleted",
        help="Read from the archive what retention and compaction have deleted.",
        rich_help_panel=PANEL,
    ),
]
ArchiveUrl = Annotated[
    str | None,
    typer.Option(
        "--archive",
        help="Where the archive is: a path, file://, s3://... By default env GOQUEUE_ARCHIVE, the"
        " context's, or where the brokers know it to be.",
        rich_help_panel=PANEL,
    ),
]
OfTopicId = Annotated[
    str | None,
    typer.Option(
        "--topic-id",
        help="Of several topics that had this name, the one with this id.",
        rich_help_panel=PANEL,
    ),
]
PositionFile = Annotated[
    Path | None,
    typer.Option(
        "--position",
        help="Where --group's place in the replay is kept (a file below ~/.local/state/goqueue).",
        rich_help_panel=PANEL,
    ),
]
SkipDamaged = Annotated[
    bool,
    typer.Option(
        "--skip-damaged",
        help="Skip damaged files of the archive, and report what was left out.",
        rich_help_panel=PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class Past:
    """What the command line says of a replay. `is_asked_for`: an archive must be there; else it is
    read where one is known."""

    is_asked_for: bool
    archive: str | None = None
    topic_id: str | None = None
    position: Path | None = None
    skip_damaged: bool = False

    def checked(self, group: str | None) -> Past:
        """Itself. Raises `CliError` where options are there that mean nothing."""
        if not self.is_asked_for:
            for name, value in (("--topic-id", self.topic_id), ("--position", self.position)):
                if value is not None:
                    raise CliError(f"{name} needs --include-deleted", exit_code=EXIT_USAGE)
        if self.position is not None and group is None:
            raise CliError("--position needs --group", exit_code=EXIT_USAGE)
        return self

    def check_reading(self, takes: bool) -> None:
        """Raises `CliError` where messages are to be taken that can only be read."""
        if takes:
            raise CliError(
                "what is deleted can only be read: drop --ack, --no-ack, --visibility, --force"
                " and --from-latest",
                exit_code=EXIT_USAGE,
            )


@dataclass(frozen=True, slots=True)
class Asked:
    """From where, to where, of what; for a `group`, where it was unless `is_fresh`."""

    topic: str
    partition: int | None
    offset: int
    from_ms: int | None
    to_ms: int | None
    limit: int | None
    follow: bool
    group: str | None = None
    is_fresh: bool = True


async def replay(
    session: Session, asked: Asked, past: Past, show: Callable[[list[Json]], None]
) -> int:
    """Show the messages, and return how many there were. Raises `CliError`, `GoQueueError`."""
    from goqueue.archive.replay import TopicReplay, Wanted, find_topic
    from goqueue.archive.seam import MessagesMissing

    wanted = Wanted(
        asked.topic, asked.partition, asked.offset, asked.from_ms, asked.to_ms, past.topic_id
    )
    topic = await find_topic(session.client, wanted)
    archived = await _archive(session, wanted, past, topic)
    position = await _position(asked, past, topic, archived)
    if position is not None:
        wanted = replace(wanted, offsets=position.offset, from_ms=position.from_ms)

    def missing(range_: Missing) -> None:
        if range_.why == "damaged" and not past.skip_damaged:
            raise MessagesMissing(range_)
        hint = "" if archived is not None else f"; {ARCHIVE_HINT}"
        note(f"{range_}{hint}")

    opened = await TopicReplay.of(session.client, wanted, topic, archived, missing)
    try:
        return await _shown(opened, asked, show, position)
    finally:
        if position is not None:
            position.save()


def snapshot_ms(text: str) -> int:
    """A day, which begins in UTC, or a time. Raises `CliError`."""
    try:
        is_day = len(text) == len("2025-01-01")
        return moment_ms(f"{text}T00:00:00Z" if is_day else text, "--from-snapshot")
    except BadRequest as error:
        raise CliError(error.message, exit_code=EXIT_USAGE) from None


async def _shown(
    opened: TopicReplay,
    asked: Asked,
    show: Callable[[list[Json]], None],
    position: ReplayPosition | None,
) -> int:
    count = 0
    async with aclosing(opened.runs(follow=asked.follow)) as runs:
        async for run in runs:
            wanted = run if asked.limit is None else run[: asked.limit - count]
            show([stored_row(message) for message in wanted])
            count += len(wanted)
            if position is not None:
                for message in wanted:
                    position.passed(message.partition, message.offset)
                position.save_in_time()
            if asked.limit is not None and count >= asked.limit:
                break
    return count


async def _archive(
    session: Session, wanted: Wanted, past: Past, topic: Topic | None
) -> ArchivedTopic | None:
    """The archive; None where none is known, or can't be read, and nobody insists on one."""
    from goqueue.archive.reader import ArchivedTopic

    url = past.archive or session.archive or (topic.archive if topic is not None else None)
    is_needed = past.is_asked_for or past.archive is not None
    if not url:
        if topic is None:
            raise UnknownTopic(wanted.topic)
        if is_needed:
            raise CliError(f"no archive of {wanted.topic} is known", hint=ARCHIVE_HINT)
        return None
    if topic is not None and topic.is_compacted and not past.is_asked_for:
        return None
    topic_id = wanted.topic_id if topic is None else topic.id
    archived = ArchivedTopic(url, wanted.topic, topic_id, is_live=topic is not None)
    try:
        await archived.current()
    except GoQueueError as error:
        report = explain(error)
        if is_needed or topic is None or report is None:
            raise
        note(f"the archive at {url} is not read: {report.message}")
        return None
    if archived.others:
        note(
            f"the archive also has other topics that were called {wanted.topic}:"
            f" {', '.join(archived.others)} (--topic-id ID reads one)"
        )
    return archived


async def _position(
    asked: Asked, past: Past, topic: Topic | None, archived: ArchivedTopic | None
) -> ReplayPosition | None:
    """Where the group's replay goes on, if it is one of a group."""
    if asked.group is None:
        return None
    if topic is not None:
        topic_id = topic.id
    else:
        assert archived is not None
        topic_id = (await archived.current()).topic_id
    path = past.position or ReplayPosition.default_path(asked.group, asked.topic, topic_id)
    position = ReplayPosition(path, asked.group, asked.topic, topic_id)
    position.first, position.from_ms = asked.offset, asked.from_ms
    if not asked.is_fresh and position.load():
        note(f"the replay of group {asked.group} goes on where it was ({path})")
    return position
