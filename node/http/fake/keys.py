"""API keys in memory: the real state and the real desk, without a cluster to agree with."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, Result
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import Index
from log.levels import Feature, Levels
from node.security.key_admin import KeyAdmin
from node.security.key_checks import KeyChecks, KeyFigures


class FakeKeys(KeyAdmin):
    """Implements `KeyBroker`. `state` is the cluster's; `checks` proves what is made here."""

    def __init__(
        self,
        clock_ms: Callable[[], int],
        workers: ThreadPoolExecutor,
        figures: KeyFigures | None = None,
    ) -> None:
        self.state = ClusterState(1)
        self.levels = Levels(finished=Feature.SCOPES)
        self._clock_ms = clock_ms
        super().__init__(self, clock_ms, workers, random.Random(1))
        self.checks = KeyChecks(lambda: self.state.keys, clock_ms, workers, figures)

    async def command(self, command: Command, deadline_s: float) -> Result:
        index = Index(self.state.applied_index + 1)
        result = self.state.apply(index, self._clock_ms(), command)
        if isinstance(result, GoQueueError):
            raise result
        return result

    async def refresh(self) -> bool:
        return True
