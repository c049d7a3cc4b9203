"""A scrub whose reading fails: who asks for another one is not kept waiting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from node.storage.repair.scrub import Scrub

DAY_S = 86400.0


@pytest.mark.parametrize("interval_s", [0.0, DAY_S])
async def test_a_round_that_failed_is_followed_by_one_when_somebody_asks(interval_s: float) -> None:
    rounds = list[int]()
    failed = asyncio.Event()

    def unreadable() -> Any:
        rounds.append(len(rounds))
        failed.set()
        raise OSError(5, "unreadable")

    scrub = Scrub(
        cast(Any, SimpleNamespace(store=Unreadable(unreadable), flusher=None, metrics=None)),
        cast(Any, SimpleNamespace(diverged=list)),
        cast(Any, None),
        interval_s=interval_s,
        throttle=cast(Any, None),
        renew_snapshot=cast(Any, None),
        is_whole=lambda _partition_id: True,
        wall_ms=lambda: 1,
    )
    with capture_logs() as logs:
        await scrub._round_loop.start()
        for asked in (1, 2):
            failed.clear()
            scrub.begin()
            await failed.wait()
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(rounds) == asked
            assert not scrub.status().running
        await scrub.stop()

    assert [line["event"] for line in logs] == ["scrub_interrupted"] * 2


class Unreadable:
    """A store without partitions, whose write-ahead log can't be read."""

    def __init__(self, wal_check: Any) -> None:
        self.wal_check = wal_check

    def partition_ids(self) -> list[Any]:
        return []
