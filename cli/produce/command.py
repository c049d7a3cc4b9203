"""`goqueue-cli produce`: publish a message, a file of lines, or what a pipe brings."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column, Row, count_text, time_of
from cli.output.terminal import note, plain_console
from cli.produce.lines import (
    PRIORITIES,
    LineSplitter,
    Message,
    check_times,
    parse,
    priority_of,
    read_blocks,
)
from cli.produce.publisher import Publisher, publish_few
from cli.run.options import command, pairs
from cli.run.session import Session
from goqueue import Published

RELAXED = "relaxed"

RANGE_COLUMNS = (
    Column("PARTITION", "partition"),
    Column("MESSAGES", "count"),
    Column("FIRST OFFSET", "first_offset"),
    Column("LAST OFFSET", "last_offset"),
)


class Codec(StrEnum):
    """What `--compression` takes."""

    none = "none"
    zstd = "zstd"
    lz4 = "lz4"
    gzip = "gzip"


Delay = Annotated[str | None, typer.Option("--delay", "-d", help="Delay delivery, e.g. `90s`.")]
DeliverAt = Annotated[
    str | None, typer.Option(help="Groups receive it from this time on: RFC 3339, or ms.")
]
TimeToLive = Annotated[str | None, typer.Option(help="Expire after this long, e.g. `1h`.")]
Null = Annotated[
    bool, typer.Option("--null", help="A null value: it deletes the --key, in a compacted topic.")
]
Compress = Annotated[Codec, typer.Option(help="How each batch is compressed.")]
OwnId = Annotated[
    str | None, typer.Option(help="A message id: a repeated one is not stored again.")
]


@dataclass(slots=True)
class Tally:
    """What has been acknowledged: exact counts, and the first and last offset of each partition."""

    began_s: float = 0.0
    last_s: float = 0.0
    count: int = 0
    duplicates: int = 0
    last: Published | None = None
    durability: str = ""
    """The weakest that any had."""
    ranges: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def add(self, receipt: Published) -> None:
        found = self.ranges.setdefault(receipt.partition, [0, receipt.offset, receipt.offset])
        found[0] += 1
        found[1] = min(found[1], receipt.offset)
        found[2] = max(found[2], receipt.offset)
        self.count += 1
        self.duplicates += receipt.duplicate
        if not self.durability or receipt.durability == RELAXED:
            self.durability = receipt.durability
        self.last = receipt
        self.last_s = time.monotonic()

    def rows(self) -> list[Row]:
        return [
            {"partition": partition, "count": count, "first_offset": first, "last_offset": last}
            for partition, (count, first, last) in sorted(self.ranges.items())
        ]


async def produce(
    session: Session,
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False)],
    message: Annotated[
        list[str] | None, typer.Option("--message", "-m", help="A message's value; repeat.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Lines to publish; - is standard input.", dir_okay=False),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Key of messages without one of their own.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Repeat.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="Publish to it, not to the key's."),
    ] = None,
    priority: Annotated[str | None, typer.Option(help=f"One of {', '.join(PRIORITIES)}.")] = None,
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    ttl: TimeToLive = None,
    message_id: OwnId = None,
    null: Null = False,
    compression: Compress = Codec.none,
    plain: Annotated[
        bool, typer.Option("--plain", help="Every line is a value as it stands, JSON or not.")
    ] = False,
) -> None:
    """Publish messages: -m, --file, or standard input, a message a line.

    A line {"value": ..., "key": ..., "headers": {...}, "partition": N, "priority": ..., "delay":
    ..., "deliver_at": ..., "ttl": ..., "message_id": ...} is a message with these fields; any other
    line is a value as it stands. Empty lines are skipped.
    Messages of one key keep their order. Repeats of a lost answer are recognised: nothing is
    stored twice.
    """
    given = Message(
        b"",
        _bytes(key),
        pairs("--header", header),
        partition,
        priority_of("--priority", priority),
        message_id,
        delay,
        deliver_at,
        ttl,
    )
    values = [*map(_bytes, message or ()), *[None] * null]
    if values and file is not None:
        raise CliError("-m and --file exclude each other", exit_code=EXIT_USAGE)
    _check(given, len(values))
    tally = Tally()
    session.compression = compression.value
    async with session:
        try:
            tally.began_s = tally.last_s = time.monotonic()
            if values:
                messages = [replace(given, value=value) for value in values]
                await publish_few(session.client, topic, messages, tally.add)
            else:
                async with Publisher(session, topic) as publisher:
                    await _publish_lines(publisher, file, given, tally, plain=plain)
                    await publisher.flush()
        finally:
            if tally.count or sys.exc_info()[0] is None:
                _summary(session, topic, tally)


async def _publish_lines(
    publisher: Publisher, file: Path | None, given: Message, tally: Tally, *, plain: bool
) -> None:
    async def lines(found: list[tuple[int, bytes]]) -> None:
        for number, line in found:
            try:
                message = Message(line) if plain else parse(line)
            except CliError as error:
                raise CliError(f"line {number}: {error.message}", hint=error.hint) from None
            await publisher.publish(_merged(message, given), tally.add)

    splitter = LineSplitter()
    with _source(file) as (stream, progress):
        async for block in read_blocks(stream):
            await lines(splitter.feed(block))
            progress(len(block), tally.count)
        await lines(splitter.end())


def _summary(session: Session, topic: str, tally: Tally) -> None:
    seconds = tally.last_s - tally.began_s
    rate = tally.count / seconds if seconds > 0 else 0.0
    rows = tally.rows()
    record: Row = {
        "topic": topic,
        "count": tally.count,
        **({"duplicates": tally.duplicates} if tally.duplicates else {}),
        **({"durability": tally.durability} if tally.durability else {}),
        "seconds": round(seconds, 6),
        "rate": round(rate, 1),
        "partitions": rows,
    }
    if tally.count == 1 and tally.last is not None:
        _summary_of_one(session, tally.last, record)
        return
    known = f", {tally.duplicates} of them there before" if tally.duplicates else ""
    session.output.success(
        f"Published {count_text(tally.count, 'message')} to {topic} "
        f"in {seconds:.3f} s ({rate:,.0f} messages/s){known}",
        record,
    )
    if session.output.is_table and rows:
        session.output.table(RANGE_COLUMNS, rows)


def _summary_of_one(session: Session, stored: Published, record: Row) -> None:
    where = f"{stored.topic} partition {stored.partition} offset {stored.offset}"
    text = f"Published to {where} (id {stored.id})"
    details: dict[str, object] = {**record, "id": stored.id}
    if stored.duplicate:
        text = f"Nothing stored: published before to {where} (id {stored.id})"
        details["duplicate"] = True
    elif stored.deliver_at_ms is not None:
        details["deliver_at"] = time_of(stored.deliver_at_ms)
        text += f", delivered from {details['deliver_at']} on"
    session.output.success(text, details)


def _merged(message: Message, given: Message) -> Message:
    """The line's own fields win over the options."""
    is_timed = message.delay is not None or message.deliver_at is not None
    return Message(
        value=message.value,
        key=given.key if message.key is None else message.key,
        headers=message.headers + given.headers,
        partition=given.partition if message.partition is None else message.partition,
        priority=message.priority or given.priority,
        message_id=message.message_id,
        delay=message.delay if is_timed else given.delay,
        deliver_at=message.deliver_at if is_timed else given.deliver_at,
        ttl=given.ttl if message.ttl is None else message.ttl,
    )


