"""Two minutes of `make chaos`: every fault that this machine can make, on real nodes under
load, checked over one history. Without root it is the part that needs none."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.cluster import ROOT
from tests.chaos.storm.run import Storm

MINUTES = 2.0
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
        rate=0.0,
        part=0,
        protocols="",
    )
    storm = Storm(options, tmp_path, random.Random(1))

    async with asyncio.timeout(360):
        await storm.run()

    score = storm.score
    with capsys.disabled():
        for name, why in score.skipped.items():
            print(f"\nskipped {name}: {why}", end="")
    assert score.violations == score.findings == []
    assert score.lost == score.twice == score.two_values == 0
    assert score.acked > 2000 and score.settles["acked"] > 50
    shown = sum(row.shown for row in score.rows.values())
    assert shown >= 8
    assert shown >= 0.7 * sum(row.asked for row in score.rows.values())


async def test_a_run_on_two_clusters_that_is_told_to_end_judges_what_there_was(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.jsonl"
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.chaos", "--nemesis", "kill,pause", "--minutes", "9"),
        *("--clusters", "2", "--rate", "200", "--seed", "5", "--folder", str(tmp_path / "run")),
        *("--ledger", str(path)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert run.stdout is not None
    said: list[str] = []

    async with asyncio.timeout(360):
        while not {"1", "2"} <= {line[0] for line in said if "healthy after" in line}:
            said.append((await run.stdout.readline()).decode())
        run.terminate()
        said += (await run.stdout.read()).decode().splitlines()
        code = await run.wait()

    told = json.loads(path.read_text())
    faults = [line for line in said if "healthy after" in line and "NOT SHOWN" not in line]
    assert told["exit"] == code and code in (0, 4), "\n".join(said)
    assert sum(told["shown"].values()) == len(faults) >= 2
    assert told["acked"] > 0 and told["unjudged"] == told["lost"] == 0
    assert told["failures"] == []
    assert sum("violations" in line and "round 1:" in line for line in said) == 2
