"""Strikes: a fault, or two at once, from its beginning until all is well again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from tests.chaos.storm.disk_faults import Flip
from tests.chaos.storm.faults import Fault
from tests.chaos.storm.kinds import COMBINED, SINGLE
from tests.chaos.storm.round import SharedHistory
from tests.chaos.storm.score import Score
from tests.chaos.storm.site import Site, StormNode
from tests.chaos.storm.tally import Tally, begun
from tests.chaos.storm.watch import Watch, choose
from tests.check.history import Event, History

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

    async def strike(self, kind: str, topic: str, *others: str, beside: str = "") -> None:
        """One strike; returns when the cluster is healthy. `beside` strikes another node at the
        same time. Raises ClusterError."""
        kinds = [kind, beside] if beside else [kind]
        for one in kinds:
            self._tally.put(begun(one), 1)
        try:
            await self._strike(kinds, topic, *others)
        finally:
            for one in kinds:
                self._tally.put(begun(one), 0)
        await asyncio.sleep(self._rng.uniform(*BETWEEN_S))

    async def _strike(self, kinds: Sequence[str], topic: str, *others: str) -> None:
        leaders = await self._watch.leaders(topic)
        wanted = [*leaders, *await self._watch.leaders(self._rng.choice([topic, *others]))]
        victim = choose(self._site.members, wanted, self._rng)
        strikes = [self._faults(kinds[0], victim)]
        if len(kinds) == 2:
            strikes.append(self._faults(kinds[1], self._rng.choice(self._site.others(victim))))
        faults = [fault for strike in strikes for fault in strike]
        struck = [
            sorted({node.id for fault in strike for node in fault.struck()}) for strike in strikes
        ]
        self._tells.trouble(
            "begins", fault="; ".join(kinds), nodes=[node for nodes in struck for node in nodes]
        )
        at = time.monotonic()
        goes_on = asyncio.create_task(self._goes_on())
        try:
            effects = await self._do_all(strikes)
            until = time.monotonic()
            healthy_s = await self._watch.until_healthy(
                may_exit=any(fault.may_exit for fault in faults)
            )
        finally:
            goes_on.cancel()
        for fault in faults:
            self._score.findings += fault.findings
        for kind, nodes, shown in zip(kinds, struck, effects, strict=True):
            self._history.fault(
                kind,
                nodes,
                [number for number, leader in enumerate(leaders) if leader in nodes],
                at=at,
                until=until,
                effect="; ".join(shown) if all(shown) else "",
                healthy_s=healthy_s,
                beside=[other for other in kinds if other != kind],
            )
            self._add(self._history.events[-1])
        self._score.restarts += self._watch.restarts
        self._watch.restarts = []
        self._tells.trouble("healthy")

    def _add(self, event: Event) -> None:
        kind = event["fault"]
        self._score.add_fault(event)
        self._tally.put(kind, self._score.rows[kind].shown)
        beside = f" (beside {event['beside'][0]})" if event["beside"] else ""
        print(
            f"{kind} {self._tally.total(kind)}: {', '.join(event['nodes'])}{beside}: "
            f"{event['effect'] or 'NOT SHOWN'}; held {event['until'] - event['at']:.1f} s, "
            f"healthy after {event['healthy_s']:.1f} s{self._waited()}, "
            f"{self._history.acked} acked",
            flush=True,
        )

    async def _do_all(self, strikes: Sequence[list[Fault]]) -> list[list[str]]:
        """All at once; what shows each. Whatever happens, all that began are ended."""
        done = await asyncio.gather(
            *(self._do(faults) for faults in strikes), return_exceptions=True
        )
        for found in done:
            if isinstance(found, BaseException):
                raise found
        return [found for found in done if not isinstance(found, BaseException)]

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
