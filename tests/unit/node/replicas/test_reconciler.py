"""What the cluster state says is made so, however often that takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from coordinator.cluster.state import ClusterState
from goqueue.wire.types import PartitionId, TopicId
from node.cluster.host import ClusterHost
from node.replicas import reconciler
from node.replicas.local import Replicas
from node.replicas.reconciler import Reconciler


class Scene:
    """Replicas that fail, or wait, as often as they are told to."""

    def __init__(self) -> None:
        self.fails = self.waits = self.runs = 0
        self.waiting: list[PartitionId] = []
        self.done = asyncio.Event()
        state = ClusterState(9)
        cluster = cast(ClusterHost, SimpleNamespace(state=state, is_newest=True))
        self.reconciler = Reconciler(cluster, cast(Replicas, self))

    async def reconcile(self, _state: ClusterState, *, may_found: bool) -> None:
        self.runs += 1
        if self.runs <= self.fails:
            raise OSError("a test")
        self.waiting = [PartitionId(TopicId(7, 1), 0)] if self.runs <= self.waits else []
        if not self.waiting and may_found:
            self.done.set()

    def stop_all(self) -> None:
        return None


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(reconciler, "RETRY_S", 0.0)
    monkeypatch.setattr(reconciler, "LOOK_S", 0.0)
    scene = Scene()
    await scene.reconciler.start()
    yield scene
    await scene.reconciler.stop()


async def test_what_could_not_be_reconciled_is_tried_again(scene: Scene) -> None:
    scene.fails = 3

    scene.reconciler.changed()
    async with asyncio.timeout(20):
        await scene.done.wait()

    assert scene.runs == 4


async def test_those_that_wait_to_be_founded_are_looked_at_again(scene: Scene) -> None:
    scene.waits = 3

    scene.reconciler.changed()
    async with asyncio.timeout(20):
        await scene.done.wait()

    assert scene.runs == 4
