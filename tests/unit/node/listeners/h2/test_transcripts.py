"""The stories in tests/scripts/h2 come out as they are written."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.one_node import TimedLoop
from tests.unit.node.listeners.h2.transcripts import play

FOLDER = Path(__file__).resolve().parents[4] / "scripts/h2"
STORIES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.txt"))}


def speaks_http2() -> bool:
    """Whether there is a curl that does."""
    curl = shutil.which("curl")
    return curl is not None and b"HTTP2" in subprocess.check_output([curl, "--version"])


@pytest.mark.parametrize("name", STORIES)
def test_a_story_comes_out_as_it_is_written(name: str) -> None:
    story = STORIES[name]
    if "> curl" in story and not speaks_http2():
        pytest.skip("no curl with HTTP/2")
    with asyncio.Runner(loop_factory=TimedLoop) as runner:
        assert runner.run(play(story)).splitlines() == story.splitlines()


def test_there_are_stories() -> None:
    assert len(STORIES) >= 10
