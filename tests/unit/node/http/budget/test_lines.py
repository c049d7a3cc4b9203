"""Who finds no room waits in line for a moment, and is refused at its end."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from goqueue.wire.errors import OverBudget
from node.http.budget import lines as lines_module
from node.http.budget.limits import HttpLimits
from node.http.budget.lines import Lines
from node.http.budget.memory import MIB, Bounds, Budget, Kind, Owner
from node.http.messages.rows import rows_bytes

MESSAGES = [{"value": "x" * 80, "key": str(number)} for number in range(3000)]


@pytest.fixture
def limits(limits: HttpLimits) -> HttpLimits:
    """Nobody is refused for what this machine does beside."""
    return replace(limits, room_wait_s=3600.0)


@pytest.fixture
def budget() -> Budget:
    return Budget(Kind.ROWS, Bounds(1000, 100, 80, 0, 0))


async def test_each_takes_its_turn_and_the_line_is_forgotten(budget: Budget) -> None:
    lines, served = Lines(), []

    async def ask(number: int) -> None:
        owner = Owner("key a", number)
        held = await lines.wait(Kind.ROWS, "key a", 60, lambda: budget.hold(owner, 80))
        with held:
            served.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*map(ask, range(20)))

    assert served == list(range(20))
    assert budget.used == len(lines) == 0


async def test_what_never_fits_and_who_comes_too_late_is_refused(
    budget: Budget, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, owner = Lines(), Owner("key a", 1)
    with pytest.raises(OverBudget, match="connection"):
        await lines.wait(Kind.ROWS, "key a", 3600, lambda: budget.hold(owner, 81))
    budget.hold(Owner("key a", 2), 80)
    with pytest.raises(OverBudget, match="holder"):
        await lines.wait(Kind.ROWS, "key a", 0.01, lambda: budget.hold(owner, 50))
    monkeypatch.setattr(lines_module, "LINE_MAX", 0)
    with pytest.raises(OverBudget, match="holder"):
        await lines.wait(Kind.ROWS, "key a", 3600, lambda: budget.hold(owner, 50))
    assert (budget.used, len(lines)) == (80, 0)


async def test_who_is_cancelled_in_line_leaves_nothing(budget: Budget) -> None:
    lines, owner = Lines(), Owner("key a", 1)
    first = budget.hold(Owner("key a", 2), 80)
    waits = [
        asyncio.ensure_future(lines.wait(Kind.ROWS, "key a", 3600, lambda: budget.hold(owner, 50)))
        for _ in range(3)
    ]
    await asyncio.sleep(0)
    for one in waits:
        one.cancel()
    await asyncio.gather(*waits, return_exceptions=True)

    first.release()
    assert budget.used == len(lines) == 0


@pytest.mark.parametrize("kind", [Kind.BODIES, Kind.ROWS, Kind.APPENDS])
async def test_publishes_of_one_holder_wait_for_each_other(
    kind: Kind, client, front, orders
) -> None:
    budget = front.budgets[kind]
    room = rows_bytes(json.dumps({"messages": MESSAGES}).encode(), 100_000) + 400_000
    budget.bounds = Bounds(64 * MIB, room, room, 0, 0)

    answers = await asyncio.gather(
        *(client.post("/topics/orders/messages", {"messages": MESSAGES}) for _ in range(8))
    )

    assert {answer.status for answer in answers} == {200}
    assert {each.used for each in front.budgets.all} == {0}
    assert not front._shared.lines
