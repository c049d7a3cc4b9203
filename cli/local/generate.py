"""`goqueue-cli generate`: Grafana dashboards and Prometheus rules, of which deploy/ has a copy.

Asks no node: what is made depends on this version alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.output.errors import EXIT_ERROR, EXIT_USAGE, CliError
from cli.output.terminal import note, write
from cli.run.options import finish
from monitoring.alerts import catalogue as alerts
from monitoring.alerts.rules import resource, rules
from monitoring.dashboards import catalogue as dashboards
from monitoring.dashboards.grafana import rendered

RUNBOOKS = "docs/operations/runbooks"
"""Where they are in the repository; a site of your own is better: links need it."""

app = typer.Typer(
    help="Dashboards and alert rules for this version.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


class RulesFormat(StrEnum):
    """What `--format` takes."""

    rules = "rules"
    operator = "operator"


Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write files into this directory.", show_default=False),
]
Runbooks = Annotated[str, typer.Option("--runbooks", help="Base URL of the runbooks, for links.")]


@app.command("grafana")
def grafana(
    dashboard: Annotated[
        str | None,
        typer.Option(
            "--dashboard",
            "-d",
            help=f"Only this one: {', '.join(dashboards.BY_NAME)}.",
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    runbooks: Runbooks = RUNBOOKS,
) -> None:
    """Print the Grafana dashboards as JSON, or write a file of each."""
    finish(lambda: _grafana(dashboard, output, runbooks.rstrip("/")))


@app.command("prometheus-rules")
def prometheus_rules(
    format: Annotated[
        RulesFormat,
        typer.Option("--format", help="Files for Prometheus, or a PrometheusRule of its operator."),
    ] = RulesFormat.rules,
    output: Output = None,
    runbooks: Runbooks = RUNBOOKS,
) -> None:
    """Print the recording and alert rules as YAML, or write them into files."""
    finish(lambda: _rules(format, output, runbooks.rstrip("/")))


def _grafana(name: str | None, output: Path | None, runbooks: str) -> None:
    if name is not None and name not in dashboards.BY_NAME:
        known = ", ".join(dashboards.BY_NAME)
        raise CliError(f"no dashboard {name!r}; there are: {known}", exit_code=EXIT_USAGE)
    chosen = dashboards.DASHBOARDS if name is None else (dashboards.BY_NAME[name],)
    if output is not None:
        _write(output, {dashboards.file_name(d): dashboards.text_of(d, runbooks) for d in chosen})
    elif name is not None:
        write(sys.stdout, dashboards.text_of(chosen[0], runbooks))
    else:
        found = [rendered(one, dashboards.DASHBOARDS, runbooks) for one in chosen]
        write(sys.stdout, json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def _rules(format: RulesFormat, output: Path | None, runbooks: str) -> None:
    if format is RulesFormat.operator:
        texts = {alerts.RESOURCE_FILE: resource(alerts.GROUPS, runbooks)}
    elif output is None:
        texts = {"": rules(alerts.GROUPS, runbooks)}
    else:
        texts = {name: rules(groups, runbooks) for name, groups in alerts.FILES.items()}
    if output is not None:
        _write(output, texts)
    else:
        write(sys.stdout, "".join(texts.values()))


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
            note(f"wrote {folder / name}")
    except OSError as error:
        raise CliError(f"{folder}: {error.strerror}", exit_code=EXIT_ERROR) from None
