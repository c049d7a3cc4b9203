"""A short run of broken calls; `python -m tests.fuzz --only calls` goes on for longer."""

from __future__ import annotations

import random

from tests.fuzz.calls import fuzz
from tests.one_node import eventually
from tests.unit.node.listeners.grpc.client import served


async def test_broken_calls_are_answered_or_refused_and_nothing_is_held_for_them() -> None:
    async with served() as node:
        tally = await fuzz(node.address, "orders", "g", random.Random(1), 150)

        assert tally.defects == []
        assert tally.sent == 150
        assert tally.statuses[3] > 30  # INVALID_ARGUMENT
        await eventually(lambda: all(budget.used == 0 for budget in node.parts.budgets.all))
        assert (await node.client.ask("Check")).status == 1
