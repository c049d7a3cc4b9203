"""What others copy from a node gives way to its own syncs, and comes back."""

from __future__ import annotations

from node.storage.copying.pace import ADJUST_S, LEAST_SHARE, QUIET_S, CopyPace

MOST = 100_000_000
CHUNK = 256 << 10


class Scene:
    """A source whose time passes only as chunks and syncs take it."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.pace = CopyPace(MOST, lambda: self.now_s, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    async def copy(self, seconds: float, *, sync_s: float) -> float:
        """Copy for so long beside syncs that take so long each; bytes a second."""
        began, size = self.now_s, 0
        while self.now_s < began + seconds:
            await self.pace.take(CHUNK)
            size += CHUNK
            self.now_s += 0.001
            self.pace.synced(sync_s)
        return size / (self.now_s - began)

    def be_quiet(self, sync_s: float) -> None:
        self.now_s += QUIET_S
        for _ in range(500):
            self.pace.synced(sync_s)


async def test_a_copy_that_disturbs_nobody_goes_as_fast_as_it_may() -> None:
    scene = Scene()
    scene.be_quiet(0.004)

    assert await scene.copy(5, sync_s=0.005) > 0.95 * MOST


async def test_a_copy_that_slows_syncs_down_gives_way_but_never_below_its_least() -> None:
    scene = Scene()
    scene.be_quiet(0.004)

    await scene.copy(5, sync_s=0.020)

    assert scene.pace.bytes_per_s == LEAST_SHARE * MOST
    assert await scene.copy(5, sync_s=0.020) < 1.05 * LEAST_SHARE * MOST


async def test_a_copy_comes_back_to_its_rate_once_syncs_are_quick_again() -> None:
    scene = Scene()
    scene.be_quiet(0.004)
    await scene.copy(5, sync_s=0.020)

    await scene.copy(40 * ADJUST_S, sync_s=0.004)

    assert scene.pace.bytes_per_s == MOST


async def test_a_disk_that_is_always_slow_is_no_reason_to_copy_slowly() -> None:
    scene = Scene()
    scene.be_quiet(0.030)

    await scene.copy(5, sync_s=0.035)

    assert scene.pace.bytes_per_s == MOST


async def test_what_a_copy_did_to_syncs_is_not_taken_for_normal() -> None:
    scene = Scene()
    scene.be_quiet(0.004)
    await scene.copy(30, sync_s=0.020)

    scene.now_s += QUIET_S / 2
    await scene.copy(30, sync_s=0.020)

    assert scene.pace.bytes_per_s == LEAST_SHARE * MOST


async def test_without_a_bound_a_copy_gives_way_as_well() -> None:
    scene = Scene()
    scene.pace = pace = CopyPace(0, lambda: scene.now_s, scene._sleep)
    scene.be_quiet(0.001)
    before = pace.bytes_per_s

    await scene.copy(5, sync_s=0.020)

    assert pace.bytes_per_s == LEAST_SHARE * before
