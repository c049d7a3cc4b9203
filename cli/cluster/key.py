"""`goqueue-cli key`: who may come in, for what, and until when."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.output.formats import Column
from cli.run.options import command, confirm, span
from cli.run.session import Json, Session
from goqueue.transport.http import join

app = typer.Typer(help="API keys: make, list, rotate and revoke them.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="The key's id.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", "--force", "-f", help="Don't ask.")]
COLUMNS = (
    Column("ID", "id"),
    Column("NAME", "name"),
    Column("ROLE", "role"),
    Column("TOPICS", lambda row: ",".join(map(_reach, row["prefixes"]))),
    Column("GROUPS", lambda row: ",".join(map(_reach, row["group_prefixes"])), wide=True),
    Column("STATE", "state"),
    Column("SECRETS", lambda row: str(len(row["secrets"]))),
    Column("EXPIRES", "expires_at"),
    Column("CREATED", "created_at", wide=True),
    Column("REVOKED", "revoked_at", wide=True),
)


@command(app, "create")
async def create(
    session: Session,
    role: Annotated[
        str, typer.Argument(help="admin, producer, consumer or readonly.", show_default=False)
    ],
    prefix: Annotated[
        list[str] | None,
        typer.Option(
            "--prefix",
            "-p",
            metavar="PREFIX",
            help="Topics and groups whose names begin so; repeat for more. * is all.",
            show_default=False,
        ),
    ] = None,
    group_prefix: Annotated[
        list[str] | None,
        typer.Option(
            "--group-prefix",
            metavar="PREFIX",
            help="Groups whose names begin so, where they differ from topics; repeat for more.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", help="Its id; made up unless given.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="What it is for.")] = None,
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", help="How long it lives, as 90d or 12h.")
    ] = None,
) -> None:
    """Make a key. Its secret is printed now and can't be asked for again.

    Piped, or with -o json, the field `key` is what to send.
    """
    body = {
        "role": role,
        "prefixes": prefix or [],
        **({"group_prefixes": group_prefix} if group_prefix else {}),
        "id": id or "",
        "name": name or "",
        "expires_in": None if expires_in is None else span("--expires-in", expires_in),
    }
    async with session:
        made = await session.request("POST", join("admin", "keys"), body=body)
    _show_secret(session, made, f"Made key {made['id']} ({made['role']})")


@command(app, "list")
async def list_keys(session: Session) -> None:
    """List keys, also those that are over. Nobody can list secrets."""
    async with session:
        found = await session.get(join("admin", "keys"))
    session.output.rows(COLUMNS, found["keys"], "no keys")


@command(app, "rotate")
async def rotate(
    session: Session,
    id: Id,
    grace: Annotated[
        str | None,
        typer.Option(help="How long the secrets before go on, as 1h; 0s ends them now. (1d)"),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="Where two live: which one goes on beside the new, newest or oldest."),
    ] = None,
) -> None:
    """Give a key another secret, which is printed now; the one before goes on for a while."""
    body = {
        "grace": None if grace is None else span("--grace", grace),
        "keep": keep or "",
    }
    async with session:
        made = await session.request("POST", join("admin", "keys", id, "rotate"), body=body)
    _show_secret(session, made, f"Rotated key {id}")
    for secret in made["secrets"]:
        if session.output.is_table and secret.get("expires_at"):
            session.output.line(f"The secret of {secret['created_at']} ends {secret['expires_at']}")


@command(app, "revoke")
async def revoke(session: Session, id: Id, yes: Yes = False) -> None:
    """End a key for good, on every node within a second."""
    async with session:
        confirm(session, f"Revoke key {id}?", yes=yes, needs=f"revoking key {id}")
        found = await session.request("DELETE", join("admin", "keys", id))
    session.output.success(f"Revoked key {id}", found)


def _show_secret(session: Session, made: Json, done: str) -> None:
    session.output.success(done, made)
    if session.output.is_table:
        session.output.line(made["key"])
        session.output.line("Keep it: it can't be shown again.")


def _reach(prefix: str) -> str:
    return prefix if prefix == "*" else f"{prefix}*"
