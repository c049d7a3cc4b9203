"""Three of the hundred changes that `make chaos-groups` makes: a join, a leave and a kill -9; and
the restart of all brokers, as `make chaos-rolling` does it.

How long partitions wait is judged there, on a machine that does nothing else; here, that everything
that can be counted is right.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.group_run import MEMBERS, Stage, come_and_go, restart_brokers
from tests.chaos.http import Http

CHANGES = 3
RATE = 120.0
"""Messages a second: a quarter of what is published there, as the machine is shared."""
LONG_SESSION_S = 15.0
"""Of members that live: none is taken for dead as the machine had no time for it. In sessions of
2 s, the brokers are restarted by `make chaos-rolling`."""


async def test_nothing_is_lost_or_doubled_while_members_come_leave_and_die(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Http(), seed=1, rate=RATE)

    verdict, found, _ = await come_and_go(stage, CHANGES)

    assert list(verdict.lines()) == []
    assert (found.joins, found.leaves, found.kills) == (1, 1, 1)
    assert verdict.published > 1000 and verdict.acked > 1000
    assert found.healthy >= 2 and found.killed >= 1


async def test_consumers_go_on_through_a_rolling_restart_of_all_brokers(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Http(), seed=1, rate=RATE, session_s=LONG_SESSION_S)

    found = await restart_brokers(stage)

    assert list(found.verdict.lines()) == []
    assert found.verdict.published > 1000 and found.verdict.acked > 1000
    assert len(found.before) == MEMBERS
    assert found.after == found.before
    assert found.moved == 0
