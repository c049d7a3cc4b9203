"""`python -m tests.chaos --elastic N`: 3 nodes, 5, and 3 again, N times, under load, with a kill
and a partition in the middle of each move.

A time counts where each move was struck while it went on; `--elastic N` goes on until N do. Which
nodes leave is drawn from all five, so after a few times none is left of the first three.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos.cluster import ClusterError
from tests.chaos.http import NoAnswer
from tests.chaos.storm.round import Round
from tests.chaos.storm.run import AFTER_S, Bar, Storm, carry_out, prepare, seed_of
from tests.chaos.storm.score import Row
from tests.chaos.storm.site import StormNode
from tests.chaos.storm.strikes import Striker
from tests.chaos.storm.tally import begun
from tests.check.history import History

MOVES_S = 240.0
TRIES = 3
"""Times there and back for each that is to be met in the middle."""
THROTTLE_BYTES_S = 400_000
STRIKES = ("partition+kill",)
GROW, SHRINK = "3 to 5", "5 to 3"


class Elastic(Storm):
    """A round is one time there and back."""

    def __init__(self, options: argparse.Namespace, folder: Path, rng: random.Random) -> None:
        self._times: int = options.elastic
        self._met: list[str] = []
        """Moves of this round that were struck in their middle."""
        super().__init__(options, folder, rng)

    def counted(self) -> list[str]:
        return counted(self.kinds)

    async def round(self) -> None:
        """A move counts once its round was judged."""
        self._met.clear()
        for move in (GROW, SHRINK):
            self.tally.put(begun(move), 1)
        await super().round()
        for move in self._met:
            self.score.rows[move].shown += 1
        for move in (GROW, SHRINK):
            self.tally.put(begun(move), 0)
        self._put_counts()

    def _has_enough(self) -> bool:
        """All storms together; or this one has tried too often."""
        done = min(self.tally.done(move) for move in (GROW, SHRINK))
        tried = min(self.score.rows[move].asked for move in (GROW, SHRINK))
        return done >= self._times or tried >= TRIES * self._times

    async def work_on(self, work: Round, history: History, striker: Striker) -> None:
        await asyncio.sleep(AFTER_S)
        added = [await self.site.add(), await self.site.add()]
        names = [node.id for node in added]
        await self._until("new nodes are known", lambda: self._are(names, "active"))
        await self.watch.until_healthy()
        began = time.monotonic()
        body = {"throttle_bytes_per_sec": THROTTLE_BYTES_S}
        await self._ask("POST", "/admin/cluster/rebalance", body)
        await self._strike(GROW, work, striker)
        await self._until("moves have ended", self._nothing_moves)
        self._moved(history, GROW, names, began)

        leaving = self.rng.sample(self.site.members, 2)
        names = [node.id for node in leaving]
        began = time.monotonic()
        for name in names:
            await self._ask("POST", f"/admin/brokers/{name}/drain", body)
        await self._strike(SHRINK, work, striker)
        await self._until("leaving nodes are empty", lambda: self._are(names, "drained"))
        await self._leave(leaving)
        self._moved(history, SHRINK, names, began)
        await self.watch.until_healthy()

    async def _strike(self, move: str, work: Round, striker: Striker) -> None:
        """A kill and a partition; counted as in the middle of the move if it went on then."""
        row = self.score.rows[move]
        row.asked += 1
        is_in_the_middle = True
        for kind in self.rng.sample(STRIKES, len(STRIKES)):
            is_in_the_middle &= not await self._nothing_moves()
            await striker.strike(kind, work.log, work.queue)
        if is_in_the_middle:
            self._met.append(move)

    async def _leave(self, leaving: Sequence[StormNode]) -> None:
        for node in leaving:
            await self._ask("DELETE", f"/admin/brokers/{node.id}", None, by=self._stayers(leaving))
            await self.site.remove(node)

    def _stayers(self, leaving: Sequence[StormNode]) -> list[StormNode]:
        return [node for node in self.site.members if node not in leaving]

    def _moved(self, history: History, move: str, names: list[str], began: float) -> None:
        took_s = time.monotonic() - began
        row: Row = self.score.rows[move]
        row.healed_s.append(took_s)
        history.note("moved", move=move, nodes=names, took_s=took_s)
        print(f"{move} ({row.asked}): {', '.join(names)} in {took_s:.1f} s", flush=True)

    async def _are(self, names: Sequence[str], state: str) -> bool:
        found = await self._get("/admin/brokers")
        states = {broker["id"]: (broker["state"], broker["up"]) for broker in found["brokers"]}
        return all(states.get(name) == (state, True) for name in names)

    async def _nothing_moves(self) -> bool:
        found = await self._get("/admin/reassignment?running=true")
        return found["count"] == 0

    async def _until(self, what: str, condition: Any) -> None:
        ends = time.monotonic() + MOVES_S
        while not await condition():
            if time.monotonic() > ends:
                said = await self._get("/admin/cluster")
                raise ClusterError(f"not within {MOVES_S:.0f} s: {what}: {said}")
            for node in self.site.members:
                if not node.is_there:
                    raise ClusterError(f"{node.id} ended by itself:\n{node.tail()}")
            await asyncio.sleep(0.25)

    async def _get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = await self._ask("GET", path, None)
        return found

    async def _ask(
        self, method: str, path: str, body: object, *, by: Sequence[StormNode] = ()
    ) -> Any:
        """Of any node, until it is done."""
        ends, said = time.monotonic() + MOVES_S, ""
        while time.monotonic() < ends:
            node = self.rng.choice(by or self.site.members)
            try:
                answer = await self.http.ask(method, node.url + path, json=body)
            except NoAnswer as error:
                said = str(error)
            else:
                if answer.status < 300:
                    return answer.body
                said = f"{answer.status} {answer.body}"
            await asyncio.sleep(0.25)
        raise ClusterError(f"{method} {path}: {said}")


def counted(kinds: Sequence[str]) -> list[str]:
    return [*kinds, GROW, SHRINK]


def bar(options: argparse.Namespace) -> Bar:
    return Bar(options.elastic, 0, (GROW, SHRINK))


async def run(options: argparse.Namespace, folder: Path) -> int:
    seed = seed_of(options)
    if not options.part:
        prepare(seed, folder)
    options.nemesis = ",".join(STRIKES)
    storm = Elastic(options, folder, random.Random(seed))
    return await carry_out(storm, options, seed, bar(options))
