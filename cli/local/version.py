"""`goqueue-cli version`: what is installed here, and what answers there."""

from __future__ import annotations

import typer

from cli.run.options import command
from cli.run.release import client_version
from cli.run.session import Session
from goqueue.errors import ConnectionFailed


async def version(session: Session) -> None:
    """Show this client's version, and the server's when one answers."""
    client = client_version()
    server: str | None = None
    async with session:
        try:
            server = str((await session.get("/v1/version"))["version"])
        except ConnectionFailed:
            server = None

    def show() -> None:
        session.output.line(f"Client Version: {client}")
        session.output.line(f"Server Version: {server or '- (no server answers)'}")

    session.output.detail({"client_version": client, "server_version": server}, show)


def register(app: typer.Typer) -> None:
    command(app, "version")(version)
