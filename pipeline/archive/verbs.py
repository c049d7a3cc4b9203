"""`goqueue-pipeline archive`, `compact` and `verify`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from goqueue.archive.layout import Kind
from goqueue.errors import GoQueueError
from pipeline.broker_access import Access
from pipeline.options import OptionError, Options

if TYPE_CHECKING:
    from pipeline.archive.plan import Bounds
    from pipeline.archive.run import Run

Destination = Annotated[
    str,
    typer.Option(
        "--destination",
        "--archive",
        help="Where the archive is: any Hadoop filesystem, such as s3a://bucket/archive, or a"
        " folder.",
        envvar="GOQUEUE_ARCHIVE",
    ),
]
Topic = Annotated[
    list[str] | None,
    typer.Option(help="A topic, or a pattern with * and ?; may be repeated. None: all."),
]
KindOption = Annotated[
    str, typer.Option("--kind", help="messages, events, or both with a comma between.")
]
Servers = Annotated[str | None, typer.Option(help="Nodes, comma-separated; else GOQUEUE_SERVER.")]
KeyFile = Annotated[
    str | None, typer.Option(help="A file that holds the API key; else GOQUEUE_API_KEY.")
]
CaFile = Annotated[
    str | None, typer.Option(help="The authorities to trust over https; else GOQUEUE_CA_FILE.")
]
Master = Annotated[
    str | None, typer.Option(help="Spark's master; else that of spark-submit, or local[*].")
]
Grace = Annotated[
    str,
    typer.Option(help="How old files that no manifest names have to be before they are removed."),
]


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command("archive")(archive)
    app.command("compact")(compact)
    app.command("verify")(verify)


def archive(
    destination: Destination,
    topic: Topic = None,
    kind: KindOption = "messages,events",
    servers: Servers = None,
    api_key_file: KeyFile = None,
    ca_file: CaFile = None,
    master: Master = None,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous/--available-now",
            help="Go on for ever, or end with what is committed when the run begins.",
        ),
    ] = False,
    interval: Annotated[
        str, typer.Option(help="With --continuous: from the beginning of a round to the next.")
    ] = "60s",
    rows_per_file: Annotated[int, typer.Option(min=1, help="At most.")] = 1_000_000,
    mib_per_file: Annotated[
        int, typer.Option(min=1, help="Of messages as the log has them; files are smaller.")
    ] = 128,
    bytes_per_second: Annotated[
        int | None, typer.Option(min=1, help="How fast each task reads; none: as fast as it can.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="The brokers wait for this archive from now on, in place of another one.",
        ),
    ] = False,
    grace: Grace = "6h",
) -> None:
    """Archive what the brokers have and the archive lacks."""
    from pipeline.archive.plan import Bounds
    from pipeline.archive.topics import Stop, archive_topics
    from pipeline.broker import Broker
    from pipeline.source.reading import Pace

    with failing():
        kinds = _kinds(kind)
        access = _access(servers, api_key_file, ca_file)
        every_s = Options({"interval": interval}).span_s("interval", 60.0)
        grace_s = _grace_s(grace)
        bounds = Bounds(rows_per_file, mib_per_file << 20)
    failed = False
    with _running(destination, master, grace_s, bounds) as run, Broker(access) as broker:
        stop = Stop()
        if continuous:
            stop.listen()
        for _ in stop.rounds(every_s):
            with failing() if not continuous else told():
                total, failures = archive_topics(
                    run, broker, topic or [], kinds, Pace(bytes_per_second), replace=replace
                )
                failed = bool(failures)
                if not continuous or total.files:
                    run.say(
                        f"archived {total.rows:,} rows in {total.files} files,"
                        f" {total.bytes / 2**20:.1f} MiB"
                    )
                for failure in failures:
                    typer.echo(f"error: {failure.topic}: {failure.text}", err=True)
            if not continuous:
                break
    if failed:
        raise typer.Exit(1)


def compact(
    destination: Destination,
    topic: Topic = None,
    kind: KindOption = "messages,events",
    master: Master = None,
    rows_per_file: Annotated[int, typer.Option(min=1, help="At most.")] = 10_000_000,
    mib_per_file: Annotated[int, typer.Option(min=1, help="At most, as Parquet.")] = 128,
    grace: Grace = "6h",
) -> None:
    """Make few files of many small ones, with the same rows."""
    from pipeline.archive.compaction import compact as compact_series
    from pipeline.archive.plan import Bounds
    from pipeline.archive.sweep import sweep
    from pipeline.archive.topics import archived

    with failing():
        kinds, grace_s = _kinds(kind), _grace_s(grace)
    bounds = Bounds(rows_per_file, mib_per_file << 20)
    with _running(destination, master, grace_s, bounds) as run, failing():
        before = after = 0
        for series in archived(run.store, topic or [], kinds):
            sweep(run, series)
            done = compact_series(run, series)
            before, after = before + done.before, after + done.after
        run.say(f"{before} files have become {after}")


def verify(
    destination: Destination,
    topic: Topic = None,
    kind: KindOption = "messages,events",
    servers: Servers = None,
    api_key_file: KeyFile = None,
    ca_file: CaFile = None,
    master: Master = None,
    against_brokers: Annotated[
        bool,
        typer.Option(
            "--brokers/--no-brokers", help="Compare with the brokers, or files by themselves only."
        ),
    ] = True,
    bytes_per_second: Annotated[
        int | None, typer.Option(min=1, help="How fast each task reads; none: as fast as it can.")
    ] = None,
) -> None:
    """Compare the archive with its manifests and with the brokers; exit code 1 for a difference."""
    from pipeline.archive.topics import archived, feed_of_series
    from pipeline.archive.verification import verify as verify_series
    from pipeline.broker import Broker
    from pipeline.source.reading import Pace

    with failing():
        kinds = _kinds(kind)
        access = _access(servers, api_key_file, ca_file)
    problems = 0
    with _running(destination, master, 0.0) as run, Broker(access) as broker, failing():
        for series in archived(run.store, topic or [], kinds):
            pace = Pace(bytes_per_second)
            feed = feed_of_series(broker, series, pace) if against_brokers else None
            found = verify_series(run, series, feed)
            if feed is None and against_brokers:
                found.notes.append("the brokers do not have this topic any more")
            for line in found.tell():
                run.say(line)
            problems += len(found.problems)
    if problems:
        _fail(f"{problems} problems", 1)


@contextmanager
def failing() -> Iterator[None]:
    """What goes wrong is one sentence and an exit code: 2 for options, 1 for the rest."""
    try:
        yield
    except OptionError as error:
        _fail(str(error), 2)
    except GoQueueError as error:
        _fail(error.message, 1)


@contextmanager
def told() -> Iterator[None]:
    """What goes wrong in a round of a continuous run is told; the next round tries again."""
    try:
        yield
    except GoQueueError as error:
        typer.echo(f"error: {error.message}", err=True)


def _fail(text: str, code: int) -> NoReturn:
    typer.echo(f"error: {text}", err=True)
    raise typer.Exit(code)


def _access(servers: str | None, api_key_file: str | None, ca_file: str | None) -> Access:
    given = {"servers": servers, "apiKeyFile": api_key_file, "caFile": ca_file}
    return Options({name: value for name, value in given.items() if value is not None}).access()


def _grace_s(text: str) -> float:
    return Options({"grace": text}).span_s("grace", 0.0)


def _kinds(text: str) -> list[Kind]:
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in list(Kind)]
    if unknown:
        raise OptionError(f"kind: {unknown[0]!r} is none of {', '.join(Kind)}")
    return [kind for kind in Kind if kind in names]


@contextmanager
def _running(
    destination: str, master: str | None, grace_s: float, bounds: Bounds | None = None
) -> Iterator[Run]:
    from pipeline.archive.hadoop_store import HadoopStore
    from pipeline.archive.plan import Bounds
    from pipeline.archive.run import Run
    from pipeline.session import JAVA_MISSING, has_java, session

    if not has_java():
        _fail(JAVA_MISSING, 1)
    from pyspark.sql import SparkSession

    is_ours = SparkSession.getActiveSession() is None
    spark = session("goqueue-pipeline", master=master)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with failing():
            store = HadoopStore(spark, destination)
        if not store.is_exclusive:
            typer.echo(f"note: {store.root}: only one run at a time may write there", err=True)
        began = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
        yield Run(
            f"{began}-{uuid.uuid4().hex[:8]}",
            spark,
            store,
            bounds or Bounds(),
            grace_s=grace_s,
            say=typer.echo,
        )
    finally:
        if is_ours:
            spark.stop()
