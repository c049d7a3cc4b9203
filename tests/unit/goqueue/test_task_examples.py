"""The examples of tasks run as they are written: in FastAPI, in Django, into PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from goqueue import AsyncClient
from goqueue.tasks.running import load_app
from tests.one_node import serving
from tests.unit.goqueue.tasks.conftest import working

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
DEBIAN = "/usr/lib/postgresql"


@pytest.fixture
async def node() -> AsyncIterator[str]:
    async with serving() as url:
        yield url


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "client"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, **more}


async def run(folder: Path, *words: str, **more: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, cwd=folder, stdout=PIPE, stderr=PIPE, env=environment(**more)
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, err.decode()) == (0, "")
    return out.decode()


async def test_a_service_answers_and_its_task_runs_in_the_background(
    node: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "fastapi_background"))
    app = load_app("fastapi_background:tasks")
    app.target = node
    api: Any = sys.modules["fastapi_background"].api
    order = {"number": 7, "address": "ada@example.org"}

    transport = httpx.ASGITransport(app=api)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        accepted = await client.post("/orders", json=order)
        again = await client.post("/orders", json=order)
        wrong = await client.post("/orders", json={"number": "x"})
    async with working(app) as work:
        await work.until(1)
    await asyncio.to_thread(app.close)

    assert [answer.status_code for answer in (accepted, again, wrong)] == [202, 409, 422]
    assert f"order 7: confirmed to ada@example.org ({accepted.json()['task']})" in (
        capsys.readouterr().out
    )


async def test_a_management_command_sends_and_another_one_works(node: str) -> None:
    folder = EXAMPLES / "django_command"
    assert await run(folder, "manage.py", "remind", "1", "2", GOQUEUE_SERVER=node) == "2 sent\n"

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "manage.py", "work", "--concurrency", "1"),
        cwd=folder,
        stdout=PIPE,
        env=environment(GOQUEUE_SERVER=node),
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        lines = [(await process.stdout.readline()).decode() for _ in range(4)]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0

    assert sorted(line for line in lines if "customer" in line) == [
        "customer 1 was reminded\n",
        "customer 2 was reminded\n",
    ]
    assert sum(line.startswith("remind done in ") for line in lines) == 2
    async with AsyncClient(node) as client:
        assert (await client.lag("shop", "reminders")).total_lag == 0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """A PostgreSQL of its own, over a socket: the address of its database."""
    found = shutil.which("initdb") or next(
        (str(path) for path in sorted(Path(DEBIAN).glob("*/bin/initdb"), reverse=True)), None
    )
    if found is None:
        pytest.skip("no PostgreSQL: apt-get install postgresql, as root")
    programs = Path(found).parent
    who: dict[str, Any] = {}
    folder = tmp_path / "pg"
    folder.mkdir()
    if os.geteuid() == 0:  # it refuses root
        postgres = pwd.getpwnam("postgres")
        os.chown(folder, postgres.pw_uid, postgres.pw_gid)
        for parent in [*folder.parents][:4]:
            parent.chmod(parent.stat().st_mode | 0o011)
        who = {"user": postgres.pw_uid, "group": postgres.pw_gid}
    data = str(folder / "data")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **who}
    init = [found, "-D", data, "-U", "test", "-A", "trust", "--no-sync", "-N", "--no-locale"]
    subprocess.run(init, check=True, **quiet)
    options = f"-c listen_addresses= -c fsync=off -k {folder}"
    control = [str(programs / "pg_ctl"), "-D", data, "-w", "-s"]
    subprocess.run(
        [*control, "-l", str(folder / "log"), "-o", options, "start"], check=True, **quiet
    )
    try:
        yield f"host={folder} user=test dbname=postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, **quiet)


async def test_each_transfer_is_booked_once_though_its_task_came_twice(
    node: str, database: str
) -> None:
    program = str(EXAMPLES / "once_in_postgresql" / "once_in_postgresql.py")

    out = await run(ROOT, program, "--server", node, "--dsn", database)

    assert out == "12 done, 4 of them again\nbalance 78, and 78 was sent\n"
