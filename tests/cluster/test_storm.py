"""Less than a minute of `make chaos`: every fault that this machine can make, on real nodes under
load, checked over one history. Without root it is the part that needs none."""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path

import pytest

from tests.chaos.storm.run import Storm

MINUTES = 0.6
KINDS = "kill,transfer,pause,partition,oneway,loss,delay,power,flip,full,eio,clock,partition+kill"


async def test_nothing_is_lost_in_a_storm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = argparse.Namespace(
        nemesis=KINDS,
        minutes=MINUTES,
        nodes=3,
        each=0,
        acked=0,
        elastic=0,
        loopback=False,
        round_seconds=60.0,
    )
    storm = Storm(options, tmp_path, random.Random(1))

    async with asyncio.timeout(240):
        await storm.run()

    score = storm.score
    with capsys.disabled():
        for name, why in score.skipped.items():
            print(f"\nskipped {name}: {why}", end="")
    assert score.violations == score.findings == []
    assert score.lost == score.twice == score.two_values == 0
    assert score.acked > 500 and score.settles["acked"] > 50
    shown = sum(row.shown for row in score.rows.values())
    assert shown >= 2
    assert shown >= 0.7 * sum(row.asked for row in score.rows.values())
