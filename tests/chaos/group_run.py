"""A group on a running cluster whose members come, go and die, or whose brokers are restarted.

Exit status: 0 good, 1 a promise was broken, 2 the cluster failed, 3 a partition waited too long,
4 nothing was shown.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from tests.chaos import group_windows
from tests.chaos.cluster import Cluster, ClusterError, Node
from tests.chaos.group_crew import Crew, Journal
from tests.chaos.group_publisher import SteadyPublisher
from tests.chaos.group_watch import GroupWatch
from tests.chaos.group_windows import JOIN, KILL, LEAVE, Change, Figures, Waits
from tests.chaos.http import Http
from tests.chaos.nemesis import Nemesis
from tests.check.groupcase import GroupCase
from tests.check.groupcheck import Verdict, check
from tests.check.history import Event, History, load

TOPIC = "stream"
GROUP = "crew"
PARTITIONS = 12
MEMBERS = 6
RATE = 500.0
SESSION_S = 2.0
WINDOW_S = 1.5
"""Of a join or a leave; of a kill the session timeout comes on top."""
CALM_S = 0.5
WARM_UP_S = 5.0
VISIBILITY = "10s"
ATTEMPTS_MAX = 100


class Stage:
    """A cluster under load, with everything that acts on it or watches it."""

    def __init__(
        self,
        folder: Path,
        http: Http,
        nodes: int = 3,
        seed: int | None = None,
        rate: float = RATE,
        session_s: float = SESSION_S,
    ) -> None:
        """`rate`: messages that are published each second; `session_s`: how long a member may be
        silent."""
        self.seed = seed if seed is not None else random.SystemRandom().randrange(1 << 32)
        self.rng = random.Random(self.seed)
        self.http = http
        self.cluster = Cluster(folder, nodes)
        self.journal = Journal(folder / "run.jsonl")
        self.history = folder / "run.jsonl"
        workers = folder / "workers"
        workers.mkdir(parents=True, exist_ok=True)
        told = {"group": GROUP, "topic": TOPIC, "session_s": session_s}
        self.crew = Crew(self.cluster, workers, told)
        self.watch = GroupWatch(self.cluster, http, GROUP, self.journal)
        self.nemesis = Nemesis(self.cluster, http, TOPIC, History(), self.rng)
        self.publisher = SteadyPublisher(
            self.cluster, http, TOPIC, PARTITIONS, rate, self.journal, self.rng
        )

    async def make(self) -> None:
        """The topic, the group, and all that belong to it."""
        await self.cluster.start()
        replicas = len(self.cluster.nodes)
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": replicas}
        await self.watch.ask("POST", "/topics", topic)
        settings = {"visibility_timeout": VISIBILITY, "max_attempts": ATTEMPTS_MAX}
        await self.watch.ask("PUT", f"/groups/{GROUP}", settings)
        await self.nemesis.wait_until_healthy()
        for _ in range(MEMBERS):
            await self.crew.join()
        await self.settled()
        await self.watch.receipts()

    async def settled(self) -> None:
        await self.watch.settled([worker.name for worker in self.crew.members])

    async def under_load(self, act: Callable[[], Awaitable[None]]) -> None:
        """Act while messages stream; then let the group finish, and everybody leave."""
        failure: ClusterError | None = None
        gc.collect()
        gc.freeze()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.publisher.run())
            await asyncio.sleep(WARM_UP_S)
            try:
                await act()
            except ClusterError as error:
                failure = error
            self.publisher.stop()
        if failure is not None:
            raise failure
        await self.watch.drained()
        self.crew.check()

    def events(self) -> list[Event]:
        return [*load(self.history), *self.crew.events()]

    async def close(self) -> None:
        await self.crew.end()
        await self.http.close()
        await self.cluster.stop()


async def run(options: argparse.Namespace, folder: Path) -> int:
    """Members come and go."""
    stage = Stage(folder, Http(), options.nodes, options.seed)
    print(f"seed {stage.seed}, folder {folder}", flush=True)
    verdict, found, waits = await come_and_go(stage, options.changes)
    if options.figures is not None:
        found.write(options.figures)
    tell(stage, verdict, [*group_windows.lines(found), *waits.by_kind()])
    return group_windows.exit_code(found, options.changes)


async def come_and_go(stage: Stage, count: int) -> tuple[Verdict, Figures, Waits]:
    """So many changes under load: what was broken, and who waited for how long."""
    changes: list[Change] = []

    async def act() -> None:
        for number, kind in enumerate(islice(plan(stage.rng), count), 1):
            changes.append(await _change(stage, kind))
            moved = " ".join(map(str, changes[-1].moved))
            print(f"{number}: {kind} of {changes[-1].member} moved {moved}", flush=True)

    try:
        await stage.make()
        await stage.under_load(act)
    finally:
        await stage.close()
    events = stage.events()
    verdict = check(events)
    waits = group_windows.measure(GroupCase(events), changes, PARTITIONS)
    found = group_windows.figures(
        waits,
        changes,
        rate=stage.publisher.rate,
        session_s=SESSION_S,
        violations=len(verdict.violations),
    )
    return verdict, found, waits


@dataclass(frozen=True, slots=True)
class Rolled:
    """What became of a group while all brokers were restarted."""

    verdict: Verdict
    before: dict[str, int]
    """The consumers' processes."""
    after: dict[str, int]
    """Those that still run."""
    rebalances: int
    moved: int

    @property
    def is_good(self) -> bool:
        return self.verdict.is_clean and self.before == self.after and not self.moved


