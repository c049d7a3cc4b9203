"""What a worker has done, for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from aiohttp import web

from cli.output.errors import EXIT_USAGE, CliError
from goqueue.tasks import Ended

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
UNKNOWN = "_unknown"
"""The label of tasks that the app does not have: senders can't make series."""
TEXT = "text/plain; version=0.0.4"


class TaskMetrics:
    """Counts by task and outcome, and how long they took."""

    def __init__(self, known: Collection[str], running: Callable[[], int]) -> None:
        self._known = frozenset(known)
        self._running = running
        self._ended: Counter[tuple[str, str]] = Counter()
        self._counts: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}

    def note(self, ended: Ended) -> None:
        """One task has ended."""
        task = ended.task if ended.task in self._known else UNKNOWN
        self._ended[task, ended.outcome] += 1
        counts = self._counts.setdefault(task, [0] * (len(BUCKETS_S) + 1))
        counts[bisect_left(BUCKETS_S, ended.seconds)] += 1
        self._seconds[task] = self._seconds.get(task, 0.0) + ended.seconds

    def text(self) -> str:
        """All of them in Prometheus's format."""
        lines = [
            "# HELP goqueue_tasks_total Tasks that ended, by outcome: done, retried, dead",
            "# TYPE goqueue_tasks_total counter",
        ]
        for (task, outcome), count in sorted(self._ended.items()):
            lines.append(f'goqueue_tasks_total{{task="{task}",outcome="{outcome}"}} {count}')
        lines += [
            "# HELP goqueue_task_duration_seconds How long tasks ran, however they ended",
            "# TYPE goqueue_task_duration_seconds histogram",
        ]
        for task, counts in sorted(self._counts.items()):
            name, total = "goqueue_task_duration_seconds", 0
            for bound, count in zip((*BUCKETS_S, "+Inf"), counts, strict=True):
                total += count
                lines.append(f'{name}_bucket{{task="{task}",le="{bound}"}} {total}')
            lines.append(f'{name}_sum{{task="{task}"}} {self._seconds[task]:g}')
            lines.append(f'{name}_count{{task="{task}"}} {total}')
        lines += [
            "# HELP goqueue_tasks_running Tasks that run now",
            "# TYPE goqueue_tasks_running gauge",
            f"goqueue_tasks_running {self._running()}",
        ]
        return "\n".join(lines) + "\n"


@asynccontextmanager
async def answering(metrics: TaskMetrics, address: str | None) -> AsyncIterator[str | None]:
    """`GET /metrics` is answered at HOST:PORT within; yields where. Raises `CliError`."""
    if address is None:
        yield None
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise CliError(f"--metrics takes HOST:PORT, not {address!r}", exit_code=EXIT_USAGE)

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.text().encode(), headers={"Content-Type": TEXT})

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await _listen(runner, host.strip("[]"), int(port))
        yield f"http://{host}:{runner.addresses[0][1]}/metrics"
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise CliError(f"--metrics {host}:{port}: {error.strerror or error}") from None
