"""The programs of README's first example and of the guide to directories run as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.goqueue.everyday.conftest import Served

ROOT = Path(__file__).resolve().parents[4]
SERVER = "http://127.0.0.1:8080"


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


def run(program: str, folder: Path) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(_whole, sys.path)))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stderr
    return ended.stdout


def test_the_first_example_needs_no_server(tmp_path: Path) -> None:
    first = programs("README.md")[0]

    assert run(first, tmp_path) == "resize 1.png\n"
    assert len(first.split("\n\n")[1].splitlines()) == 5
    assert (tmp_path / "jobs" / "wal").is_dir()


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "resize 1.png 1\nQueueStats(size=3, ready=0, in_flight=0, waiting=2, delayed=1,"),
        (1, "a\nb\n2 done\n"),
        (2, ""),
        (3, "800\n"),
        (4, "QueueStats(size=3,"),
        (5, "['PUBLISHED', "),
        (6, ""),
        (7, "2 messages, "),
    ],
)
def test_the_guides_programs_do_what_it_says(number: int, said: str, tmp_path: Path) -> None:
    found = programs("docs/guides/directory.md")
    assert len(found) == 8
    program = found[number]
    if 'mode="r"' in program:
        run(found[0], tmp_path)
    if SERVER not in program:
        assert run(program, tmp_path).startswith(said)
        return
    with Served() as url:
        assert run(program.replace(SERVER, url), tmp_path) == said


def _whole(path: str) -> str:
    return os.path.abspath(path) if path else ""
