"""Random faults, few seeds: the large simulation does the same by the thousand."""

from __future__ import annotations

import pytest

from raft.group import RaftGroup
from tests.unit.raft.chaos import Chaos, RelaxedChaos, is_unsafe
from tests.unit.raft.mutants import CommitIndexBelieved, TruncateAlways


@pytest.mark.parametrize("size", [3, 5])
def test_no_acknowledged_entry_is_lost_whatever_fails(size: int) -> None:
    for seed in range(5):
        assert Chaos(seed, size=size).run() == []


def test_whole_cluster_power_cuts_lose_nothing_acknowledged() -> None:
    for seed in range(4):
        chaos = Chaos(seed, keep=0.0)
        for at in range(1, 12):
            for name in chaos.cluster.nodes:
                chaos._at(float(at), chaos._kill, name)
        assert chaos.run() == []


@pytest.mark.parametrize("mutant", [TruncateAlways, CommitIndexBelieved])
def test_checkers_notice_a_hole(mutant: type[RaftGroup]) -> None:
    assert any(is_unsafe(seed, mutant) for seed in range(3))


def test_same_seed_gives_the_same_frames() -> None:
    def trace() -> list[tuple[str, str, bytes]]:
        chaos = Chaos(3)
        chaos.run(4)
        return [(sent.source, sent.target, sent.frame) for sent in chaos.cluster.net.log]

    assert trace() == trace()


@pytest.mark.parametrize("size", [3, 5])
def test_relaxed_group_loses_nothing_while_a_minority_loses_power(size: int) -> None:
    chaoses = [RelaxedChaos(seed, size=size) for seed in range(6)]

    assert [chaos.run() for chaos in chaoses] == [[]] * len(chaoses)
    assert sum(chaos.power_cuts for chaos in chaoses) > len(chaoses)
