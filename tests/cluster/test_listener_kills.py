"""Clients of other protocols while leaders are killed. `python -m tests.cluster.listener_kills`
does it with more of them, and with more lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.listener_kills import run


@pytest.mark.parametrize(("name", "kills"), [("redis-py", 2), ("grpc", 3)])
def test_real_lines_are_stored_and_acked_once_while_leaders_are_killed(
    name: str, kills: int, tmp_path: Path
) -> None:
    counted = run(name, 300, kills, seed=1, folder=tmp_path)

    assert counted.kills == kills
    assert counted.problems == []
