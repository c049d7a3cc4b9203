"""A small Kubernetes for one rendered StatefulSet: its pods as processes, a kubelet that probes
them and runs their hooks, its controller, and a Service in front of them. The API is the fake one.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
import signal
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tests.chaos.storm.ground import clean_up
from tests.chaos.storm.network import Network
from tests.cluster.processes import eventually
from tests.deploy.container import Container, Json
from tests.deploy.rendering import NAMESPACE, one
from tests.kubernetes.fake_api import FakeApi

T = TypeVar("T")
PROBE_S = 0.25
STARTED_S = 60.0


class Pods:
    """A context. `said` is what hooks printed, `codes` what they and processes ended with."""

    def __init__(self, folder: Path, objects: list[Json], *, grace_s: int) -> None:
        self.folder = folder
        self.objects = objects
        self.set = one(objects, "StatefulSet")
        self.name = str(self.set["metadata"]["name"])
        self.template: Json = self.set["spec"]["template"]
        self.grace_s = grace_s
        self.running: dict[str, Container] = {}
        self.said: dict[str, list[str]] = {}
        self.codes: dict[str, list[tuple[str, int]]] = {}
        self.service_port = 0
        self._ready: set[str] = set()
        self._terminating: set[str] = set()
        self._network = Network()
        self._placed: set[int] = set()
        self._hosts = folder / "hosts"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._workers = ThreadPoolExecutor(8)
        self._closing = threading.Event()
        self._rng = random.Random(1)

    def __enter__(self) -> Pods:
        self.folder.mkdir(parents=True, exist_ok=True)
        clean_up()
        self._network.open()
        self._thread.start()
        self._hosts.write_text("127.0.0.1 localhost\n")
        self.api = FakeApi(self.folder, self._network.host)
        self._do(self.api.start())
        self.api.put("statefulsets", copy.deepcopy(self.set))
        record = one(self.objects, "ConfigMap", f"{self.name}-cluster-id")
        self.api.put("configmaps", copy.deepcopy(record))
        self._do(self._serve())
        self._prober = threading.Thread(target=self._probe, daemon=True)
        self._prober.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._prober.join(10)
        for container in self.running.values():
            if container.is_running():
                container.signal(signal.SIGKILL)
                assert container.process is not None
                container.process.wait(10)
        self._workers.shutdown(wait=True)
        self._do(self.api.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._network.close()

    # the controller

    def scale(self, replicas: int) -> None:
        """Patch the set, and return once the pods are those that are wanted."""
        self._call(lambda: self.api.scale(self.name, replicas))
        wanted = {f"{self.name}-{ordinal}" for ordinal in range(replicas)}
        leaving = sorted(self.running.keys() - wanted)
        list(self._workers.map(self.end, leaving))
        for pod in sorted(wanted - self.running.keys()):
            self.begin(pod)
        self.until_ready()

    def roll(self, *pods: str) -> None:
        """One after the other, each once the last one is ready, as a new template is rolled out."""
        for pod in pods:
            self.end(pod)
            self.begin(pod)
            self.until_ready()

    def until_ready(self) -> None:
        eventually(
            "all pods are ready", lambda: self._ready >= self.running.keys(), deadline_s=STARTED_S
        )

    # the kubelet

    def begin(self, pod: str) -> None:
        ordinal = int(pod.rpartition("-")[2])
        number = ordinal + 1
        if number not in self._placed:
            self._network.add(number)
            self._placed.add(number)
        metadata = {**copy.deepcopy(self.template["metadata"]), "name": pod}
        body = {"metadata": metadata, "spec": self.template["spec"], "status": {"conditions": []}}
        body["spec"] = {**body["spec"], "terminationGracePeriodSeconds": self.grace_s}
        self._call(lambda: self.api.put("pods", body))
        container = Container(
            self.template,
            self.objects,
            self.folder / pod,
            pod,
            NAMESPACE,
            f"worker-{ordinal}",
            self._hosts,
            self.api.account,
            {"data": self.folder / "claims" / pod},
            (self.api.host, self.api.port),
            self._network.command(number, []),
        )
        self.running[pod] = container
        self._name_pods()
        container.start()

    def end(self, pod: str) -> None:
        """The hook, SIGTERM, and, when the grace period is over, SIGKILL. Its volume is kept."""
        container = self.running[pod]
        self._terminating.add(pod)
        ends = time.monotonic() + self.grace_s
        hook = container.spec["lifecycle"]["preStop"]["exec"]["command"]
        codes = self.codes.setdefault(pod, [])
        try:
            done = container.run(hook, self.grace_s)
            codes.append(("hook", done.returncode))
            self.said.setdefault(pod, []).append(done.stderr)
        except subprocess.TimeoutExpired:
            codes.append(("hook", -1))
        assert container.process is not None
        container.signal(signal.SIGTERM)
        try:
            code = container.process.wait(max(1.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            container.signal(signal.SIGKILL)
            code = container.process.wait(10)
        codes.append(("process", code))
        del self.running[pod]
        self._terminating.discard(pod)
        self._ready.discard(pod)
        self._call(lambda: self.api.delete("pods", pod))
        self._name_pods()

    def labels(self, pod: str) -> dict[str, str]:
        return dict(self.api.pod(pod)["metadata"]["labels"])

    # private

    def _probe(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        while not self._closing.wait(PROBE_S):
            for pod, container in list(self.running.items()):
                is_ready = self._is_ready(pod, container, context)
                (self._ready.add if is_ready else self._ready.discard)(pod)

    def _is_ready(self, pod: str, container: Container, context: ssl.SSLContext) -> bool:
        """Its probe passes, and so do the gates that the manifest names."""
        get = container.spec["readinessProbe"]["httpGet"]
        ports = {one["name"]: one["containerPort"] for one in container.spec["ports"]}
        url = f"{get['scheme'].lower()}://{self._address(pod)}:{ports[get['port']]}{get['path']}"
        try:
            with urllib.request.urlopen(url, timeout=2, context=context) as answer:
                if answer.status != 200:
                    return False
        except OSError:
            return False
        found = self.api.objects.get(("pods", pod), {}).get("status", {}).get("conditions", [])
        met = {one["type"] for one in found if one["status"] == "True"}
        gates = {one["conditionType"] for one in self.template["spec"].get("readinessGates", [])}
        return gates <= met

    def _address(self, pod: str) -> str:
        return self._network.address(int(pod.rpartition("-")[2]) + 1)

    def _name_pods(self) -> None:
        """What the headless Service's DNS would say, ready or not."""
        base = f"{self.set['spec']['serviceName']}.{NAMESPACE}.svc"
        lines = ["127.0.0.1 localhost"]
        for pod in list(self.running):
            names = (f"{pod}.{base}", f"{pod}.{base}.cluster.local")
            lines.append(f"{self._address(pod)} {' '.join(names)}")
        self._hosts.write_text("\n".join(lines) + "\n")

    async def _serve(self) -> None:
        """The Service of clients: each connection goes to one of the ready pods."""
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.service_port = server.sockets[0].getsockname()[1]

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = sorted(self._ready - self._terminating)
        if not there:
            writer.close()
            return
        address = self._address(self._rng.choice(there))
        try:
            far_reader, far_writer = await asyncio.open_connection(address, 8080)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def _call(self, work: Callable[[], None]) -> None:
        async def run() -> None:
            work()

        self._do(run())


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        writer.close()