async def roll(options: argparse.Namespace, folder: Path) -> int:
    """All brokers are restarted, one after the other; nobody's partitions move."""
    stage = Stage(folder, Http(), options.nodes, options.seed)
    print(f"seed {stage.seed}, folder {folder}", flush=True)
    found = await restart_brokers(stage)
    lines = [
        f"brokers restarted     {len(stage.cluster.nodes)}",
        f"consumers             {len(found.after)} of {len(found.before)} still running",
        f"rebalances            {found.rebalances}, {found.moved} partitions moved   (must be 0)",
        f"longest gap           {_longest_gap(stage):.2f} s in a partition",
        f"violations            {len(found.verdict.violations)}   (must be 0)",
    ]
    tell(stage, found.verdict, lines)
    if not found.is_good:
        return 1
    return 0 if found.verdict.acked else 4


async def restart_brokers(stage: Stage) -> Rolled:
    """Each by SIGTERM, under load."""
    before: dict[str, int] = {}

    async def act() -> None:
        before.update({worker.name: worker.pid for worker in stage.crew.members})
        for node in stage.cluster.nodes:
            took_s = await _restart(stage, node)
            print(f"restarted {node.id}: healthy after {took_s:.1f} s", flush=True)
        await asyncio.sleep(CALM_S)
        await stage.settled()

    try:
        await stage.make()
        await stage.under_load(act)
        receipts = await stage.watch.receipts()
        after = {worker.name: worker.pid for worker in stage.crew.members if worker.is_running}
    finally:
        await stage.close()
    moved = sum(len(one["moves"]) for one in receipts)
    return Rolled(check(stage.events()), before, after, len(receipts), moved)


def plan(rng: random.Random) -> Iterator[str]:
    """Who comes, leaves and dies, for ever: the first three are one of each, and there are always
    one fewer, as many, or one more than in the beginning."""
    yield from (JOIN, LEAVE, KILL, JOIN)
    while True:
        for gone in (LEAVE, KILL):
            yield from rng.choice(((JOIN, gone), (gone, JOIN)))


def tell(stage: Stage, verdict: Verdict, lines: list[str]) -> None:
    for line in (*verdict.lines(), *verdict.counts(), *lines):
        print(line)
    print(f"errors seen           {dict(sorted(stage.publisher.errors.items()))}", flush=True)


async def _change(stage: Stage, kind: str) -> Change:
    """A window without a change, then one with it. The process of a member who may join next is
    started before both."""
    crew = stage.crew
    await crew.prepare()
    await asyncio.sleep(CALM_S)
    window_s = WINDOW_S + (SESSION_S if kind == KILL else 0.0)
    control = time.monotonic()
    await asyncio.sleep(window_s)
    victim = stage.rng.choice(crew.members)
    began = time.monotonic()
    if kind == JOIN:
        victim = await crew.join()
    elif kind == LEAVE:
        await crew.leave(victim)
    else:
        stage.journal.add("died", member=victim.name)
        await crew.kill(victim)
    await asyncio.sleep(max(0.0, began + window_s - time.monotonic()))
    await stage.settled()
    crew.check()
    moves = [move for one in await stage.watch.receipts() for move in one["moves"]]
    moved = sorted({move["partition"] for move in moves})
    found = Change(kind, victim.name, began, window_s, control, moved)
    stage.journal.add("change", change=asdict(found))
    return found


async def _restart(stage: Stage, node: Node) -> float:
    """SIGTERM, and the same command again; seconds until all are in step."""
    stage.journal.add("trouble", text=f"SIGTERM to {node.id}")
    began = time.monotonic()
    node.stop()
    await node.gone()
    stage.cluster.restart(node)
    await stage.nemesis.wait_until_healthy()
    took_s = time.monotonic() - began
    await asyncio.sleep(CALM_S)
    stage.crew.check()
    return took_s


def _longest_gap(stage: Stage) -> float:
    """Of all partitions, while messages streamed."""
    case = GroupCase(stage.events())
    times = {p: [one.came for one in found] for p, found in case.deliveries.items()}
    return max(
        (group_windows.longest_gap(found, found[0], found[-1]) for found in times.values()),
        default=0.0,
    )
