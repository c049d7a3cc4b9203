"""What every command takes, in front of the noun or behind the verb, and how a run ends.

`command(app, "list")` registers an async function as a command: it adds the global options to the
function's own, hands it a `Session`, runs it, and turns errors into messages and exit codes.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, NoReturn

import typer

from cli.output.errors import EXIT_INTERRUPTED, EXIT_USAGE, CliError, explain, print_report
from cli.output.formats import Format
from cli.output.terminal import shown
from cli.run.release import show_version
from cli.run.session import GlobalOptions, Session
from goqueue.errors import BadRequest
from goqueue.models.times import duration_text

PANEL = "Global options"
_RATE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?(?:([kmgt])(i)?)?b?(?:/s)?", re.IGNORECASE)


def _version(asked: bool) -> None:
    if asked:
        show_version("goqueue-cli")
        raise typer.Exit


ServerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--server",
        "-s",
        help="Server URL; several (repeat, or commas) are tried in turn. (env GOQUEUE_SERVER)",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        "-c",
        help="A context of the config file. (env GOQUEUE_CONTEXT)",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
OutputOption = Annotated[
    Format | None,
    typer.Option(
        "--output",
        "-o",
        "--format",
        help="How to print: table on a terminal, JSON lines in a pipe.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        help="Seconds to wait for an answer (30). (env GOQUEUE_TIMEOUT)",
        min=0.001,
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
CaFileOption = Annotated[
    str | None,
    typer.Option(
        "--ca-file",
        help="For https: trust the authorities in this PEM file. (env GOQUEUE_CA_FILE)",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
CertFileOption = Annotated[
    str | None,
    typer.Option(
        "--cert-file",
        help="For https: show this client certificate, PEM. (env GOQUEUE_CERT_FILE)",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
KeyFileOption = Annotated[
    str | None,
    typer.Option(
        "--key-file",
        help="Its key, where it is in a file of its own. (env GOQUEUE_KEY_FILE)",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
ApiKeyOption = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        help="API key; visible in `ps`, prefer GOQUEUE_API_KEY.",
        show_default=False,
        rich_help_panel=PANEL,
    ),
]
VersionOption = Annotated[
    bool,
    typer.Option(
        "--version", help="Show this client's version, and end.", callback=_version, is_eager=True
    ),
]
GLOBALS: dict[str, Any] = {
    "server": ServerOption,
    "context": ContextOption,
    "output": OutputOption,
    "timeout": TimeoutOption,
    "ca_file": CaFileOption,
    "cert_file": CertFileOption,
    "key_file": KeyFileOption,
    "api_key": ApiKeyOption,
}


def command(
    app: typer.Typer, name: str, **settings: Any
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Register an async function whose first parameter is the session as a command of `app`."""

    def register(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(function)
        def run(ctx: typer.Context, **arguments: Any) -> None:
            given = ctx.find_root().obj
            options = given if isinstance(given, GlobalOptions) else GlobalOptions()
            for key in GLOBALS:
                value = arguments.pop(key)
                if value is not None:
                    setattr(options, key, ",".join(value) if key == "server" else value)
            finish(lambda: asyncio.run(function(Session(options), **arguments)))

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters = [
            inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_ONLY, annotation=typer.Context),
            *(parameter.replace(kind=keyword) for parameter in own),
            *(
                inspect.Parameter(key, keyword, default=None, annotation=annotation)
                for key, annotation in GLOBALS.items()
            ),
        ]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        app.command(name, **settings)(run)
        return run

    return register


def pairs(option: str, given: list[str] | None) -> tuple[tuple[str, bytes], ...]:
    """NAME=VALUE options as they were given. Raises `CliError`."""
    found: list[tuple[str, bytes]] = []
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise CliError(f"{option} takes NAME=VALUE, not {pair!r}", exit_code=EXIT_USAGE)
        found.append((name, value.encode()))
    return tuple(found)


def span(option: str, text: str) -> str:
    """A duration option as it travels. Raises `CliError`."""
    try:
        return duration_text(text, option)
    except BadRequest as error:
        raise CliError(error.message, exit_code=EXIT_USAGE) from None


def byte_rate(option: str, text: str) -> int:
    """Bytes a second: `50MB`, `10MiB/s`, or a number. Raises `CliError`."""
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise CliError(
            f"{option}: {text[:40]!r} is not a rate such as 50MB or 10MiB", exit_code=EXIT_USAGE
        )
    unit = 1024 if found[3] else 1000
    power = " kmgt".index((found[2] or " ").lower())
    return round(float(found[1]) * float(unit) ** power)


def confirm(session: Session, question: str, *, yes: bool, needs: str) -> None:
    """Go on if a person says so, or `--yes` did. Raises `CliError` where nobody is there to ask."""
    if yes:
        return
    if not session.can_ask():
        raise CliError(f"{needs} needs --yes", exit_code=EXIT_USAGE)
    typer.confirm(shown(sys.stderr, question), abort=True, err=True)


def finish(work: Callable[[], None]) -> None:
    """Run `work` and end the command: with its error's exit code, or quietly when a pipe closed."""
    try:
        work()
    except BrokenPipeError:
        _discard_output()
        raise typer.Exit(0) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except ExceptionGroup as group:
        fail(_first(group))
    except Exception as error:  # noqa: BLE001 - the outermost frame of a command
        fail(error)


def fail(error: BaseException) -> NoReturn:
    """Print an error of operation and exit with its code; re-raise a programmer's error."""
    if isinstance(error, BrokenPipeError):
        _discard_output()
        raise typer.Exit(0) from None
    report = explain(error)
    if report is None:
        raise error
    print_report(report)
    raise typer.Exit(report.exit_code) from None


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _discard_output() -> None:
    """Point standard output at nothing, so that flushing at exit doesn't fail on the pipe."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
