"""`goqueue-pipeline report`: the figures of a topic as tables and as a page, from a cluster or from
its archive."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goqueue.errors import BadRequest, GoQueueError
from goqueue.models.times import duration_ms, moment_ms
from pipeline.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.analytics.analysis import Goals, Table
    from pipeline.analytics.inputs import Wanted


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("report")(report)


def report(
    topic: Annotated[str, typer.Option(help="The topic that the report is of.")],
    output: Annotated[
        str, typer.Option(help="Folder or URL for report.html and tables/; files are replaced.")
    ],
    servers: Annotated[
        str | None, typer.Option(help="Addresses of nodes, comma-separated; else GOQUEUE_SERVER.")
    ] = None,
    archive: Annotated[
        str | None, typer.Option(help="Read this archive (path or URL), not the cluster.")
    ] = None,
    group: Annotated[str | None, typer.Option(help="Only this group; else all.")] = None,
    from_time: Annotated[
        str | None, typer.Option(help="Messages from this time on: ISO 8601, or Unix ms.")
    ] = None,
    to_time: Annotated[str | None, typer.Option(help="Messages before this time.")] = None,
    lag_objective: Annotated[
        str, typer.Option(help="The age that a group's oldest message may come to.")
    ] = "60s",
    lag_target: Annotated[
        float, typer.Option(help="For how much of the time that is to hold: above 0, below 1.")
    ] = 0.99,
    top_keys: Annotated[int, typer.Option(min=1, max=1000, help="Hot keys listed.")] = 20,
    api_key_file: Annotated[
        Path | None, typer.Option(help="Its content is the API key; else GOQUEUE_API_KEY.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="The authorities to trust over https; else GOQUEUE_CA_FILE.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark's master; else spark-submit's, or local[*].")
    ] = None,
) -> None:
    """Compute a topic's figures, and write them as tables and as one HTML page."""
    from pipeline.analytics.analysis import Goals
    from pipeline.analytics.inputs import Wanted
    from pipeline.failures import spark_failing
    from pipeline.session import JAVA_MISSING, has_java, session

    steps = Steps()
    try:
        if archive is not None and servers is not None:
            raise OptionError("archive: give it or servers, not both")
        if not 0 < lag_target < 1:
            raise OptionError(f"lag-target: {lag_target} is not between 0 and 1")
        goals = Goals(duration_ms(lag_objective, "lag-objective"), lag_target, top_keys)
        from_ms = None if from_time is None else moment_ms(from_time, "from-time")
        to_ms = None if to_time is None else moment_ms(to_time, "to-time")
        if from_ms is not None and to_ms is not None and from_ms >= to_ms:
            raise OptionError("to-time: it is not after from-time")
        access = {"servers": servers, "apiKeyFile": api_key_file, "caFile": ca_file}
        options = {name: str(value) for name, value in access.items() if value is not None}
        if not has_java():
            raise OptionError(JAVA_MISSING)
        steps.told("Spark")
        spark = session(f"goqueue-report-{topic}", master=master)
        spark.sparkContext.setLogLevel("ERROR")
        wanted, told = Wanted(topic, group, from_ms, to_ms), steps.told
        with spark_failing():
            make_report(spark, wanted, goals, output, archive=archive, options=options, told=told)
    except (GoQueueError, OptionError, OSError) as error:
        steps.end()
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, OptionError | BadRequest) else 1) from None
    steps.end()
    typer.echo(f"{output}: report.html and tables/, in {steps.seconds:.1f} s")


def make_report(
    spark: SparkSession,
    wanted: Wanted,
    goals: Goals,
    output: str,
    *,
    archive: str | None = None,
    options: Mapping[str, str] | None = None,
    told: Callable[[str], None] = lambda step: None,
) -> dict[str, Table]:
    """The tables, written to `output` with the page. From the archive if one is given, else from
    the cluster that `options` lead to. Raises GoQueueError, OptionError, OSError."""
    from pipeline.analytics.analysis import analyse, forget
    from pipeline.analytics.files import folder_of, write_report
    from pipeline.analytics.inputs import archived, live
    from pipeline.analytics.page import About, page

    told("what there is")
    found = archived(spark, archive, wanted) if archive else live(spark, options or {}, wanted)
    try:
        tables = analyse(spark, found.inputs, goals, told)
    finally:
        forget(spark)
    summary = tables["summary"].rows.to_pylist()[0]
    told("report.html")
    about = About(
        wanted.topic, wanted.group, found.source, _window(summary), datetime.now(UTC), found.notes
    )
    write_report(folder_of(spark, output), tables, page(tables, about, goals))
    return tables


@dataclass(slots=True)
class Steps:
    """Progress on standard error: a line for each step, on a terminal one that changes."""

    began: float = field(default_factory=time.monotonic)
    count: int = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def told(self, step: str) -> None:
        """The next step begins."""
        self.count += 1
        if sys.stderr.isatty():
            typer.echo(f"\r\033[K{self.seconds:5.1f} s  {step}", nl=False, err=True)
        else:
            typer.echo(f"{self.seconds:.1f} s: {step}", err=True)

    def end(self) -> None:
        if sys.stderr.isatty() and self.count:
            typer.echo("\r\033[K", nl=False, err=True)


def _window(summary: Mapping[str, Any]) -> str:
    first, last = summary["first_at"], summary["last_at"]
    if first is None:
        return "nothing in it"
    return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC"
