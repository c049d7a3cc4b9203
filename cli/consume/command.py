"""`goqueue-cli consume`: read messages by offset or by time, or take those of a group."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from typing import Annotated

import typer

from cli.consume.group import Receives, Taking, take
from cli.consume.member import joined
from cli.consume.reader import Reader, Span
from cli.consume.replay import (
    ArchiveUrl,
    Asked,
    FromSnapshot,
    IncludeDeleted,
    OfTopicId,
    Past,
    PositionFile,
    SkipDamaged,
    replay,
    snapshot_ms,
)
from cli.consume.until import Until
from cli.groups.positions import reset
from cli.output import moments
from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column, Row, time_of
from cli.output.terminal import note, visible, write_bytes
from cli.run.options import command, span
from cli.run.session import Json, Session
from cli.run.sigterm import ending_in_order
from goqueue.errors import BadRequest, UnknownPartition
from goqueue.models.times import moment_ms
from goqueue.transport.http import join

MESSAGE_COLUMNS = (
    Column("PARTITION", "partition"),
    Column("OFFSET", "offset"),
    Column("TIMESTAMP", "timestamp"),
    Column("KEY", "key"),
    Column("VALUE", "value"),
    Column("PRIORITY", "priority"),
    Column("HEADERS", "headers", wide=True),
)
HELD_COLUMNS = (
    *MESSAGE_COLUMNS,
    Column("ATTEMPT", "attempt"),
    Column("RECEIPT", "receipt", whole=True),
)
HELD_LIMIT = 10
PANEL = "Working a queue"
NO_END = -1

FromTime = Annotated[str | None, moments.option(help="Start at this time.")]
ToTime = Annotated[str | None, moments.option(help="End before this time.")]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", "-n", "--max", "--max-messages", min=1, help="At most this many messages."
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group", "-g", help="Join this group and take its messages.", rich_help_panel=PANEL
    ),
]
Ack = Annotated[
    bool | None,
    typer.Option(
        "--ack/--no-ack",
        help="Ack what was printed (the default), or hold it and print receipts.",
        rich_help_panel=PANEL,
    ),
]
Visibility = Annotated[
    str | None,
    typer.Option(
        help="How long a lease lasts without an ack, such as 2m (the group's).",
        rich_help_panel=PANEL,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="With --from-time: move the group even while it has members.",
        rich_help_panel=PANEL,
    ),
]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start at the oldest message (the default).")
]
FromLatest = Annotated[
    bool, typer.Option("--from-latest", help="Start after the newest; use with --follow.")
]
Raw = Annotated[
    bool, typer.Option("--value-only", "--raw", help="Print values only, byte for byte.")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for new messages until Ctrl-C.")]


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins: exactly one of these, or none for the beginning."""

    offset: int | None
    from_beginning: bool
    from_latest: bool
    from_time: str | None
    from_snapshot: str | None = None

    @property
    def is_given(self) -> bool:
        return self != Start(None, False, False, None)

    @property
    def from_ms(self) -> int | None:
        """The time, in Unix milliseconds. Raises `CliError`."""
        if self.from_snapshot is not None:
            return snapshot_ms(self.from_snapshot)
        return None if self.from_time is None else _moment_ms(self.from_time, "--from-time")

    def check(self) -> None:
        given = [
            name
            for name, said in (
                ("--offset", self.offset is not None),
                ("--from-beginning", self.from_beginning),
                ("--from-latest", self.from_latest),
                ("--from-time", self.from_time is not None),
                ("--from-snapshot", self.from_snapshot is not None),
            )
            if said
        ]
        if len(given) > 1:
            raise CliError(" and ".join(given) + " exclude each other", exit_code=EXIT_USAGE)


