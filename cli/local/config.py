"""`goqueue-cli config`: the named clusters in the config file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import Column
from cli.run.context import Context, ContextFile
from cli.run.options import command
from cli.run.session import Session

app = typer.Typer(
    help="Contexts: named clusters in the config file.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
Name = Annotated[str, typer.Argument(help="A context's name.", show_default=False)]

CONTEXT_COLUMNS = (
    Column("CURRENT", lambda row: "*" if row["current"] else " "),
    Column("NAME", "name"),
    Column("SERVER", "server"),
    Column("TIMEOUT", "timeout", wide=True),
)


@command(app, "view")
async def view(session: Session) -> None:
    """Show the config file, keys hidden."""
    file = ContextFile.load()
    body = replace_keys(file).to_yaml()
    if session.output.is_table:
        session.output.line(f"# {file.path}" + ("" if file.path.exists() else " (not written yet)"))
        for name, context in replace_keys(file).contexts.items():
            mark = "* " if name == file.current else "  "
            session.output.line(f"{mark}{name}: {context.server}")
        return
    session.output.record(body)


@command(app, "get-contexts")
async def get_contexts(session: Session) -> None:
    """List the contexts; `*` marks the current one."""
    file = ContextFile.load()
    rows = [
        {"name": name, "current": name == file.current, **replace_key(context).to_yaml()}
        for name, context in file.contexts.items()
    ]
    session.output.rows(CONTEXT_COLUMNS, rows, empty="No contexts.")


@command(app, "use-context")
async def use_context(session: Session, name: Name) -> None:
    """Make a context the current one."""
    file = ContextFile.load()
    file.get(name)
    file.current = name
    file.save()
    session.output.success(f'Switched to context "{name}"', {"current-context": name})


@command(app, "set-context")
async def set_context(
    session: Session,
    name: Name,
    archive: Annotated[
        str | None, typer.Option(help="Where the cluster's archive is, as s3://bucket/folder.")
    ] = None,
) -> None:
    """Create or change a context: --server URL, --timeout SECONDS, --api-key KEY, --ca-file PEM."""
    file = ContextFile.load()
    context = file.contexts.get(name, Context())
    server = session.given.server
    if name not in file.contexts and server is None:
        raise CliError(
            "a new context needs --server URL", exit_code=EXIT_USAGE, hint="-s http://host:8080"
        )
    if server is not None:
        context = replace(context, server=server)
    if session.given.api_key is not None:
        context = replace(context, api_key=session.given.api_key)
    if session.given.timeout is not None:
        context = replace(context, timeout_s=session.given.timeout)
    given = session.given
    context = replace(
        context,
        ca_file=_absolute(given.ca_file) or context.ca_file,
        cert_file=_absolute(given.cert_file) or context.cert_file,
        key_file=_absolute(given.key_file) or context.key_file,
        archive=context.archive if archive is None else archive,
    )
    file.contexts[name] = context
    file.save()
    session.output.success(
        f'Context "{name}" set', {"name": name, **replace_key(context).to_yaml()}
    )


@command(app, "delete-context")
async def delete_context(session: Session, name: Name) -> None:
    """Remove a context from the file."""
    file = ContextFile.load()
    file.get(name)
    del file.contexts[name]
    if file.current == name:
        file.current = ""
    file.save()
    session.output.success(f'Context "{name}" deleted', {"deleted": name})


def _absolute(path: str | None) -> str:
    return str(Path(path).absolute()) if path else ""


def replace_key(context: Context) -> Context:
    """The context with its key hidden."""
    return replace(context, api_key="***") if context.api_key else context


def replace_keys(file: ContextFile) -> ContextFile:
    hidden = {name: replace_key(context) for name, context in file.contexts.items()}
    return ContextFile(file.path, file.current, hidden)
