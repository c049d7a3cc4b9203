"""`python -m tests.chaos --minutes M --nemesis ...`: faults of every kind, one after the other.

Every round has topics and a history of its own, which is judged when the round is over. Exit
status: 0 good, 1 a promise was broken, 2 the cluster failed, 3 acks resumed too slowly, 4 too
little happened to tell.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.cluster import ClusterError
from tests.chaos.http import Http
from tests.chaos.storm import ground
from tests.chaos.storm.kinds import COMBINED, SINGLE, available, expand
from tests.chaos.storm.round import Round
from tests.chaos.storm.score import Score
from tests.chaos.storm.site import Abilities, Site
from tests.chaos.storm.strikes import Striker
from tests.chaos.storm.watch import Watch
from tests.check.history import History

ROUND_S = 240.0
MINUTES = 10.0
AFTER_S = 1.0
"""Publishing goes on for so long after the last fault is healed."""


class Storm:
    """A site, and rounds of work and faults on it, until there was enough."""

    def __init__(self, options: argparse.Namespace, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self.rng = rng
        self.abilities = Abilities.loopback() if options.loopback else Abilities.here()
        asked = expand(options.nemesis)
        self.kinds, self.skipped = available(asked, self.abilities)
        self.score = Score(skipped=self.skipped)
        is_counted = options.each or options.elastic
        minutes: float = options.minutes or (math.inf if is_counted else MINUTES)
        self.ends = time.monotonic() + 60 * minutes
        self.each: int = options.each
        self.acked: int = options.acked
        self.round_s: float = options.round_seconds
        self.site = Site(folder, options.nodes, self.abilities, rng)
        self.http = Http()
        self.watch = Watch(self.site, self.http, rng)
        self._number = 0

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

    @property
    def is_over(self) -> bool:
        if self.each and self.score.has_enough(self.each, self.acked, self.kinds):
            return True
        return time.monotonic() > self.ends

    async def round(self) -> None:
        self._number += 1
        path = self.folder / f"round-{self._number}.jsonl"
        began = time.monotonic()
        with History(path) as history:
            work = Round(self._number, self.site, self.http, history, self.rng)
            try:
                await work.make()
                self.watch.topics = work.topics
                await self.watch.until_healthy()
                work.begin()
                striker = Striker(self.site, self.watch, history, work.tells, self.score, self.rng)
                await self.work_on(work, history, striker)
                await asyncio.sleep(AFTER_S)
                judged = await work.end()
            except BaseException:
                await work.abandon()
                self.score.add_round(work.judge(is_whole=False))
                raise
            self.score.add_round(judged)
            print(
                f"round {self._number}: {judged.acked} acked, {judged.log.lost} lost, "
                f"{len(judged.log.violations) + len(judged.queue.violations)} violations, "
                f"{time.monotonic() - began:.0f} s; {self.score.acked} acked in all",
                flush=True,
            )
            self.watch.topics = {}
            await work.delete()
        if judged.is_clean:
            path.unlink()

    async def work_on(self, work: Round, history: History, striker: Striker) -> None:
        """Strike until the round is over."""
        history.note("round", number=self._number, kinds=self.kinds)
        ends = min(time.monotonic() + self.round_s, self.ends)
        while time.monotonic() < ends and not self._has_faults():
            work.check_workers()
            await striker.strike(self._next(), work.log, work.queue)

    def _has_faults(self) -> bool:
        return bool(self.each) and self.score.has_enough(self.each, self.acked, self.kinds)

    def _next(self) -> str:
        """One of the kinds that were shown least."""
        counts = {kind: self.score.rows[kind].shown for kind in self.kinds}
        least = min(counts.values())
        return self.rng.choice([kind for kind, count in counts.items() if count <= least + 1])


async def run(options: argparse.Namespace, folder: Path) -> int:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}, folder {folder}", flush=True)
    for name in ground.clean_up():
        print(f"left by an earlier run, taken away: {name}", flush=True)
    storm = Storm(options, folder, random.Random(seed))
    for kind, why in sorted(storm.skipped.items()):
        print(f"skipped: {kind}: {why}", flush=True)
    failure: ClusterError | None = None
    try:
        await storm.run()
    except ClusterError as error:
        failure = error
    return conclude(storm.score, failure, storm.each, storm.acked, storm.kinds)


def conclude(
    score: Score, failure: Exception | None, each: int, acked: int, kinds: Sequence[str]
) -> int:
    for line in score.lines():
        print(line)
    if failure is not None:
        print(f"the cluster failed: {failure}")
    if not score.is_clean:
        return 1
    if failure is not None:
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
