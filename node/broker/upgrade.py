"""Upgrades between versions: which levels the brokers speak, and finishing the next one.

A level is finished once every registered broker speaks it and is there; by command, or by whoever
leads the cluster group where `cluster.autoFinish` is set. From then on older versions can't come
back: docs/internals/feature-levels.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator.brokers.registry import Broker
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, Result
from coordinator.commands.placement import FinishLevel
from coordinator.errors import UpgradeWaits
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId
from log.levels import NotFinished, Spoken
from node.api.node import NodeView
from node.api.upgrade import BrokerVersion, LevelsView, VersionView
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.runtime.version import VERSION

COMMAND_DEADLINE_S = 15.0
LOOK_S = 2.0
ALIVE = "alive"

_log = get_logger("cluster")


class Cluster(Protocol):
    """The cluster group, as `node.cluster.host.ClusterHost` is it."""

    @property
    def state(self) -> ClusterState: ...

    async def command(self, command: Command, deadline_s: float) -> Result: ...

    async def refresh(self) -> bool: ...

    def spoken(self, node: NodeId) -> Spoken | None: ...


class NodeUpgrade:
    """Implements `node.api.upgrade.Upgrade`. Loop thread only."""

    def __init__(self, cluster: Cluster, views: Callable[[], Sequence[NodeView]]) -> None:
        self._cluster = cluster
        self._node_views = views

    def version(self) -> VersionView:
        return VersionView(
            VERSION.version,
            VERSION.git_commit,
            VERSION.build_time,
            self._cluster.state.layout.brokers.level,
        )

    def require(self, feature: int) -> None:
        level = self._cluster.state.layout.brokers.level
        if feature > level:
            raise NotFinished(feature, level)

    async def levels(self) -> LevelsView:
        await self._cluster.refresh()
        known = self._cluster.state.layout.brokers
        level = max((one.highest_level for one in known.by_name.values()), default=known.level)
        status = {view.node: view.status for view in self._node_views()}
        brokers = [
            BrokerVersion(
                one.node,
                one.version,
                status.get(one.node, "dead"),
                one.lowest_level,
                one.highest_level,
            )
            for _, one in sorted(known.by_name.items())
        ]
        waiting: list[str] = []
        if level > known.level:
            for one in brokers:
                node = NodeId(one.id)
                waiting += _problem(one, known.by_name[node], self._cluster.spoken(node), level)
        return LevelsView(known.level, max(level, known.level), brokers, waiting)

    async def finish_level(self) -> LevelsView:
        found = await self.levels()
        if found.next <= found.finished:
            return found
        if found.waiting:
            raise UpgradeWaits(found.next, list(found.waiting))
        await self._cluster.command(FinishLevel(found.next), COMMAND_DEADLINE_S)
        _log.info("level_finished", level=found.next, before=found.finished)
        return await self.levels()


def _problem(told: BrokerVersion, broker: Broker, running: Spoken | None, level: int) -> list[str]:
    spoken = broker.spoken
    if running is not None and not running.speaks(level) and spoken.speaks(level):
        return [f"{told.id} is back with another version, which speaks {running}"]
    if not spoken.speaks(level):
        return [f"{told.id} runs {told.version or 'an unknown version'}, which speaks {spoken}"]
    if told.status != ALIVE:
        return [f"{told.id} is {told.status}: it may come back with an older version"]
    return []


class LevelFinisher:
    """A service that finishes what can be finished, while it `is_due`: where this node leads the
    cluster group, and speaks more than is finished."""

    def __init__(self, is_due: Callable[[], bool], upgrade: NodeUpgrade) -> None:
        self._is_due = is_due
        self._upgrade = upgrade
        self._looks = Periodic(
            "level-finisher", self._round, LOOK_S, _log, "level_finisher_failed", first_s=0.0
        )

    async def start(self) -> None:
        await self._looks.start()

    async def stop(self) -> None:
        await self._looks.stop()

    async def _round(self) -> None:
        try:
            if self._is_due():
                await self._upgrade.finish_level()
        except GoQueueError as error:
            _log.debug("level_not_finished", problem=error.message)
