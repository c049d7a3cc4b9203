"""The stories in tests/scripts/groups come out on a real cluster as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import ROOT, Cluster
from tests.cluster.stories import play

STORIES = sorted((ROOT / "tests" / "scripts" / "groups").glob("*.txt"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("stories"), auto_create=False) as started:
        yield started.start()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_comes_out_as_it_is_written(path: Path, cluster: Cluster) -> None:
    text = path.read_text()

    assert play(text, path.stem, cluster).splitlines() == text.splitlines()


def test_every_story_is_told() -> None:
    told = {path.stem for path in STORIES}

    assert told >= {"join", "leave", "crash", "slow-handler", "rolling-restart", "two-topics"}
    assert "coordinator-killed" in told
