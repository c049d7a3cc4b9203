"""`goqueue-cli version`: what is installed here, and what answers there."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import typer

from cli.options import command
from cli.session import Session
from goqueue.errors import ConnectionFailed

DISTRIBUTION = "goqueue-server"


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


def client_version() -> str:
    try:
        return installed_version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def register(app: typer.Typer) -> None:
    command(app, "version")(version)
