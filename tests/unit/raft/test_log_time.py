"""Log time never goes back, and a step of the wall clock is not followed blindly."""

from __future__ import annotations

from goqueue.wire.types import Index
from raft.log_time import LogClock, majority_offset_ms
from tests.unit.raft.cluster import EPOCH_MS, Cluster


class Clocks:
    def __init__(self) -> None:
        self.mono_s = 100.0
        self.wall = EPOCH_MS
        self.peers: float | None = None
        self.clock = LogClock(lambda: self.mono_s, lambda: self.wall, lambda: self.peers)
        self.peers = 0.0
        self.clock.start(0)
        self.peers = None

    def passes(self, ms: int) -> int:
        self.mono_s += ms / 1000
        self.wall += ms
        return self.clock.read_ms()


def test_log_time_follows_the_wall_clock_closely() -> None:
    clocks = Clocks()
    assert clocks.passes(5000) == EPOCH_MS + 5000
    clocks.wall += 400
    assert clocks.passes(10) == EPOCH_MS + 5410


def test_step_back_is_never_followed_back() -> None:
    clocks = Clocks()
    clocks.passes(1000)
    clocks.wall -= 3_600_000

    times = [clocks.passes(100) for _ in range(100)]

    assert times == sorted(times)
    assert EPOCH_MS + 1000 + 10_000 * 0.85 < times[-1] < EPOCH_MS + 1000 + 10_000


def test_step_forward_is_slewed_unless_the_peers_agree() -> None:
    alone, agreed, disagreed = Clocks(), Clocks(), Clocks()
    agreed.peers, disagreed.peers = 20.0, -3_600_000.0
    for clocks in (alone, agreed, disagreed):
        clocks.passes(1000)
        clocks.wall += 3_600_000

    assert agreed.passes(1000) == EPOCH_MS + 3_602_000
    for clocks in (alone, disagreed):
        assert EPOCH_MS + 2000 <= clocks.passes(1000) <= EPOCH_MS + 2200


def test_new_leader_trusts_no_clock_that_no_majority_shares() -> None:
    clocks = Clocks()
    clocks.wall += 86_400_000
    clocks.clock.start(EPOCH_MS)
    assert clocks.passes(1000) <= EPOCH_MS + 1100

    clocks.peers = -86_400_000.0
    assert clocks.passes(1000) == EPOCH_MS + 2000
    clocks.clock.start(EPOCH_MS + 2000)
    assert clocks.passes(1000) == EPOCH_MS + 3000


def test_new_leader_after_a_long_silence_catches_up_with_the_majority() -> None:
    clocks = Clocks()
    clocks.wall += 3_600_000
    clocks.clock.start(EPOCH_MS)
    assert clocks.passes(100) < EPOCH_MS + 1000

    clocks.peers = 0.0
    assert clocks.passes(100) == EPOCH_MS + 3_600_200


def test_majority_of_clocks_needs_a_majority_of_all_nodes() -> None:
    day = 86_400_000.0
    assert majority_offset_ms([], 1) == 0.0
    assert majority_offset_ms([], 3) is None
    assert majority_offset_ms([20.0], 3) == 0.0
    assert majority_offset_ms([day], 3) is None
    assert majority_offset_ms([day, 5.0], 3) == 0.0
    assert majority_offset_ms([day, day + 10], 3) == day + 5
    assert majority_offset_ms([day, -day], 3) is None
    assert majority_offset_ms([day, day, 30.0, -40.0], 5) == 0.0


def test_new_leader_goes_on_from_the_newest_entry() -> None:
    clocks = Clocks()
    clocks.clock.start(EPOCH_MS + 60_000)

    first = clocks.clock.read_ms()

    assert first == EPOCH_MS + 60_000
    assert clocks.passes(1000) > first


def test_times_of_entries_never_go_back_across_leaders_with_wrong_clocks() -> None:
    cluster = Cluster(3)
    for number in range(4):
        leader = cluster.elect()
        cluster.raft_group(leader).log_time._clock._wall_ms = lambda n=number: (
            EPOCH_MS + (n % 2) * 5_000_000
        )  # type: ignore[misc]
        cluster.propose(b"%d" % number)
        cluster.settle()
        cluster.kill(leader)
        cluster.elect()
        cluster.restart(leader)
        cluster.settle()

    log = cluster.nodes["a"].store.partition_log(cluster.raft_group("a").id)
    times = [entry.time_ms for entry in log.entries(Index(1))]
    assert len(times) > 8
    assert times == sorted(times)
