"""`goqueue-pipeline`: the pipeline's jobs as commands, each imported when it is asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module

import typer

COMMANDS: dict[str, str] = {
    "executor": ".executor",
    "archive": ".archive.verbs",
    "compact": ".archive.verbs",
    "verify": ".archive.verbs",
    "restore": ".restore.verbs",
    "report": ".analytics.report",
}
"""In the order of the help: verb -> the module of this package whose `register(app)` adds it."""

app = typer.Typer(
    name="goqueue-pipeline",
    help="Archive, verify, restore and report on a GoQueue cluster, with Spark.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


@cache
def commands() -> typer.Typer:
    """All of them, ready to be called."""
    for module in dict.fromkeys(COMMANDS.values()):
        import_module(module, __package__).register(app)
    return app


def main() -> None:
    """The entry point `goqueue-pipeline`."""
    commands()(prog_name="goqueue-pipeline")


if __name__ == "__main__":
    main()
