"""Consumers over streams while nodes and clients are killed. `python -m
tests.cluster.stream_kills` does it more often."""

from __future__ import annotations

from pathlib import Path

from tests.cluster.stream_kills import run


async def test_each_line_is_acked_once_over_kills_of_nodes_and_clients(tmp_path: Path) -> None:
    counted = await run(400, 3, seed=1, folder=tmp_path)

    assert counted.problems() == []
