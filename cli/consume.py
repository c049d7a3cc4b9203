"""`goqueue-cli consume`: read messages by offset or by time, once or for ever."""

from __future__ import annotations

import base64
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated

import typer

from cli.errors import EXIT_USAGE, CliError
from cli.options import command
from cli.output import Column, Row
from cli.reading import Reader, Span
from cli.session import Json, Session
from goqueue.errors import UnknownPartition
from goqueue.http import join

MESSAGE_COLUMNS = (
    Column("PARTITION", "partition"),
    Column("OFFSET", "offset"),
    Column("TIMESTAMP", "timestamp"),
    Column("KEY", "key"),
    Column("VALUE", "value"),
    Column("PRIORITY", "priority"),
    Column("HEADERS", "headers", wide=True),
)
NO_END = -1


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading begins: exactly one of these, or none for the beginning."""

    offset: int | None
    from_beginning: bool
    from_latest: bool
    from_time: str | None

    def check(self) -> None:
        given = [
            name
            for name, said in (
                ("--offset", self.offset is not None),
                ("--from-beginning", self.from_beginning),
                ("--from-latest", self.from_latest),
                ("--from-time", self.from_time is not None),
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
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest message (the default).")
    ] = False,
    from_latest: Annotated[
        bool, typer.Option("--from-latest", help="Start after the newest; use with --follow.")
    ] = False,
    from_time: Annotated[
        str | None, typer.Option(help="Start at this time: RFC 3339, or ms since 1970.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option(help="End before this time: RFC 3339, or ms since 1970.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="At most this many messages.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new messages until Ctrl-C.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--value-only", "--raw", help="Print values only, byte for byte.")
    ] = False,
) -> None:
    """Read messages; without --follow, up to where the topic ended when the command began.

    All partitions are read as one stream, ordered by timestamp, then partition, then offset;
    each partition's own order is kept. In a pipe every message is a JSON line, which `produce`
    takes back. --follow prints `OFFSET [KEY]: VALUE` on a terminal, with `PARTITION:` in front
    when there are several.
    """
    start = Start(offset, from_beginning, from_latest, from_time)
    start.check()
    if follow and to_time is not None:
        raise CliError("--follow has no end: drop --to-time", exit_code=EXIT_USAGE)
    async with session:
        spans = await _spans(session, topic, partition, start, to_time, follow)
        reader = Reader(session, topic, limit, len(spans))
        show = Printer(session, raw=raw, follow=follow, several=len(spans) > 1)
        async with aclosing(_all(reader, spans, follow)) as pieces:
            async for piece in pieces:
                wanted = piece if limit is None else piece[: limit - show.count]
                show.messages(wanted)
                if limit is not None and show.count >= limit:
                    break
    if not show.count and session.output.is_table and not raw and not follow:
        session.output.line("No messages.")


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


async def _spans(
    session: Session,
    topic: str,
    partition: int | None,
    start: Start,
    to_time: str | None,
    follow: bool,
) -> list[Span]:
    details = (await session.get(join("topics", topic)))["partition_details"]
    if partition is not None:
        details = [one for one in details if one["partition"] == partition]
        if not details:
            raise UnknownPartition(topic, partition)
    spans = []
    for one in details:
        number, earliest, end = one["partition"], one["earliest"], one["next"]
        span = Span(number, earliest, end, start.from_time, to_time)
        if start.from_latest:
            span.offset = span.end
        elif start.offset is not None:
            span.offset = max(start.offset, earliest)
        elif start.from_time is not None:
            span.offset = None
        if span.offset is None or span.offset < span.end or follow:
            spans.append(span)
    return spans


class Printer:
    """Prints messages as they come, in the form that fits where they go."""

    def __init__(self, session: Session, *, raw: bool, follow: bool, several: bool) -> None:
        self.count = 0
        self._output = session.output
        self._raw = raw
        self._lines = follow and session.output.is_table
        self._several = several

    def messages(self, messages: list[Json]) -> None:
        self.count += len(messages)
        if self._raw:
            stream = sys.stdout.buffer
            stream.write(b"".join(value_bytes(message) + b"\n" for message in messages))
            stream.flush()
        elif self._lines:
            for message in messages:
                self._output.line(follow_line(message, several=self._several))
        else:
            rows: list[Row] = list(messages)
            self._output.stream_rows(MESSAGE_COLUMNS, rows)


def value_bytes(message: Json) -> bytes:
    """The value as it was published."""
    value: str = message["value"]
    if message.get("value_encoding") == "base64":
        return base64.b64decode(value)
    return value.encode()


def follow_line(message: Json, *, several: bool) -> str:
    """`OFFSET [KEY]: VALUE`, as GoQueue's follow mode has it."""
    where = f"{message['partition']}:" if several else ""
    key = f" [{message['key']}]" if message.get("key") else ""
    return f"{where}{message['offset']}{key}: {message['value']}"


def register(app: typer.Typer) -> None:
    command(app, "consume")(consume)
