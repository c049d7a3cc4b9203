"""The command line's nouns and verbs, each imported when it is asked for: a run pays for one."""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from cli.output.terminal import shown

MODULES = {
    "produce": ".produce.command",
    "consume": ".consume.command",
    "tail": ".consume.tail",
    "ack": ".consume.settle",
    "nack": ".consume.settle",
    "reject": ".consume.settle",
    "extend": ".consume.settle",
    "worker": ".worker.command",
    "dev": ".local.dev",
    "serve": ".serve",
    "version": ".local.version",
    "local": ".directory.command",
    "topic": ".topics.command",
    "group": ".groups.command",
    "dlq": ".groups.dlq",
    "delayed": ".produce.delayed",
    "schedule": ".produce.schedule",
    "trace": ".trace.command",
    "cluster": ".cluster.command",
    "key": ".cluster.key",
    "audit": ".cluster.audit",
    "config": ".local.config",
    "generate": ".local.generate",
}
"""In the order of the help: name -> the module of this package that brings it. A noun's module has
`app`, a verb's `register(app)`."""
_UsageError: Any = typer.BadParameter.__mro__[1]
"""Click's, whether typer brings its own Click or takes an installed one."""


class Nouns(TyperGroup):
    """A group whose commands are those of `MODULES`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Commands()

    def make_context(self, *given: Any, **settings: Any) -> Any:
        with _visible_errors():
            return super().make_context(*given, **settings)

    def invoke(self, ctx: Any) -> Any:
        with _visible_errors():
            return super().invoke(ctx)


class Commands(MutableMapping[str, Any]):
    """All are listed; one is imported and made when it is looked up for the first time."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made |= _commands(name, MODULES[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError(f"{name} is not in MODULES")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name} is there for good")

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)

    def __contains__(self, name: object) -> bool:
        return name in MODULES


@contextmanager
def _visible_errors() -> Iterator[None]:
    """What is wrong with a command line may repeat words of it: a terminal gets them visible.
    Which kind of Python's errors typer took it for is of no use to who typed it."""
    try:
        yield
    except _UsageError as error:
        error.message = shown(sys.stderr, error.message.removeprefix("Value error, "))
        raise


def _commands(name: str, module: str) -> MutableMapping[str, Any]:
    """What the module of that name brings."""
    found = import_module(module, __package__)
    alone = typer.Typer(rich_markup_mode="markdown")
    if hasattr(found, "app"):
        alone.add_typer(found.app, name=name)
    else:
        found.register(alone)
    return typer.main.get_group(alone).commands
