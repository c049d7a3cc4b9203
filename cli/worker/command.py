"""The verb `worker`: a member of an app's group, with a line for each task."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer

from cli.output.errors import EXIT_USAGE, CliError
from cli.output.terminal import note, shown
from cli.run.options import command, span
from cli.run.session import Session
from cli.worker.metrics import TaskMetrics, answering
from cli.worker.watching import watch
from goqueue.api.options import ClientOptions
from goqueue.errors import BadRequest
from goqueue.tasks import Ended, Tasks, Worker
from goqueue.tasks.running import load_app
from goqueue.transport.http import parse_servers

Path_ = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Where the app is.", show_default=False)
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", "-n", min=1, max=1000, help="So many tasks at once.")
]
Visibility = Annotated[
    str | None,
    typer.Option(help="A task whose worker died comes again after so long (the group's)."),
]
Metrics = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Answer `GET /metrics` there, for Prometheus."),
]
Reload = Annotated[
    bool, typer.Option("--reload", help="Begin anew when a Python file below this folder changes.")
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    command(app, "worker")(worker)


async def worker(
    session: Session,
    path: Path_,
    concurrency: Concurrency = 16,
    visibility: Visibility = None,
    metrics: Metrics = None,
    reload: Reload = False,
) -> None:
    """Run the tasks of an app, until SIGTERM or Ctrl-C.

    `MODULE:APP` names a `goqueue.tasks.Tasks`; the module may stand in the current folder. Async
    functions run on the event loop, others in threads, and those that say so in processes. The
    target is the app's own, unless `--server` or `--context` name another one.

    The first SIGTERM or Ctrl-C takes no more tasks, lets those that run end, and leaves the group;
    a second one ends the process at once, and its tasks come again.
    """
    if reload:
        code = watch(Path.cwd())
        raise typer.Exit(0 if code in (0, -signal.SIGTERM) else 1)
    try:
        app = load_app(path)
    except BadRequest as error:
        raise CliError(error.message, exit_code=EXIT_USAGE) from None
    _aim(app, session)
    held = None if visibility is None else span("--visibility", visibility)
    told = TaskMetrics([task.name for task in app.tasks()], lambda: running.running)

    def ended(one: Ended) -> None:
        told.note(one)
        if session.output.is_table:
            session.output.line(shown(session.output.stream, one.line()))
        else:
            session.output.record_line(_row(one))

    running = Worker(app, path=path, concurrency=concurrency, visibility=held, ended=ended)
    async with answering(told, metrics) as address:
        _end_by_interrupt(running)
        await running.run_async(lambda: _ready(app, concurrency, address))


def _ready(app: Tasks, concurrency: int, address: str | None) -> None:
    queues = ", ".join(app.queue_names())
    note(f"ready: {len(app.tasks())} tasks of {queues}, {concurrency} at once")
    if address is not None:
        note(f"metrics: {address}")


def _aim(app: Tasks, session: Session) -> None:
    """What the command line says of servers and keys goes before what the app does."""
    given = session.given
    if given.server is None and given.context is None:
        return
    target = given.target()
    app.target = parse_servers(target.server)
    app.options = ClientOptions(
        api_key=target.api_key or None,
        ca_file=target.ca_file or None,
        cert_file=target.cert_file or None,
        key_file=target.key_file or None,
    )


def _end_by_interrupt(running: Worker) -> None:
    """Ctrl-C does what SIGTERM does; a second one ends the process at once."""
    loop = asyncio.get_running_loop()

    def told() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        running.stop()

    loop.add_signal_handler(signal.SIGINT, told)


def _row(ended: Ended) -> dict[str, object]:
    return {
        "id": ended.id,
        "task": ended.task,
        "attempt": ended.attempt,
        "outcome": ended.outcome,
        "seconds": round(ended.seconds, 6),
        "reason": ended.reason,
    }
