"""Three brokers that are not there: a broker in memory tells of them."""

from __future__ import annotations

import pytest

from node.http.fake.broker import FakeBroker
from tests.one_node import Clock


@pytest.fixture
async def broker(clock: Clock) -> FakeBroker:
    return FakeBroker(clock_ms=clock)


@pytest.fixture
def keys() -> None:
    """Nobody is asked for one."""
