"""Simulated members of groups: runs that once went wrong."""

import pytest

from tests.sim.setup import Setup


@pytest.mark.parametrize(
    ("seed", "only"), [(8728, (0, 1, 2, 3))], ids=["asked a wiped node until it was expired"]
)
def test_members_that_once_were_lost_though_all_was_calm_stay(
    seed: int, only: tuple[int, ...]
) -> None:
    assert Setup(kind="members", only=only).run(seed).violations == []
