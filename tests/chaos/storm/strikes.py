"""Strikes: a fault, or two at once, from its beginning until all is well again."""

from __future__ import annotations

import asyncio
import random
import time

from tests.chaos.storm.disk_faults import Flip
from tests.chaos.storm.faults import Fault
from tests.chaos.storm.kinds import COMBINED, SINGLE
from tests.chaos.storm.round import SharedHistory
from tests.chaos.storm.score import Score
from tests.chaos.storm.site import Site, StormNode
from tests.chaos.storm.tally import Tally, begun
from tests.chaos.storm.watch import Watch, choose
from tests.check.history import History

BETWEEN_S = (0.2, 0.6)
TOLD_S = 1.0
WAITED_CHARACTERS = 160


class Striker:
    """Strikes the nodes of a site, the leaders first; tells the history and the score."""

    def __init__(
        self,
        site: Site,
        watch: Watch,
        history: History,
        tells: SharedHistory,
        score: Score,
        tally: Tally,
        rng: random.Random,
    ) -> None:
        self._site = site
        self._watch = watch
        self._history = history
        self._tells = tells
        self._score = score
        self._tally = tally
        self._rng = rng

    async def strike(self, kind: str, topic: str, *others: str) -> None:
        """One strike; returns when the cluster is healthy. Raises ClusterError."""
        self._tally.put(begun(kind), 1)
        try:
            await self._strike(kind, topic, *others)
        finally:
            self._tally.put(begun(kind), 0)
        await asyncio.sleep(self._rng.uniform(*BETWEEN_S))

    async def _strike(self, kind: str, topic: str, *others: str) -> None:
        leaders = await self._watch.leaders(topic)
        wanted = [*leaders, *await self._watch.leaders(self._rng.choice([topic, *others]))]
        faults = self._faults(kind, choose(self._site.members, wanted, self._rng))
        struck = {node.id for fault in faults for node in fault.struck()}
        self._tells.trouble("begins", fault=kind, nodes=sorted(struck))
        at = time.monotonic()
        goes_on = asyncio.create_task(self._goes_on())
        try:
            effects = await self._do(faults)
            until = time.monotonic()
            healthy_s = await self._watch.until_healthy(
                may_exit=any(fault.may_exit for fault in faults)
            )
        finally:
            goes_on.cancel()
        for fault in faults:
            self._score.findings += fault.findings
        self._history.fault(
            kind,
            sorted(struck),
            [number for number, leader in enumerate(leaders) if leader in struck],
            at=at,
            until=until,
            effect="; ".join(effects) if all(effects) else "",
            healthy_s=healthy_s,
        )
        event = self._history.events[-1]
        self._score.add_fault(event)
        self._tally.put(kind, self._score.rows[kind].shown)
        self._score.restarts += self._watch.restarts
        self._watch.restarts = []
        self._tells.trouble("healthy")
        print(
            f"{kind} {self._tally.total(kind)}: {', '.join(sorted(struck))}: "
            f"{event['effect'] or 'NOT SHOWN'}; held {until - at:.1f} s, "
            f"healthy after {healthy_s:.1f} s{self._waited()}, {self._history.acked} acked",
            flush=True,
        )

    def _waited(self) -> str:
        said = self._watch.waited_for
        return f" (last: {said[:WAITED_CHARACTERS]})" if said else ""

    async def _goes_on(self) -> None:
        """Trouble is told as moments."""
        while True:
            await asyncio.sleep(TOLD_S)
            self._tells.trouble("goes on")

    async def _do(self, faults: list[Fault]) -> list[str]:
        """What shows each of them. They overlap; whatever happens, all that began are ended."""
        begun: list[Fault] = []
        effects: list[str] = []
        try:
            for fault in faults:
                if begun:
                    await asyncio.sleep(self._rng.uniform(0.0, 0.8))
                await fault.begin()
                begun.append(fault)
            for fault in begun:
                await fault.last()
        finally:
            for fault in begun:
                effects.append(await fault.end())
        return effects

    def _faults(self, kind: str, victim: StormNode) -> list[Fault]:
        names = COMBINED.get(kind, (kind,))
        faults = [SINGLE[name](self._site, victim, self._rng) for name in names]
        if len(faults) == 2 and self._rng.random() < 0.5:
            faults[1].victim = self._rng.choice(self._site.others(victim))
        elif len(faults) == 2 and isinstance(faults[0], Flip):
            faults[0].is_at_rest = False
        return faults