async def consume(
    session: Session,
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this one.")
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="Start at this offset.")] = None,
    from_beginning: FromBeginning = False,
    from_latest: FromLatest = False,
    from_time: FromTime = None,
    to_time: ToTime = None,
    limit: Limit = None,
    follow: Follow = False,
    raw: Raw = False,
    group: Group = None,
    ack: Ack = None,
    visibility: Visibility = None,
    force: Force = False,
    from_snapshot: FromSnapshot = None,
    include_deleted: IncludeDeleted = False,
    archive: ArchiveUrl = None,
    topic_id: OfTopicId = None,
    position: PositionFile = None,
    skip_damaged: SkipDamaged = False,
) -> None:
    """Read messages; without --follow, up to where the topic ended when the command began.

    All partitions are read as one stream, ordered by timestamp, then partition, then offset;
    each partition's own order is kept. In a pipe every message is a JSON line, which `produce`
    takes back. --follow prints `OFFSET [KEY]: VALUE` on a terminal, with `PARTITION:` in front
    when there are several.

    With --group messages are taken, as a worker would: as a member of the group, from the
    partitions it is given, in the group's own order. Each is acked once it was printed. The group
    goes on where it was; --from-time sets it there first, for good. With --to-time nothing of that
    time or later is acked. --no-ack (at most 10, unless -n or --follow says otherwise) and
    --partition take without joining, what no member has; what isn't acked comes again, unless
    `ack RECEIPT` says that it is done.

    --include-deleted and --from-snapshot read what is deleted from the archive, then the log, and
    take nothing: --group only remembers, on this machine, where the replay was. --from-time and
    --offset read a known archive by themselves where the log does not reach back so far.
    """
    start = Start(offset, from_beginning, from_latest, from_time, from_snapshot)
    start.check()
    deleted = include_deleted or from_snapshot is not None
    past = Past(deleted, archive, topic_id, position, skip_damaged).checked(group)
    _check_end(start, to_time, follow=follow, force=force, group=group)
    if past.is_asked_for:
        past.check_reading(ack is not None or visibility is not None or force or from_latest)
        asked = _asked(topic, partition, start, to_time, limit, follow, group)
        async with session:
            await _consume_past(session, asked, past, raw=raw)
    elif group is not None:
        taking = _taking(group, topic, partition, limit, visibility, ack, follow)
        with ending_in_order():
            await _consume_group(session, taking, start, to_time, force=force, raw=raw)
    elif ack is not None or visibility is not None:
        raise CliError("--ack, --no-ack and --visibility need --group", exit_code=EXIT_USAGE)
    else:
        async with session:
            details = await _details(session, topic, partition, wait=from_latest)
            _tell_end(topic, details, start.offset)
            if await _reaches_below(session, topic, details, start):
                asked = _asked(topic, partition, start, to_time, limit, follow)
                await _consume_past(session, asked, past, raw=raw)
            else:
                spans = _spans(details, start, to_time, follow)
                with ending_in_order() if follow else nullcontext():
                    await _consume_log(session, topic, spans, limit, follow=follow, raw=raw)


def _taking(
    group: str,
    topic: str,
    partition: int | None,
    limit: int | None,
    visibility: str | None,
    ack: bool | None,
    follow: bool,
) -> Taking:
    acks = ack is not False
    bound = limit if limit is not None or acks or follow else HELD_LIMIT
    held = None if visibility is None else span("--visibility", visibility)
    return Taking(group, topic, partition, bound, held, acks, follow)


async def _consume_log(
    session: Session, topic: str, spans: list[Span], limit: int | None, *, follow: bool, raw: bool
) -> None:
    reader = Reader(session, topic, limit, len(spans))
    show = Printer(session, raw=raw, follow=follow, several=len(spans) > 1)
    async with aclosing(_all(reader, spans, follow)) as pieces:
        async for piece in pieces:
            wanted = piece if limit is None else piece[: limit - show.count]
            show.messages(wanted)
            if limit is not None and show.count >= limit:
                break
    _tell_none(session, show.count, raw=raw, follow=follow)


def _check_end(
    start: Start, to_time: str | None, *, follow: bool, force: bool, group: str | None
) -> None:
    if follow and to_time is not None:
        raise CliError("--follow has no end: drop --to-time", exit_code=EXIT_USAGE)
    if force and (group is None or start.from_time is None):
        raise CliError("--force needs --group and --from-time", exit_code=EXIT_USAGE)


def _asked(
    topic: str,
    partition: int | None,
    start: Start,
    to_time: str | None,
    limit: int | None,
    follow: bool,
    group: str | None = None,
) -> Asked:
    return Asked(
        topic,
        partition,
        start.offset or 0,
        start.from_ms,
        None if to_time is None else _moment_ms(to_time, "--to-time"),
        limit,
        follow,
        group,
        start.is_given,
    )


async def _consume_past(session: Session, asked: Asked, past: Past, *, raw: bool) -> None:
    show = Printer(session, raw=raw, follow=asked.follow, several=asked.partition is None)
    count = await replay(session, asked, past, show.messages)
    _tell_none(session, count, raw=raw, follow=asked.follow)


def _tell_end(topic: str, details: Sequence[Json], offset: int | None) -> None:
    """Where no partition reaches so far: an empty answer may be a mistyped offset."""
    if offset is None or not details or any(one.get("stale") for one in details):
        return
    end = max(int(one["next"]) for one in details)
    if offset > end:
        what = topic if len(details) > 1 else f"{topic}:{details[0]['partition']}"
        note(f"{what} ends at offset {end}: there is nothing from {offset} on yet")


def _tell_none(session: Session, count: int, *, raw: bool, follow: bool) -> None:
    if not count and session.output.is_table and not raw and not follow:
        session.output.line("No messages.")


async def _reaches_below(
    session: Session, topic: str, details: Sequence[Json], start: Start
) -> bool:
    """Whether messages are asked for that a partition's log does not have any more."""
    if start.offset is not None:
        return any(start.offset < int(one["earliest"]) for one in details)
    if start.from_time is None:
        return False
    for one in details:
        earliest = int(one["earliest"])
        if earliest > 0:
            path = join("topics", topic, "partitions", one["partition"], "messages")
            name = f"{topic}:{one['partition']}"
            page = await session.get_confirmed(path, name, from_time=start.from_time, limit=1)
            found = page["messages"]
            if found[0]["offset"] <= earliest if found else earliest == int(one["next"]):
                return True
    return False


