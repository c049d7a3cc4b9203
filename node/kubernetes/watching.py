"""What is wanted of the StatefulSet: seen once, then watched, for as long as the node runs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing

from node.kubernetes.api import ApiProblem, KubernetesApi, StatefulSet
from node.metrics import Metrics
from node.runtime.logger import get_logger

PAUSE_FIRST_S = 0.2
PAUSE_MAX_S = 10.0
EXPIRED = 410

_log = get_logger("kubernetes")


class StatefulSetWatch:
    """Remembers the last that was seen; an API that is away changes nothing of it.

    `wanted` is the number of replicas, None before the set was seen and once it is deleted: then
    nothing is known of who should go, and nobody does. `changed` is called after each change.
    """

    def __init__(self, api: KubernetesApi, metrics: Metrics, changed: Callable[[], None]) -> None:
        self._api = api
        self._metrics = metrics.kubernetes
        self._changed = changed
        self._rng = random.Random()
        self._seen_s: float | None = None
        self._began_s = 0.0
        self._problem = ""
        self.wanted: int | None = None
        self.uid = ""
        metrics.before_render(self._tell)

    async def run(self) -> None:
        """Never returns."""
        pause_s, self._began_s = PAUSE_FIRST_S, asyncio.get_running_loop().time()
        while True:
            try:
                await self._follow()
                pause_s = PAUSE_FIRST_S
            except ApiProblem as problem:
                # what the watch had told is still true; what it missed, the next look tells
                pause_s = PAUSE_FIRST_S if problem.status == EXPIRED else pause_s * 2
                self._failed(problem)
            await asyncio.sleep(self._rng.uniform(0.5, 1.0) * min(pause_s, PAUSE_MAX_S))

    async def look(self) -> int | None:
        """What is wanted now. Raises ApiProblem."""
        try:
            self._note(await self._api.statefulset())
        except ApiProblem as problem:
            if problem.status != 404:
                raise
            self._note(None)
        return self.wanted

    # private

    async def _follow(self) -> None:
        found = await self._api.statefulset()
        self._note(found)
        async with aclosing(self._api.watch(found.metadata.resource_version)) as changes:
            async for change in changes:
                self._note(change)

    def _note(self, found: StatefulSet | None) -> None:
        self._seen_s = asyncio.get_running_loop().time()
        self._problem = ""
        goes = found is None or found.metadata.deletion_timestamp is not None
        wanted = None if found is None or goes else found.spec.replicas
        if found is not None:
            self.uid = found.metadata.uid
        if wanted != self.wanted:
            _log.info("replicas_wanted", replicas=wanted, before=self.wanted)
            self.wanted = wanted
            self._changed()

    def _failed(self, problem: ApiProblem) -> None:
        if problem.status == 404:
            self._note(None)
        elif problem.status != EXPIRED and str(problem) != self._problem:
            self._problem = str(problem)
            _log.warning("statefulset_not_seen", problem=self._problem, wanted=self.wanted)

    def _tell(self) -> None:
        now = asyncio.get_running_loop().time()
        since = self._began_s if self._seen_s is None else self._seen_s
        self._metrics.watch_age.set(now - since)
        self._metrics.replicas_wanted.set(-1 if self.wanted is None else self.wanted)