def _check(given: Message, values: int) -> None:
    """What no message could have, said before anything is sent. Raises `CliError`."""
    if given.message_id is not None and values != 1:
        raise CliError(
            "--message-id is for one message",
            hint='give one -m, or lines with a "message_id" of their own',
            exit_code=EXIT_USAGE,
        )
    check_times(given.delay, given.deliver_at, given.ttl)


@contextmanager
def _source(file: Path | None) -> Iterator[tuple[BinaryIO, _Progress]]:
    if file is None or str(file) == "-":
        if sys.stdin.isatty():
            note("One message a line; Ctrl-D ends.")
        yield sys.stdin.buffer, _Progress(None, 0)
        return
    with _opened(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        console = plain_console(sys.stderr)
        if not console.is_terminal:
            yield stream, _Progress(None, 0)
            return
        columns = (
            TextColumn("{task.fields[count]}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            yield stream, _Progress(bar, size)


def _opened(file: Path) -> BinaryIO:
    try:
        return file.open("rb")
    except OSError as error:
        raise CliError(f"{file}: {error.strerror or error}", exit_code=EXIT_USAGE) from error


class _Progress:
    """Counts bytes into a progress bar, if there is one."""

    def __init__(self, bar: Progress | None, size: int) -> None:
        self._bar = bar
        self._task = (
            bar.add_task("", total=size, count=count_text(0, "message"))
            if bar is not None
            else None
        )

    def __call__(self, size: int, count: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=size, count=count_text(count, "message"))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def register(app: typer.Typer) -> None:
    command(app, "produce")(produce)
