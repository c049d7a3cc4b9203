"""These tests run on a loop whose time goes with the node's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.one_node import TimedLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": TimedLoop}
