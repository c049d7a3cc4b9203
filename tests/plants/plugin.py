"""A plugin of pytest that plants the bug which `GOQUEUE_PLANT` names, before tests are imported."""

from __future__ import annotations

import os

from tests.plants.registry import PLANTS, VARIABLE


def pytest_configure() -> None:
    PLANTS[os.environ[VARIABLE]].apply()
