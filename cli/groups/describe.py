"""`goqueue-cli group describe` and `members`: a group whole, once or as it changes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cli.groups.columns import MEMBER_COLUMNS, PARKED_COLUMNS, PARTITION_COLUMNS
from cli.groups.keys import parked_rows
from cli.output.errors import explain
from cli.output.formats import Column, Row, age_text, count_text, now_text
from cli.output.stale import STALE, warn_of_stale
from cli.output.terminal import note
from cli.run.options import command
from cli.run.session import Json, Session
from goqueue.errors import GoQueueError
from goqueue.transport.http import join

WATCH_S = "2"
WATCH_S_MIN = 0.01

Name = Annotated[str, typer.Argument(help="The group's name.", show_default=False)]
OneTopic = Annotated[str | None, typer.Option("--topic", "-t", help="Only this topic.")]
Watch = Annotated[
    float | None,
    typer.Option(
        "--watch",
        "-w",
        min=WATCH_S_MIN,
        metavar="[SECONDS]",
        help=f"Refresh every {WATCH_S} seconds, or as often as SECONDS says.",
    ),
]


class WatchCommand(TyperCommand):
    """Takes --watch with or without a number behind it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_seconds(args))


def with_seconds(args: list[str]) -> list[str]:
    """The words of a command line, with a number behind --watch also where none was given."""
    words: list[str] = []
    for word, following in zip(args, [*args[1:], ""], strict=True):
        words.append(word)
        if word in ("--watch", "-w") and not _is_number(following):
            words.append(WATCH_S)
    return words


async def describe(
    session: Session, name: Name, topic: OneTopic = None, watch: Watch = None
) -> None:
    """Show a group: its members and their partitions, its settings, and how far it is in each
    partition.

    With --watch, until Ctrl-C: redrawn on a terminal, a line each time where there is none.
    """
    async with session:
        if watch is not None:
            await _watch(session, name, topic, watch)
        else:
            group = await _described(session, name, topic)
            if group.get("stale"):
                warn_of_stale([f"group {name}"])
            session.output.detail(group, lambda: _show(session, group))


async def members(session: Session, name: Name) -> None:
    """List a group's members, and which partitions each has."""
    async with session:
        rows: list[Row] = (await session.get(join("groups", name, "members")))["members"]
    session.output.rows(MEMBER_COLUMNS, rows, empty="No members.")


async def _described(session: Session, name: str, topic: str | None) -> Json:
    """The group with what its lag tells of each partition, in one record."""
    group, lag = await asyncio.gather(
        session.get(join("groups", name), topic=topic),
        session.get(join("groups", name, "lag"), topic=topic),
    )
    partitions = {_place(one): one for one in lag["partitions"]}
    for one in group["partitions"]:
        partitions[_place(one)] = {**one, **partitions.get(_place(one), {})}
    group["partitions"] = [partitions[place] for place in sorted(partitions)]
    group["total_lag"] = lag["total_lag"]
    group["max_lag_seconds"] = lag["max_lag_seconds"]
    return group


def _show(session: Session, group: Json, *, is_watched: bool = False) -> None:
    """Without the settings where it is watched: a screen has only so many lines."""
    output = session.output
    named = {} if is_watched else group["settings"]
    settings = [(key.replace("_", " ").title(), value) for key, value in named.items()]
    output.fields(
        [
            ("Group", group["name"]),
            ("State", group["state"]),
            ("Generation", group["generation"]),
            ("Topics", group["topics"]),
            ("Lag", _lag_text(group)),
            ("Owner", group.get("owner") or "nobody"),
            ("Created", group["created_at"]),
            *settings,
        ]
    )
    parts: list[tuple[str, tuple[Column, ...], list[Json]]] = [
        ("MEMBERS:", MEMBER_COLUMNS, group["members"]),
        ("PARTITIONS:", PARTITION_COLUMNS, group["partitions"]),
        ("PARKED KEYS:", PARKED_COLUMNS, parked_rows(group["partitions"])),
    ]
    for title, columns, rows in parts:
        if rows:
            output.line()
            output.line(title, style="bold")
            output.table(columns, rows)


def _lag_text(group: Json) -> str:
    lag = count_text(int(group["total_lag"]), "message")
    return f"{lag}, {age_text(group['max_lag_seconds'] * 1000)} behind"


async def _watch(session: Session, name: str, topic: str | None, interval_s: float) -> None:
    """Until the group is gone; an outage is told, and waited out."""
    output = session.output
    while True:
        try:
            group = await _described(session, name, topic)
        except GoQueueError as error:
            if not error.retriable:
                raise
            report = explain(error)
            note(f"{report.message if report else error}; trying again")
        else:
            if not output.is_table:
                output.record_line({"time": now_text(), **group})
            elif output.is_terminal:
                output.clear()
                output.line(f"{now_text()}, again every {interval_s:g}s; Ctrl-C ends.\n")
                _show(session, group, is_watched=True)
            else:
                output.line(f"{now_text()}  {_summary(group)}")
        await asyncio.sleep(interval_s)


def _summary(group: Json) -> str:
    """The group on one line."""
    behind = age_text(group["max_lag_seconds"] * 1000)
    dead = sum(int(one["dead"]) for one in group["partitions"])
    stale = STALE if group.get("stale") else ""
    return (
        f"{group['state']}  generation={group['generation']}  members={len(group['members'])}  "
        f"lag={group['total_lag']}  behind={behind}  dead={dead}{stale}"
    )


def _place(one: Json) -> tuple[str, int]:
    return one["topic"], int(one["partition"])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def register(app: typer.Typer) -> None:
    command(app, "describe", cls=WatchCommand)(describe)
    command(app, "members")(members)
