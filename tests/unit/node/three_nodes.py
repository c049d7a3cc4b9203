"""Three whole nodes in this process that talk over loopback, each on a disk in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.levels import Levels
from log.store.directory import Store
from node.assembly import NodeAssembly, assemble
from node.broker.node import NodeBroker
from tests.ports import free_ports
from tests.unit.node.test_node import config, eventually

NAMES: tuple[str, ...] = ("n1", "n2", "n3")


class ThreeNodes:
    """A cluster; nodes are stopped and started by name."""

    def __init__(self, **settings: object) -> None:
        self.settings = settings
        self.disks: dict[str, MemoryDisk] = {name: MemoryDisk() for name in NAMES}
        self.running: dict[str, NodeAssembly] = {}
        self.outdated: list[str] = []
        """Who has been told that its version can't go on, in order."""
        self.ports: dict[str, int] = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))

    def broker(self, name: str) -> NodeBroker:
        return self.running[name].broker

    @property
    def brokers(self) -> list[NodeBroker]:
        return [node.broker for node in self.running.values()]

    def leader(self) -> str | None:
        """Who leads the cluster group, where exactly one node says so of itself."""
        leading = [
            name
            for name, node in self.running.items()
            if node.broker.node.cluster_view().controller == name
        ]
        return leading[0] if len(leading) == 1 else None

    async def start(
        self,
        name: str,
        seeds: Sequence[str] = NAMES,
        *,
        accept_damage: bool = False,
        set_aside: bool = False,
        levels: Levels | None = None,
    ) -> None:
        """The rest says how its store is opened where its log is damaged, and which feature levels
        the node speaks."""
        others = {n: f"127.0.0.1:{self.ports[n]}" for n in seeds if n != name}
        settings = config(
            **{
                "broker.nodeId": name,
                "broker.listeners.internal": f"127.0.0.1:{self.ports[name]}",
                "cluster.peers": ",".join(f"{n}={address}" for n, address in others.items()),
                "cluster.secret": "the secret of three nodes in one process",
                **self.settings,
            }
        )
        storage = StorageConfig(watermark_percent=0, watermark_bytes=64 << 20)
        store = Store.open(
            self.disks[name], "/data", storage, accept_damage=accept_damage, set_aside=set_aside
        )
        failed: list[Exception] = []
        node = assemble(
            settings,
            store,
            on_failure=failed.append,
            levels=levels,
            on_outdated=lambda: self.outdated.append(name),
        )
        await node.services.start()
        self.running[name] = node

    async def stop(self, name: str) -> None:
        await self.running.pop(name).services.stop()


N = TypeVar("N", bound=ThreeNodes)


@asynccontextmanager
async def all_ready(nodes: N) -> AsyncIterator[N]:
    """All of them ready; those that still run are stopped at the end."""
    try:
        for name in NAMES:
            await nodes.start(name)
        await eventually(lambda: all(broker.node.ready().ready for broker in nodes.brokers), 30)
        yield nodes
    finally:
        for name in list(nodes.running):
            await nodes.stop(name)


def three_nodes(**settings: object) -> AbstractAsyncContextManager[ThreeNodes]:
    """Three ready nodes with the settings that nodes have, but for these."""
    return all_ready(ThreeNodes(**settings))
