"""The programs of the guide to tasks, and of the page for those who know other libraries, run as
written: in one process, beside a worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
BESIDE = """
import asyncio, runpy, sys, threading, time
import pytest
sys.path.insert(0, "")
from goqueue import open
from goqueue.tasks import Worker
from jobs import app

def wait_until_done():
    with open("./jobs") as client:
        while sum(client.lag("tasks", queue).total_lag for queue in ("tasks", "mail")):
            time.sleep(0.01)

PLUGINS = ["-p", "goqueue.testing.plugin", "-p", "no:cacheprovider"]
loop, ready = asyncio.new_event_loop(), threading.Event()
worker = Worker(app, ended=lambda _: None)
thread = threading.Thread(target=lambda: loop.run_until_complete(worker.run_async(ready.set)))
thread.start()
assert ready.wait(60)
for name in sys.argv[1:]:
    print(f"-- {name}", flush=True)
    if name.startswith("test_"):
        wait_until_done()  # they look at what is printed
        pytest.main(["-q", *PLUGINS, "-W", "ignore", name])
    else:
        runpy.run_path(name, run_name="__main__")
app.close()
wait_until_done()
loop.call_soon_threadsafe(worker.stop)
thread.join()
"""


def programs(page: str) -> dict[str, str]:
    found = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", (ROOT / page).read_text(), re.S)
    return dict(found)


def run(words: list[str], folder: Path) -> str:
    path = os.pathsep.join([str(ROOT), str(ROOT / "client"), str(folder)])
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_programs_do_what_the_pages_say(tmp_path: Path) -> None:
    """All in one process: each begins with a second of imports."""
    guide, beside = programs("docs/guides/tasks.md"), programs("docs/guides/coming-from-tasks.md")
    assert list(beside) == ["welcome.py", "joined.py"]
    for name, program in {**guide, **beside, "beside.py": BESIDE}.items():
        (tmp_path / name).write_text(program)

    out = run(["beside.py", *(name for name in (*guide, *beside) if name != "jobs.py")], tmp_path)

    assert out.startswith("-- send.py\nresize 1.png 200")  # the worker's words come in between
    for ran in ("resize 2.png 400", "resize 3.png 200", "resize 4.png 50"):
        assert ran in out
    assert out.count("welcome ada@example.org at attempt 2") == 2  # two pages
    parts = {part.split("\n", 1)[0].strip(): part for part in out.split("-- ")}
    for name, said in (
        ("once.py", ["True True", "False"]),
        ("results.py", ["invoice-8.pdf", "3"]),
        ("chains.py", ["13", "19"]),
        ("awaiting.py", ["42"]),
        ("test_jobs.py", ["3 passed"]),
        ("test_later.py", ["3 passed"]),
        ("joined.py", ["6", "13"]),
    ):
        assert [word for word in said if word not in parts[name]] == [], out
