"""`goqueue-cli dlq`: what a group gave up: to look at, to try again, to forget."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

import typer

from cli.output import moments
from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column, Row, count_text
from cli.run.dry_runs import answering
from cli.run.options import command, confirm, pairs
from cli.run.session import Json, Session
from goqueue.errors import BadRequest
from goqueue.transport.http import join
from goqueue.wire.ids import MessageId

PAGE_MESSAGES_MAX = 100
JOB = re.compile(r"\d{1,18}", re.ASCII)

app = typer.Typer(
    help="Dead letters: what a group gave up, and why.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Topic = Annotated[str, typer.Argument(help="The topic.", show_default=False)]
Group = Annotated[str, typer.Option("--group", "-g", help="The group that gave the messages up.")]
Reason = Annotated[str | None, typer.Option("--reason", "-r", help="A part of the reason.")]
Key = Annotated[str | None, typer.Option("--key", "-k", help="Messages of this key.")]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="With this header; repeat."),
]
From = Annotated[
    str | None,
    moments.option("--from", help="Died at this time or later."),
]
To = Annotated[str | None, moments.option("--to", help="Died before this time.")]
Id = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="TOPIC:PARTITION:OFFSET", help="This one; repeat."),
]
Partition = Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Only this one.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count what would be done.")]

LETTER_COLUMNS = (
    Column("ID", "id", whole=True),
    Column("DIED", "died_at"),
    Column("ATTEMPTS", "attempts"),
    Column("REASON", "reason"),
    Column("KEY", "key"),
    Column("VALUE", "value"),
    Column("REDRIVES", "redrives", wide=True),
    Column("HEADERS", "headers", wide=True),
)
HISTORY_COLUMNS = (Column("TIME", "time"), Column("REASON", "reason"))
COUNT_COLUMNS = (Column("REASON", "reason"), Column("MESSAGES", "count"))
JOB_COLUMNS = (
    Column("JOB", "job"),
    Column("TOPIC", "topic"),
    Column("STATE", "state"),
    Column("MATCHED", "matched"),
    Column("MOVED", "moved"),
    Column("REFUSED", "refused"),
    Column("RATE", lambda row: f"{row['rate']:g}/s" if row.get("rate") else "full"),
    Column("CREATED", "created_at"),
    Column("ERROR", "error", wide=True),
)


@command(app, "list")
async def list_letters(
    session: Session,
    topic: Topic,
    group: Group,
    reason: Reason = None,
    key: Key = None,
    header: Header = None,
    from_time: From = None,
    to_time: To = None,
    id: Id = None,
    partition: Partition = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many.")] = 100,
) -> None:
    """List dead letters. Looking changes nothing."""
    chosen = _filter(reason, key, header, from_time, to_time, id, partition)
    count = 0
    async with session, aclosing(_letters(session, group, topic, chosen, limit)) as pages:
        async for rows in pages:
            count += len(rows)
            session.output.stream_rows(LETTER_COLUMNS, rows)
    if not count and session.output.is_table:
        session.output.line("No dead letters.")


@command(app, "peek")
async def peek(
    session: Session,
    topic: Topic,
    group: Group,
    reason: Reason = None,
    key: Key = None,
    header: Header = None,
    from_time: From = None,
    to_time: To = None,
    id: Id = None,
    partition: Partition = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many.")] = 1,
) -> None:
    """Show dead letters whole, with the reason of each attempt."""
    chosen = _filter(reason, key, header, from_time, to_time, id, partition)
    count = 0
    async with session, aclosing(_letters(session, group, topic, chosen, limit)) as pages:
        async for rows in pages:
            for row in rows:
                if count and session.output.is_table:
                    session.output.line()
                _show(session, row)
                count += 1
    if not count and session.output.is_table:
        session.output.line("No dead letters.")


@command(app, "counts")
async def counts(session: Session, topic: Topic, group: Group) -> None:
    """Count dead letters by reason."""
    async with session:
        answer = await session.get(join("groups", group, "dlq", "counts"), topic=topic)

    def show() -> None:
        rows = [{"reason": why, "count": count} for why, count in answer["by_reason"].items()]
        if rows:
            session.output.table(COUNT_COLUMNS, rows)
            session.output.line()
        session.output.line(count_text(int(answer["total"]), "dead letter"))

    session.output.detail(answer, show)


@command(app, "redrive")
async def redrive(
    session: Session,
    topic: Topic,
    group: Group,
    reason: Reason = None,
    key: Key = None,
    header: Header = None,
    from_time: From = None,
    to_time: To = None,
    id: Id = None,
    partition: Partition = None,
    rate: Annotated[
        float | None, typer.Option(min=0, help="At most this many a second (no limit).")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Include messages that died repeatedly.")
    ] = False,
    dry_run: DryRun = False,
) -> None:
    """Try dead letters again: their group receives them anew, and only this group does.

    Each keeps its id and its place. Answers at once; `dlq jobs` shows how far it is.
    """
    chosen = _filter(reason, key, header, from_time, to_time, id, partition)
    body = {"topic": topic, "filter": chosen, "dry_run": dry_run, "force": force}
    if rate:
        body["rate"] = rate
    path = join("groups", group, "dlq", "redrive")
    async with session:
        with answering(session, dry_run=dry_run):
            _redriving(session, topic, group, await session.request("POST", path, body=body))


def _redriving(session: Session, topic: str, group: str, answer: Json) -> None:
    matched = count_text(int(answer["matched"]), "dead letter")
    if answer.get("dry_run"):
        session.output.success(f"Would redrive {matched} of {topic} for group {group}", answer)
        return
    session.output.success(
        f"Redriving {matched} of {topic} for group {group} (job {answer['job']})", answer
    )


@command(app, "purge")
async def purge(
    session: Session,
    topic: Topic,
    group: Group,
    reason: Reason = None,
    key: Key = None,
    header: Header = None,
    from_time: From = None,
    to_time: To = None,
    id: Id = None,
    partition: Partition = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Forget dead letters for good. The messages stay in the topic as long as it keeps them."""
    chosen = _filter(reason, key, header, from_time, to_time, id, partition)
    path = join("groups", group, "dlq", "purge")
    body = {"topic": topic, "filter": chosen, "dry_run": True}
    async with session:
        if dry_run or not yes:
            answer = await session.request("POST", path, body=body)
            what = f"{count_text(int(answer['purged']), 'dead letter')} of {topic}, group {group}"
            if dry_run:
                session.output.success(f"Would purge {what}", answer)
                return
            confirm(session, f"Purge {what}?", yes=yes, needs=f"purging {what}")
        answer = await session.request("POST", path, body={**body, "dry_run": False})
    purged = count_text(int(answer["purged"]), "dead letter")
    session.output.success(f"Purged {purged} of {topic} for group {group}", answer)


