"""The stories in tests/scripts come out as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.delivery.state.transcripts import play

SCRIPTS = sorted((Path(__file__).resolve().parents[3] / "scripts").glob("queue-*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_transcript_comes_out_as_it_is_written(path: Path) -> None:
    text = path.read_text()

    assert play(text).splitlines() == text.splitlines()


def test_there_are_transcripts() -> None:
    assert len(SCRIPTS) >= 5
