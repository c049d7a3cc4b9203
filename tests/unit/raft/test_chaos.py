"""Random faults, few seeds: the large simulation does the same by the thousand."""

from __future__ import annotations

import pytest

from raft.group import RaftGroup
from tests.unit.raft.chaos import Chaos, unsafe_seeds
from tests.unit.raft.mutants import CommitIndexBelieved, TruncateAlways


@pytest.mark.parametrize("size", [3, 5])
def test_no_acknowledged_entry_is_lost_whatever_fails(size: int) -> None:
    assert unsafe_seeds(range(8), RaftGroup, size=size) == []


def test_whole_cluster_power_cuts_lose_nothing_acknowledged() -> None:
    for seed in range(4):
        chaos = Chaos(seed, keep=0.0)
        for at in range(1, 12):
            for name in chaos.cluster.nodes:
                chaos._at(float(at), chaos._kill, name)
        assert chaos.run() == []


@pytest.mark.parametrize("mutant", [TruncateAlways, CommitIndexBelieved])
def test_checkers_notice_a_hole(mutant: type[RaftGroup]) -> None:
    assert unsafe_seeds(range(3), mutant)


def test_same_seed_gives_the_same_frames() -> None:
    def trace() -> list[tuple[str, str, bytes]]:
        chaos = Chaos(3)
        chaos.run(4)
        return [(sent.source, sent.target, sent.frame) for sent in chaos.cluster.net.log]

    assert trace() == trace()