async def _consume_group(
    session: Session,
    taking: Taking,
    start: Start,
    to_time: str | None,
    *,
    force: bool,
    raw: bool,
) -> None:
    if start.is_given and start.from_time is None:
        raise CliError(
            "a group goes on where it was: drop --offset and --from-...",
            hint="`goqueue-cli group reset-offsets` moves a group",
            exit_code=EXIT_USAGE,
        )
    end = None if to_time is None else _moment(to_time)
    show = Printer(session, raw=raw, follow=taking.follow and taking.ack, several=True)
    show.columns = MESSAGE_COLUMNS if taking.ack else HELD_COLUMNS
    async with session:
        details = await _details(session, taking.topic, taking.partition)
        numbers = [int(one["partition"]) for one in details]
        if start.from_time is not None or end is not None:
            await session.request("PUT", join("groups", taking.group), body={})
        if start.from_time is not None:
            body: Json = {"topic": taking.topic, "time": start.from_time, "force": force}
            if taking.partition is not None:
                body["partitions"] = numbers
            await reset(session, taking.group, body)
        until = None
        if end is not None:
            until = await Until.find(session, taking.group, taking.topic, end, details)
        if taking.joins:
            async with joined(session, taking) as member:
                count = await take(member, taking, show.messages, until)
        else:
            count = await take(Receives(session, taking, numbers), taking, show.messages, until)
    if not count and session.output.is_table and not raw:
        session.output.line("No messages are ready.")


def _moment(text: str) -> str:
    """A time as messages show theirs. Raises `CliError`."""
    return time_of(_moment_ms(text, "--to-time"))


def _moment_ms(text: str, what: str) -> int:
    try:
        return moment_ms(text, what)
    except BadRequest as error:
        raise CliError(error.message, exit_code=EXIT_USAGE) from None


async def _all(reader: Reader, spans: list[Span], follow: bool) -> AsyncGenerator[list[Json], None]:
    """What is there already, in order; then, if followed, what comes."""
    async with aclosing(reader.merged(spans)) as old:
        async for piece in old:
            yield piece
    if follow:
        for span in spans:
            span.offset = span.end if span.offset is None else max(span.offset, span.end)
            span.end, span.from_time = NO_END, None
        async with aclosing(reader.followed(spans)) as new:
            async for piece in new:
                yield piece


def _spans(details: Sequence[Json], start: Start, to_time: str | None, follow: bool) -> list[Span]:
    spans = []
    for one in details:
        number, earliest, end = one["partition"], one["earliest"], one["next"]
        span = Span(number, earliest, end, start.from_time, to_time)
        if one.get("stale"):
            span.end, span.is_end_known = NO_END, False
        if start.from_latest:
            span.offset = span.end
        elif start.offset is not None:
            span.offset = max(start.offset, earliest)
        elif start.from_time is not None:
            span.offset = None
        if span.offset is None or span.offset < span.end or follow or not span.is_end_known:
            spans.append(span)
    return spans


async def _details(
    session: Session, topic: str, partition: int | None, *, wait: bool = False
) -> list[Json]:
    """What the topic's partitions hold, or what this one does; with `wait`, not before their
    leaders confirm it."""
    path = join("topics", topic)
    found = await (session.get_confirmed(path, topic) if wait else session.get(path))
    details: list[Json] = found["partition_details"]
    if partition is not None:
        details = [one for one in details if one["partition"] == partition]
        if not details:
            raise UnknownPartition(topic, partition)
    return details


class Printer:
    """Prints messages as they come, in the form that fits where they go."""

    def __init__(self, session: Session, *, raw: bool, follow: bool, several: bool) -> None:
        self.count = 0
        self.columns: Sequence[Column] = MESSAGE_COLUMNS
        self._output = session.output
        self._raw = raw
        self._lines = follow and session.output.is_table
        self._several = several

    def messages(self, messages: list[Json]) -> None:
        self.count += len(messages)
        if self._raw:
            write_bytes(sys.stdout, b"".join(value_bytes(message) + b"\n" for message in messages))
        elif self._lines:
            for message in messages:
                self._output.line(follow_line(message, several=self._several))
        else:
            rows: list[Row] = list(messages)
            self._output.stream_rows(self.columns, rows)


def value_bytes(message: Json) -> bytes:
    """The value as it was published."""
    value: str = message["value"] or ""
    if message.get("value_encoding") == "base64":
        return base64.b64decode(value)
    return value.encode()


def follow_line(message: Json, *, several: bool) -> str:
    """`OFFSET [KEY]: VALUE`, as GoQueue's follow mode has it."""
    where = f"{message['partition']}:" if several else ""
    key = f" [{message['key']}]" if message.get("key") else ""
    value = "null" if message["value"] is None else message["value"]
    return visible(f"{where}{message['offset']}{key}: {value}")


def register(app: typer.Typer) -> None:
    command(app, "consume")(consume)
