"""The stories in tests/scripts/redis come out as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.node.listeners.redis.transcripts import play

FOLDER = Path(__file__).resolve().parents[5] / "tests/scripts/redis"
STORIES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.txt"))}


@pytest.mark.parametrize("name", STORIES)
async def test_a_story_comes_out_as_it_is_written(name: str) -> None:
    assert (await play(STORIES[name])).splitlines() == STORIES[name].splitlines()


def test_there_are_stories() -> None:
    assert len(STORIES) >= 8