@command(app, "jobs")
async def jobs(session: Session, group: Group) -> None:
    """List a group's redrives, running and past."""
    async with session:
        rows: list[Row] = (await session.get(join("groups", group, "dlq", "redrives")))["redrives"]
    session.output.rows(JOB_COLUMNS, rows, empty="No redrives.")


@command(app, "stop")
async def stop(
    session: Session,
    job: Annotated[str, typer.Argument(help="Its number, from `dlq jobs`.", show_default=False)],
    group: Group,
) -> None:
    """Stop a redrive: what was moved stays moved, the rest stays dead."""
    if not JOB.fullmatch(job):
        raise CliError(
            f"a redrive has a number, not {job!r}",
            hint=f"`goqueue-cli dlq jobs --group {group}` shows them",
            exit_code=EXIT_USAGE,
        )
    async with session:
        answer = await session.request("DELETE", join("groups", group, "dlq", "redrives", job))
    session.output.success(
        f"Redrive {job} is {answer['state']}: {answer['moved']} of {answer['matched']} moved",
        answer,
    )


async def _letters(
    session: Session, group: str, topic: str, chosen: Json, limit: int
) -> AsyncGenerator[list[Json], None]:
    """Dead letters a page at a time; headers and ids are looked at here."""
    query = {name: value for name, value in chosen.items() if name not in ("headers", "ids")}
    after: str | None = None
    while limit > 0:
        page = await session.get(
            join("groups", group, "dlq"),
            topic=topic,
            limit=PAGE_MESSAGES_MAX if len(query) < len(chosen) else min(limit, PAGE_MESSAGES_MAX),
            after=after,
            **query,
        )
        rows = [row for row in page["messages"] if _matches(row, chosen)][:limit]
        limit -= len(rows)
        if rows:
            yield rows
        after = page.get("next")
        if after is None:
            return


def _matches(row: Json, chosen: Json) -> bool:
    headers: dict[str, str] = row.get("headers") or {}
    if "ids" in chosen and row["id"] not in chosen["ids"]:
        return False
    return all(headers.get(name) == value for name, value in chosen.get("headers", {}).items())


def _show(session: Session, row: Json) -> None:
    def show() -> None:
        session.output.fields(
            [
                ("ID", row["id"]),
                ("Died", row["died_at"]),
                ("Reason", row["reason"]),
                ("Attempts", row["attempts"]),
                ("Redrives", row.get("redrives") or 0),
                ("Published", row.get("timestamp")),
                ("Key", row.get("key")),
                ("Headers", row.get("headers")),
                ("Value", row["value"]),
            ]
        )
        if row.get("history"):
            session.output.line()
            session.output.line("ATTEMPTS:", style="bold")
            session.output.table(HISTORY_COLUMNS, row["history"])

    session.output.detail(row, show)


def _filter(
    reason: str | None,
    key: str | None,
    header: list[str] | None,
    from_time: str | None,
    to_time: str | None,
    ids: list[str] | None,
    partition: int | None,
) -> Json:
    """The filter as it travels. Raises `CliError`."""
    if reason == "":
        raise CliError("--reason is empty", exit_code=EXIT_USAGE)
    try:
        for id in ids or []:
            MessageId.parse(id)
    except BadRequest as error:
        raise CliError(f"--id: {error.message}", exit_code=EXIT_USAGE) from None
    chosen = {
        "reason": reason,
        "key": key,
        "headers": {name: value.decode() for name, value in pairs("--header", header)} or None,
        "from_time": from_time,
        "to_time": to_time,
        "ids": ids or None,
        "partition": partition,
    }
    return {name: value for name, value in chosen.items() if value is not None}
