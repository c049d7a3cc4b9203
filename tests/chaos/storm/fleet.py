"""`--clusters N`: so many storms at once, each a process with a cluster, networks, disks and a seed
of its own, all counted together.

Most of a fault's time is waiting: for it to last, for elections, for replicas to catch up. While
one cluster waits another one works. Each storm strikes with a kind that all of them together have
shown least.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from cli.local.processes import die_with_parent
from tests.chaos.cluster import ROOT
from tests.chaos.storm import elastic, ledger
from tests.chaos.storm.kinds import available, expand
from tests.chaos.storm.run import RESULT, TALLY, Bar, abilities, conclude, prepare, seed_of
from tests.chaos.storm.score import Score
from tests.chaos.storm.signals import told_by_signals
from tests.chaos.storm.tally import ACKED, Tally

TELLS_S = 60.0
_LINE_BYTES_MAX = 1 << 24
_PASSED_ON = (
    "nemesis",
    "protocols",
    "each",
    "acked",
    "minutes",
    "nodes",
    "rate",
    "elastic",
    "clusters",
)


class Fleet:
    """Storms in processes of their own, from `start` until all of them have ended."""

    def __init__(self, options: argparse.Namespace, folder: Path, seed: int, tally: Tally) -> None:
        self._options = options
        self._folder = folder
        self._seed = seed
        self._tally = tally
        self._storms: list[asyncio.subprocess.Process] = []

    async def run(self, kinds: Sequence[str]) -> None:
        """Passes on what they say, each line with the number of its storm."""
        parts = range(1, self._options.clusters + 1)
        try:
            for part in parts:
                self._storms.append(await self._start(part))
            telling = asyncio.create_task(self._tell_pace(kinds))
            try:
                async with asyncio.TaskGroup() as tasks:
                    for part, storm in zip(parts, self._storms, strict=True):
                        tasks.create_task(_relay(part, storm))
            finally:
                telling.cancel()
        except asyncio.CancelledError:
            self.tell()
            await asyncio.gather(*(storm.wait() for storm in self._storms))
            raise

    def tell(self) -> None:
        """Passes a signal on: the first one is to end in good order, the next at once."""
        for storm in self._storms:
            if storm.returncode is None:
                storm.send_signal(signal.SIGTERM)

    def results(self) -> tuple[Score, list[str]]:
        """What all of them came to, and what failed."""
        score, failures = Score(), list[str]()
        for part, storm in enumerate(self._storms, 1):
            path = _folder(self._folder, part) / RESULT
            if not path.exists():
                failures.append(f"storm {part} ended with {storm.returncode} and told nothing")
                continue
            told = json.loads(path.read_text())
            score.merge(Score.load(told["score"]))
            failures += [f"storm {part}: {failure}" for failure in told["failures"]]
        return score, failures

    async def _start(self, part: int) -> asyncio.subprocess.Process:
        folder = _folder(self._folder, part)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RESULT).unlink(missing_ok=True)
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos", *arguments(self._options, self._seed, part)),
            *("--folder", str(folder)),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent(),
            limit=_LINE_BYTES_MAX,
        )

    async def _tell_pace(self, kinds: Sequence[str]) -> None:
        began = time.monotonic()
        while True:
            await asyncio.sleep(TELLS_S)
            minutes = (time.monotonic() - began) / 60
            shown = {kind: self._tally.total(kind) for kind in kinds}
            least = min(shown, key=lambda kind: shown[kind])
            print(
                f"{minutes:.0f} min: {sum(shown.values())} faults, "
                f"{sum(shown.values()) / minutes:.1f} a minute, least {least} {shown[least]}, "
                f"{self._tally.total(ACKED)} acked",
                flush=True,
            )


async def run(options: argparse.Namespace, folder: Path) -> int:
    seed = seed_of(options)
    prepare(seed, folder)
    if options.elastic:
        options.nemesis = ",".join(elastic.STRIKES)
    kinds, _ = available(expand(options.nemesis), abilities(options))
    bar = Bar(options.each, options.acked, kinds)
    counted: list[str] = kinds
    if options.elastic:
        bar, counted = elastic.bar(options), elastic.counted(kinds)
    Tally.make(folder / TALLY, counted, options.clusters)
    fleet = Fleet(options, folder, seed, Tally(counted, folder / TALLY))
    began = time.monotonic()
    try:
        with told_by_signals(fleet.tell):
            await fleet.run(kinds)
    finally:
        score, failures = fleet.results()
        print(f"all {options.clusters} storms:")
        code = conclude(score, failures, bar.each, bar.acked, bar.kinds)
        ledger.write(options, seed, score, failures, (time.monotonic() - began) / 60, code)
    return code


def arguments(options: argparse.Namespace, seed: int, part: int) -> list[str]:
    """Of one of the storms."""
    own = random.Random(f"{seed} {part}").randrange(1 << 32)
    found = ["--part", str(part), "--seed", str(own)]
    found += ["--round-seconds", str(options.round_seconds)]
    for name in _PASSED_ON:
        if getattr(options, name):
            found += [f"--{name}", str(getattr(options, name))]
    return [*found, "--loopback"] if options.loopback else found


async def _relay(part: int, storm: asyncio.subprocess.Process) -> None:
    assert storm.stdout is not None
    async for line in storm.stdout:
        print(f"{part}| {line.decode(errors='replace').rstrip()}", flush=True)
    await storm.wait()


def _folder(folder: Path, part: int) -> Path:
    return folder / f"storm-{part}"
