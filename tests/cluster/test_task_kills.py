"""Workers of real processes killed in the middle of their tasks. `python -m
tests.cluster.task_kills` does it more often."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.task_kills import run


async def test_each_task_is_done_and_stored_once_over_kills_of_workers(tmp_path: Path) -> None:
    counted = await run(300, 3, seed=1, folder=tmp_path)

    assert counted.problems(300) == []
