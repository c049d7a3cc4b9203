"""What unit tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def spill_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks do not wait for each other on their way into segments, which many tests look at."""
    monkeypatch.setattr("node.storage.spills.SPILL_S", 0.0)
