"""`goqueue-cli group`: consumer groups, their members, and where they stand."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from cli.groups import describe as group_describe
from cli.groups import keys as group_keys
from cli.groups import positions as group_positions
from cli.groups import rebalances as group_rebalances
from cli.groups import settings as group_settings
from cli.groups.columns import GROUP_COLUMNS
from cli.output.formats import Row, count_text
from cli.run.options import command, confirm
from cli.run.session import Json, Session
from goqueue.errors import GoQueueError
from goqueue.transport.http import join

LAGS_AT_ONCE_MAX = 16

app = typer.Typer(
    help="Groups: each takes every message of its topics once.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

Name = Annotated[str, typer.Argument(help="The group's name.", show_default=False)]


@command(app, "list")
async def list_groups(
    session: Session,
    unowned: Annotated[
        bool, typer.Option("--unowned", help="Only groups that belong to nobody: see `assign`.")
    ] = False,
) -> None:
    """List the groups, how far behind each is, and who works on it; `-o wide` adds settings."""
    async with session:
        only = "true" if unowned else None
        groups: list[Json] = (await session.get("/v1/groups", unowned=only))["details"]
        rows = await _with_lag(session, groups)
    session.output.rows(GROUP_COLUMNS, rows, empty="No groups.")


async def _with_lag(session: Session, groups: list[Json]) -> list[Row]:
    """A group that can't tell now has no lag, as one that was just deleted."""
    gate = asyncio.Semaphore(LAGS_AT_ONCE_MAX)

    async def one(group: Json) -> Row:
        async with gate:
            try:
                lag = await session.get(join("groups", group["name"], "lag"))
            except GoQueueError:
                return {**group, "total_lag": None, "max_lag_seconds": None}
        return {
            **group,
            "total_lag": lag["total_lag"],
            "max_lag_seconds": lag["max_lag_seconds"],
        }

    return list(await asyncio.gather(*map(one, groups)))


group_describe.register(app)
group_positions.register(app)
group_rebalances.register(app)
group_settings.register(app)


@command(app, "delete")
async def delete(
    session: Session,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Don't ask, even if it has members.")
    ] = False,
) -> None:
    """Delete a group: how far it was, and its dead letters. The messages stay in their topics."""
    async with session:
        if not (yes or force):
            group = await session.get(join("groups", name))
            partitions: list[Json] = group["partitions"]
            lag, dead = (sum(int(one[field]) for one in partitions) for field in ("lag", "dead"))
            what = f"group {name} with {count_text(lag, 'open message')} and {dead} dead"
            confirm(session, f"Delete {what}?", yes=yes, needs=f"deleting {what}")
        query = {"force": "true"} if force else None
        answer = await session.request("DELETE", join("groups", name), query=query)
    session.output.success(f"Deleted group {name}", answer)


@command(app, "assign")
async def assign(
    session: Session,
    name: Name,
    owner: Annotated[
        str,
        typer.Option(
            metavar="PREFIX",
            help="Group prefix of the API keys that own it; *: only keys of all groups.",
            show_default=False,
        ),
    ],
) -> None:
    """Say whose a group is. Then keys with other prefixes reach it no longer, whatever its topics.

    For admins of every topic. Groups have owners since feature level 2: those that are older belong
    to nobody, and are reached by whoever reaches their topics.
    """
    async with session:
        answer = await session.request("PUT", join("groups", name, "owner"), body={"owner": owner})
    session.output.success(f"Group {name} belongs to {answer['owner']}", answer)


group_keys.register(app)
