"""A noun whose first word may be left out: `trace ID` is `trace show ID`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

_HELP = ("--help", "-h")


class DefaultGroup(TyperGroup):
    """Runs `default_command` where the first word names no verb.

    `--` in front says that what follows is no verb, whatever its name: `trace -- search`.
    """

    default_command = "show"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in _HELP:
            args = [self.default_command, *args]
        return super().parse_args(ctx, args)
