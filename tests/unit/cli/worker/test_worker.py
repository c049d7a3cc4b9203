"""`goqueue-cli worker` in a process of its own, and its parts."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from cli.output.errors import CliError
from cli.worker.metrics import TaskMetrics, answering
from cli.worker.watching import Watch, times_of, without_reload
from goqueue import AsyncClient
from goqueue.tasks import Ended
from tests.one_node import serving
from tests.unit.cli.conftest import Shell

ROOT = Path(__file__).resolve().parents[4]
APP = """
import os, time
from pathlib import Path
from goqueue.tasks import Reject, Tasks

app = Tasks("./elsewhere")

@app.task
def resize(name: str) -> str:
    return name

@app.task
async def refuse() -> None:
    raise Reject("never")

@app.task
def slow() -> None:
    Path("begun").touch()
    while not Path("gate").exists():
        time.sleep(0.01)
"""


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with serving() as url, AsyncClient(url) as client:
        await client.create_topic("tasks", partitions=1)
        yield client


async def test_it_tells_a_line_a_task_counts_them_and_ends_in_order(
    client: AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(APP)
    for task, value in (("resize", '{"name": "1.png"}'), ("refuse", "{}"), ("slow", "{}")):
        await client.publish("tasks", value, headers={"goqueue-task": task}, partition=0)

    url = client.transport.servers[0]
    words = ["-m", "cli", "worker", "jobs:app", "-s", url, "--metrics", "127.0.0.1:0", "-n", "2"]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        cwd=tmp_path,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(60.0):
            ready = (await process.stderr.readline()).decode()
            metrics = (await process.stderr.readline()).decode().split("metrics: ")[1].strip()
            lines = [json.loads(await process.stdout.readline()) for _ in range(2)]
            told = await asyncio.to_thread(lambda: urlopen(metrics).read().decode())
            while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            (tmp_path / "gate").touch()
            lines.append(json.loads(await process.stdout.readline()))
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    assert "ready: 3 tasks of tasks, 2 at once" in ready
    assert {(one["task"], one["outcome"], one["reason"]) for one in lines} == {
        ("resize", "done", ""),
        ("refuse", "dead", "never"),
        ("slow", "done", ""),
    }
    assert 'goqueue_tasks_total{task="refuse",outcome="dead"} 1' in told
    assert "goqueue_tasks_running 1" in told
    assert process.returncode == 0
    assert (await client.admin.members("tasks")).members == []
    assert (await client.lag("tasks")).total_lag == 0
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere:app", "there is no module nowhere here"),
        ("json", "want MODULE:app"),
        ("json:loads", "loads is no Tasks, but function"),
        ("json:missing", "missing is no Tasks, but NoneType"),
    ],
)
def test_what_is_no_app_is_told(shell: Shell, path: str, said: str) -> None:
    result = shell.run("worker", path)

    assert result.exit_code == 2
    assert said in result.stderr


def test_metrics_are_by_task_and_senders_make_no_series() -> None:
    metrics = TaskMetrics(["mail"], lambda: 3)
    for number, task in enumerate(["mail", "mail", 'x"\n', "y"]):
        metrics.note(Ended(f"tasks:0:{number}", task, 1, "done", 0.02))

    lines = metrics.text().splitlines()

    assert 'goqueue_tasks_total{task="mail",outcome="done"} 2' in lines
    assert 'goqueue_tasks_total{task="_unknown",outcome="done"} 2' in lines
    assert 'goqueue_task_duration_seconds_bucket{task="mail",le="0.01"} 0' in lines
    assert 'goqueue_task_duration_seconds_bucket{task="mail",le="0.025"} 2' in lines
    assert 'goqueue_task_duration_seconds_sum{task="mail"} 0.04' in lines
    assert "goqueue_tasks_running 3" in lines


@pytest.mark.parametrize("address", ["9464", "127.0.0.1:x", "127.0.0.1:70000"])
async def test_an_address_for_metrics_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(CliError, match="HOST:PORT"):
        async with answering(TaskMetrics([], lambda: 0), address):
            pass


def test_a_change_of_the_source_begins_the_worker_anew(tmp_path: Path) -> None:
    source, runs = tmp_path / "jobs.py", tmp_path / "runs"
    source.write_text("1")
    program = f"import time; open({str(runs)!r}, 'a').write('x'); time.sleep(600)"
    looks = 0

    def sleep(_seconds: float) -> None:
        nonlocal looks
        while len(runs.read_text() if runs.exists() else "") <= looks:  # the run has begun
            os.sched_yield()
        looks += 1
        if looks == 1:
            source.write_text("22")
            os.utime(source, ns=(1, 1))
        else:
            watch.stop()

    watch = Watch([sys.executable, "-c", program], tmp_path, sleep)

    assert watch.run() == -signal.SIGTERM
    assert runs.read_text() == "xx"


def test_what_is_installed_or_hidden_is_not_watched(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", ".venv/d.py", "site-packages/e.py", "f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    assert sorted(path.name for path in times_of(tmp_path)) == ["a.py", "c.py"]
    assert without_reload(["worker", "a:b", "--reload", "-n", "2"]) == ["worker", "a:b", "-n", "2"]
