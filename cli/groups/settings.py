"""`goqueue-cli group create` and `set`: how a group works."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.formats import cell_text
from cli.run.options import command
from cli.run.session import Json, Session
from goqueue.errors import UnknownGroup
from goqueue.transport.http import join

Name = Annotated[str, typer.Argument(help="The group's name.", show_default=False)]
Work = Callable[..., Coroutine[Any, Any, None]]

OPTIONS: dict[str, Any] = {
    "mode": Annotated[
        str | None,
        typer.Option(help="exclusive: one member a partition; shared: all (exclusive)."),
    ],
    "assignor": Annotated[
        str | None, typer.Option(help="Assignment: sticky, range or roundrobin (sticky).")
    ],
    "session_timeout": Annotated[
        str | None, typer.Option(help="Remove a member after this silence (30s).")
    ],
    "rebalance_timeout": Annotated[
        str | None, typer.Option(help="How long a member may take to let go (1m).")
    ],
    "visibility": Annotated[
        str | None, typer.Option(help="How long a lease lasts, such as 30s (30s).")
    ],
    "max_attempts": Annotated[
        int | None,
        typer.Option(min=0, help="Failed attempts until a message is dead; 0: never (3)."),
    ],
    "ordering": Annotated[
        str | None,
        typer.Option(help="key: each key's messages one after another (none)."),
    ],
    "start": Annotated[
        str | None, typer.Option(help="earliest or latest, in a new topic (earliest).")
    ],
    "backoff": Annotated[
        str | None, typer.Option(help="Wait before the first retry; doubles each time (0s).")
    ],
    "backoff_max": Annotated[str | None, typer.Option(help="The longest such wait (1m).")],
    "on_poison": Annotated[
        str | None,
        typer.Option(help="What fails too often: dead, or park: its key waits (dead)."),
    ],
    "lane_max_wait": Annotated[
        str | None, typer.Option(help="Low lanes get a share after this wait (30s).")
    ],
    "lane_share": Annotated[
        int | None,
        typer.Option(min=2, max=100, help="That share: one in this many deliveries (5)."),
    ],
    "halt_percent": Annotated[
        int | None,
        typer.Option(min=0, max=100, help="Halt when this percentage dies; 0: never (0)."),
    ],
    "halt_window": Annotated[
        int | None, typer.Option(min=1, max=1000, help="Percentage of this many messages (100).")
    ],
    "redrives_max": Annotated[
        int | None,
        typer.Option(min=0, max=1000, help="Do not redrive what died this often (5)."),
    ],
    "in_flight_max": Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Most messages in flight per partition (10000)."),
    ],
    "dead_max": Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, help="Most dead letters per partition; then it halts (100000)."
        ),
    ],
}
"""The settings' options; each has the setting's name, but for `visibility`."""
_RENAMED = {"visibility": "visibility_timeout"}


def takes_settings(function: Work) -> Work:
    """Gives a command that takes `**given` an option for every setting."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[:-1]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in OPTIONS.items()
    ]
    function.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
    return function


@takes_settings
async def create(session: Session, name: Name, **given: object) -> None:
    """Create a group. A first `consume --group` does so too, with the defaults in brackets."""
    settings = _settings(given)
    async with session:
        try:
            await session.get(join("groups", name))
        except UnknownGroup:
            answer = await session.request("PUT", join("groups", name), body=settings)
        else:
            raise CliError(
                f"group already exists: {name}", hint=f"`goqueue-cli group set {name}` changes it"
            )
    session.output.success(f"Created group {name}", answer)


@takes_settings
async def set_group(session: Session, name: Name, **given: object) -> None:
    """Change a group's settings; what isn't named stays."""
    settings = _settings(given)
    if not settings:
        raise CliError("nothing to change was named", hint="see --help", exit_code=EXIT_USAGE)
    async with session:
        answer = await session.request("PATCH", join("groups", name), body=settings)
    text = ", ".join(f"{key}={cell_text(answer['settings'].get(key))}" for key in settings)
    session.output.success(f"Changed group {name}: {text}", answer)


def _settings(given: dict[str, object]) -> Json:
    return {_RENAMED.get(key, key): value for key, value in given.items() if value is not None}


def register(app: typer.Typer) -> None:
    command(app, "create")(create)
    command(app, "set")(set_group)
