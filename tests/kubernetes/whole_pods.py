"""Whole nodes in one process, each a pod of the fake API with a disk in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.store.directory import Store
from node.assembly import NodeAssembly, assemble
from tests.kubernetes.fake_api import NAMESPACE, FakeApi
from tests.ports import free_ports
from tests.unit.node.test_node import config

PODS = ("goqueue-0", "goqueue-1", "goqueue-2")
RECORD = "goqueue-cluster-id"
LONG_S = 20.0


class Pods:
    """Three pods with a volume each, or without those that are lost."""

    def __init__(self, fake: FakeApi, folder: Path) -> None:
        self.running: dict[str, NodeAssembly] = {}
        self._fake = fake
        self.folder = folder
        self._ports = dict(zip(PODS, free_ports(len(PODS)), strict=True))
        self.disks = {pod: MemoryDisk() for pod in PODS}

    async def start(self, *pods: str) -> None:
        for pod in pods or PODS:
            self.running[pod] = await self._started(pod)

    async def stop(self, *pods: str) -> None:
        for pod in pods or tuple(self.running):
            await self.running.pop(pod).services.stop()

    def lose(self, *pods: str) -> None:
        self.disks |= {pod: MemoryDisk() for pod in pods or PODS}

    def cluster_ids(self) -> set[str]:
        """As nodes tell it; empty for one that belongs to none."""
        return {node.broker.node.cluster_view().cluster_id for node in self.running.values()}

    def are_ready(self) -> bool:
        return all(node.broker.node.ready().ready for node in self.running.values())

    def reasons(self) -> set[str]:
        """Why nodes are not ready."""
        return {
            node.broker.node.ready().checks["cluster"].message or ""
            for node in self.running.values()
        }

    async def _started(self, pod: str) -> NodeAssembly:
        peers = [f"{one}=127.0.0.1:{self._ports[one]}" for one in PODS if one != pod]
        settings = config(
            **{
                "broker.nodeId": pod,
                "broker.dataDir": str(self.folder / pod),
                "broker.listeners.internal": f"127.0.0.1:{self._ports[pod]}",
                "cluster.advertise": f"127.0.0.1:{self._ports[pod]}",
                "cluster.peers": ",".join(peers),
                "cluster.secret": "the secret of three pods in one process",
                "kubernetes.enabled": True,
                "kubernetes.service": "goqueue-headless",
                "kubernetes.pod": pod,
                "kubernetes.namespace": NAMESPACE,
                "kubernetes.apiHost": self._fake.host,
                "kubernetes.apiPort": self._fake.port,
                "kubernetes.account": str(self._fake.account),
                "kubernetes.requestTimeout": "1s",
            }
        )
        (self.folder / pod).mkdir(exist_ok=True)  # for the socket of `pod-stop` alone
        storage = StorageConfig(watermark_percent=0, watermark_bytes=64 << 20)
        store = Store.open(self.disks[pod], "/data", storage)
        failed: list[Exception] = []
        node = assemble(settings, store, on_failure=failed.append)
        await node.services.start()
        return node


@asynccontextmanager
async def three_pods(fake: FakeApi, folder: Path) -> AsyncIterator[Pods]:
    pods = Pods(fake, folder)
    try:
        yield pods
    finally:
        await pods.stop()
