"""`python -m tests.chaos --minutes M --nemesis ...`: faults of every kind, one after the other.

Every round has topics and a history of its own, which is judged when the round is over. With
`--clusters N` so many storms go on at once, see fleet. SIGTERM or Ctrl-C ends it after the fault
that stands, with all that was done judged; the second one at once. Exit status: 0 good, 1 a promise
was broken, 2 the cluster failed, 3 acks resumed too slowly, 4 too little happened to tell.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.cluster import ClusterError
from tests.chaos.http import Http
from tests.chaos.storm import ground, ledger
from tests.chaos.storm.kinds import BESIDE, COMBINED, SINGLE, available, expand
from tests.chaos.storm.round import Load, Round
from tests.chaos.storm.score import Score
from tests.chaos.storm.signals import told_by_signals
from tests.chaos.storm.site import Abilities, Site
from tests.chaos.storm.speakers import LISTENERS, PROTOCOLS
from tests.chaos.storm.strikes import Striker
from tests.chaos.storm.tally import ACKED, Tally
from tests.chaos.storm.watch import Watch
from tests.check.history import History

ROUND_S = 240.0
MINUTES = 10.0
AFTER_S = 1.0
"""Publishing goes on for so long after the last fault is healed."""
TALLY = "tally"
RESULT = "result.json"


class Storm:
    """A site, and rounds of work and faults on it, until there was enough."""

    def __init__(self, options: argparse.Namespace, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self.rng = rng
        self.abilities = abilities(options)
        self.kinds, self.skipped = available(expand(options.nemesis), self.abilities)
        self.score = Score(skipped=self.skipped)
        is_counted = options.each or options.elastic
        minutes: float = options.minutes or (math.inf if is_counted else MINUTES)
        self.ends = time.monotonic() + 60 * minutes
        self.is_told = False
        self.each: int = options.each
        self.acked: int = options.acked
        self.round_s: float = options.round_seconds
        self.load = Load.of_rate(options.rate) if options.rate else Load()
        self.protocols = [name for name in options.protocols.split(",") if name]
        listeners = [name for name in self.protocols if name in LISTENERS]
        self.site = Site(folder, options.nodes, self.abilities, rng, listeners)
        self.http = Http()
        self.watch = Watch(self.site, self.http, rng)
        self.tally = self._tally(options.part)
        self._number = 0

    def _tally(self, part: int) -> Tally:
        """Shared where this is one of several storms."""
        if not part:
            return Tally(self.counted())
        return Tally(self.counted(), self.folder.parent / TALLY, part - 1)

    def counted(self) -> list[str]:
        """What is counted over all storms."""
        return self.kinds

    async def run(self) -> None:
        """Raises ClusterError when the cluster does not come back; the score stands then, too."""
        try:
            await self.site.start()
            await self.watch.until_healthy()
            while not self.is_over:
                await self.round()
        finally:
            await self.http.close()
            await self.site.stop()

    def tell(self) -> None:
        """It ends after the fault that stands, and judges what there was."""
        self.is_told = True
        self.ends = time.monotonic()

    @property
    def is_over(self) -> bool:
        return self._has_enough() or time.monotonic() > self.ends

    async def round(self) -> None:
        self._number += 1
        path = self.folder / f"round-{self._number}.jsonl"
        began = time.monotonic()
        with History(path) as history:
            work = Round(
                *(self._number, self.site, self.http, history, self.rng, self.load),
                self.protocols,
            )
            try:
                await work.make()
                self.watch.topics = work.topics
                await self.watch.until_healthy()
                work.begin()
                made = time.monotonic()
                striker = Striker(
                    *(self.site, self.watch, history, work.tells),
                    *(self.score, self.tally, self.rng),
                )
                await self.work_on(work, history, striker)
                await asyncio.sleep(AFTER_S)
                struck = time.monotonic()
                judged = await work.end()
            except BaseException:
                await work.abandon()
                self.score.add_round(work.judge(is_whole=False), is_whole=False)
                self._put_counts()
                raise
            self.score.add_round(judged)
            self._put_counts()
            parts = {"make": made - began, "faults": struck - made, **work.took_s}
            broken = [*judged.log.violations, *judged.queue.violations, *judged.spoken]
            print(
                f"round {self._number}: {judged.acked} acked, {judged.log.lost} lost, "
                f"{len(broken)} violations, "
                f"{time.monotonic() - began:.0f} s "
                f"({', '.join(f'{part} {took_s:.0f}' for part, took_s in parts.items())}); "
                f"{self.tally.total(ACKED)} acked in all",
                flush=True,
            )
            self.watch.topics = {}
            await work.delete()
        if judged.is_clean:
            path.unlink()

    async def work_on(self, work: Round, history: History, striker: Striker) -> None:
        """Strike until the round is over."""
        history.note("round", number=self._number, kinds=self.kinds)
        ends = time.monotonic() + self.round_s
        while time.monotonic() < ends and not self.is_over:
            work.check_workers()
            kind = self._next()
            await striker.strike(kind, work.log, work.queue, beside=self._beside(kind))
            self.tally.put(ACKED, self.score.acked + history.acked)

    def _has_enough(self) -> bool:
        """All storms together."""
        tally = self.tally
        return bool(self.each) and (
            tally.total(ACKED) >= self.acked
            and all(tally.total(kind) >= self.each for kind in self.kinds)
        )

    def _put_counts(self) -> None:
        self.tally.put(ACKED, self.score.acked)
        for kind in self.counted():
            self.tally.put(kind, self.score.rows[kind].shown)

    def _next(self) -> str:
        """One of the kinds that were shown least; first those that strike beside no other."""
        least = self._least()
        return self.rng.choice([kind for kind in least if kind not in BESIDE] or least)

    def _beside(self, kind: str) -> str:
        """One of those shown least that may strike beside this kind, or nothing."""
        fit = [other for other in self._least() if kind in BESIDE.get(other, ())]
        return self.rng.choice(fit) if fit else ""

    def _least(self) -> list[str]:
        counts = {kind: self.tally.done(kind) for kind in self.kinds}
        least = min(counts.values())
        return [kind for kind, count in counts.items() if count <= least + 1]


@dataclass(frozen=True, slots=True)
class Bar:
    """What is to be reached."""

    each: int
    acked: int
    kinds: Sequence[str]


def abilities(options: argparse.Namespace) -> Abilities:
    return Abilities.loopback() if options.loopback else Abilities.here()


def seed_of(options: argparse.Namespace) -> int:
    """That of the options, or one that is drawn."""
    if options.seed is None:
        return random.SystemRandom().randrange(1 << 32)
    return int(options.seed)


def prepare(seed: int, folder: Path) -> None:
    """Tells the seed, and takes away what earlier runs left."""
    print(f"seed {seed}, folder {folder}", flush=True)
    for name in ground.clean_up():
        print(f"left by an earlier run, taken away: {name}", flush=True)


async def run(options: argparse.Namespace, folder: Path) -> int:
    seed = seed_of(options)
    if not options.part:
        prepare(seed, folder)
    storm = Storm(options, folder, random.Random(seed))
    return await carry_out(storm, options, seed, Bar(storm.each, storm.acked, storm.kinds))


async def carry_out(storm: Storm, options: argparse.Namespace, seed: int, bar: Bar) -> int:
    """Runs a storm; however it ends, what it came to is told, and written down where asked for."""
    for kind, why in sorted(storm.skipped.items()):
        print(f"skipped: {kind}: {why}", flush=True)
    failures: list[str] = []
    began = time.monotonic()
    try:
        with told_by_signals(storm.tell):
            await storm.run()
    except ClusterError as error:
        failures.append(str(error))
    except asyncio.CancelledError:
        failures.append("ended at once, as it was told")
        raise
    except Exception as error:
        failures.append(repr(error))
        raise
    finally:
        code = conclude(storm.score, failures, bar.each, bar.acked, bar.kinds)
        if options.part:
            tell_result(storm, failures)
        else:
            minutes = (time.monotonic() - began) / 60
            ledger.write(options, seed, storm.score, failures, minutes, code)
    return code


def tell_result(storm: Storm, failures: list[str]) -> None:
    """To the run that this storm is a part of."""
    result: dict[str, Any] = {"score": storm.score.dump(), "failures": failures}
    (storm.folder / RESULT).write_text(json.dumps(result))


def conclude(
    score: Score, failures: Sequence[str], each: int, acked: int, kinds: Sequence[str]
) -> int:
    for line in score.lines():
        print(line)
    for failure in failures:
        print(f"the cluster failed: {failure}")
    if not score.is_clean:
        return 1
    if failures:
        return 2
    if not score.acked or not score.has_enough(max(each, 1), acked, kinds):
        return 4
    return 3 if each and score.misses_targets() else 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("faults of every kind")
    group.add_argument(
        "--nemesis",
        default=None,
        help=f"of {','.join([*SINGLE, *COMBINED])}; `all` is all of them, `power` both power cuts",
    )
    group.add_argument(
        "--elastic", type=int, default=0, metavar="TIMES", help="from 3 nodes to 5 and back"
    )
    group.add_argument("--loopback", action="store_true", help="do without what root may do")
    group.add_argument("--each", type=int, default=0, help="until each kind was shown so often")
    group.add_argument("--acked", type=int, default=0, help="and so many sends were acked")
    group.add_argument("--round-seconds", type=float, default=ROUND_S, help="of one history")
    group.add_argument("--clusters", type=int, default=1, help="storms on so many at once")
    group.add_argument(
        "--rate", type=float, default=0.0, help="about so many sends a second in each cluster"
    )
    group.add_argument(
        "--protocols", default="", help=f"clients of these besides: {','.join(PROTOCOLS)}"
    )
    group.add_argument("--ledger", type=Path, default=None, help="a line of this run is added here")
    group.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
