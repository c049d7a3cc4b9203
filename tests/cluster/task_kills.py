"""Workers killed in the middle of tasks, again and again; then everything is counted.

`python -m tests.cluster.task_kills --kills 50 --tasks 10000` runs one node in this process and
workers in others. Each task notes its number in a file. Every third task has a dedup id and is sent
twice; every tenth is followed by another one. In the end each number was noted at least once, the
topics hold one message a number, and nothing is left over.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from goqueue import AsyncClient
from goqueue.tasks import Tasks
from tests.one_node import serving

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
VISIBILITY = "1s"
DEADLINE_S = 1800.0
APP = """
import os
from goqueue.tasks import RESULT, Tasks

app = Tasks(os.environ["TASKS_URL"])
FILES = {
    name: os.open(f"{os.environ['TASKS_FOLDER']}/{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for name in ("noted", "followed")
}

@app.task(queue="notes")
async def note(number: int) -> int:
    os.write(FILES["noted"], f"{number}\\n".encode())
    return number

@app.task(queue="follows")
async def follow(number: int) -> None:
    os.write(FILES["followed"], f"{number}\\n".encode())
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """What was found in the end."""

    kills: int
    noted: Counter[int]
    followed: Counter[int]
    stored_notes: int
    stored_follows: int
    lag: int

    def problems(self, tasks: int) -> list[str]:
        """What is not as promised."""
        found = []
        for name, numbers, wanted in (
            ("note", self.noted, set(range(tasks))),
            ("follow", self.followed, set(range(0, tasks, 10))),
        ):
            if missing := wanted - set(numbers):
                found.append(f"{name}: never done: {sorted(missing)[:10]}")
        if self.stored_notes != tasks:
            found.append(f"notes: {self.stored_notes} stored of {tasks}")
        if self.stored_follows != len(range(0, tasks, 10)):
            found.append(f"follows: {self.stored_follows} stored of {len(range(0, tasks, 10))}")
        if self.lag:
            found.append(f"{self.lag} left over")
        return found

    def line(self) -> str:
        again = sum(self.noted.values()) - len(self.noted)
        return (
            f"{self.kills} kills of workers: {len(self.noted)} tasks done, {again} of them again; "
            f"{self.stored_notes} stored, {self.stored_follows} followed"
        )


async def run(tasks: int, kills: int, seed: int, folder: Path) -> Counted:
    """Send, kill, wait, count."""
    rng = random.Random(seed)
    (folder / "jobs.py").write_text(APP)
    async with serving() as url, AsyncClient(url) as client:
        workers = [await _worker(url, folder) for _ in range(WORKERS)]
        try:
            sending = asyncio.ensure_future(_send(url, tasks))
            async with asyncio.timeout(DEADLINE_S):
                for number in range(kills):
                    await _until_noted(folder, (number + 1) * tasks // (kills + 1))
                    place = rng.randrange(WORKERS)
                    workers[place].kill()
                    await workers[place].wait()
                    workers[place] = await _worker(url, folder)
                await sending
                lag = await _until_done(client, folder, tasks)
        finally:
            for worker in workers:
                if worker.returncode is None:
                    worker.send_signal(signal.SIGTERM)
                await worker.wait()
        totals = [
            (await client.topic(name, current=True)).total_messages for name in ("notes", "follows")
        ]
        return Counted(
            kills, _numbers(folder / "noted"), _numbers(folder / "followed"), *totals, lag
        )


async def _send(url: str, tasks: int) -> None:
    """Every third number has a dedup id, and is sent again."""
    app = Tasks(url)
    note = app.task(name="note", queue="notes")(_note)
    follow = app.task(name="follow", queue="follows")(_note)
    for number in range(tasks):
        call = note.call(number)
        chain = call.then(follow.call(number)) if number % 10 == 0 else call
        dedup_id = str(number) if number % 3 == 0 else None
        for _ in range(1 if dedup_id is None else 2):
            await chain.send_async(dedup_id=dedup_id)
    await asyncio.to_thread(app.close)


async def _note(number: int) -> None:
    raise AssertionError("only workers run it")


async def _worker(url: str, folder: Path) -> Process:
    """A worker that is a member of the group."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "cli", "worker", "jobs:app", "--visibility", VISIBILITY),
        cwd=folder,
        stdout=DEVNULL,
        stderr=PIPE,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}",
            "TASKS_URL": url,
            "TASKS_FOLDER": str(folder),
        },
    )
    assert process.stderr is not None
    first = await process.stderr.readline()
    assert b"ready" in first, first
    return process


async def _until_noted(folder: Path, count: int) -> None:
    while len(_numbers(folder / "noted")) < count:  # noqa: ASYNC110 - others write the file
        await asyncio.sleep(0.02)


async def _until_done(client: AsyncClient, folder: Path, tasks: int) -> int:
    while True:
        lag = (await client.lag("tasks")).total_lag
        if lag == 0 and len(_numbers(folder / "followed")) >= len(range(0, tasks, 10)):
            return lag
        await asyncio.sleep(0.1)


def _numbers(path: Path) -> Counter[int]:
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counted = asyncio.run(run(given.tasks, given.kills, given.seed, Path(folder)))
    problems = counted.problems(given.tasks)
    print("\n".join([counted.line(), *problems]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
