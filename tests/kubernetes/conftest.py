"""A fake API and a pod's view of it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from node.config.kubernetes import KubernetesConfig
from node.config.pod_names import PodNames
from node.kubernetes import founding
from node.kubernetes.api import KubernetesApi
from node.metrics import Metrics
from tests.kubernetes.fake_api import NAMESPACE, FakeApi
from tests.kubernetes.whole_pods import PODS, RECORD, Pods, three_pods

NAMES = PodNames("goqueue", "goqueue-headless", NAMESPACE, 7000)


async def eventually(condition: Callable[[], object], deadline_s: float = 30.0) -> None:
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - nothing tells when it holds
            await asyncio.sleep(0.01)


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeApi]:
    fake = FakeApi(tmp_path)
    fake.put("statefulsets", {"metadata": {"name": "goqueue"}, "spec": {"replicas": 3}})
    fake.put(
        "pods",
        {
            "metadata": {"name": "goqueue-1", "labels": {"app": "goqueue"}},
            "spec": {"terminationGracePeriodSeconds": 120},
            "status": {"conditions": [{"type": "Ready", "status": "False"}]},
        },
    )
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def settings(fake: FakeApi) -> KubernetesConfig:
    return KubernetesConfig(
        enabled=True,
        service=NAMES.service,
        pod="goqueue-1",
        namespace=NAMESPACE,
        machine="worker-1",
        api_host=fake.host,
        api_port=fake.port,
        account=str(fake.account),
        request_timeout_ms=20_000,
    )


@pytest.fixture
async def api(settings: KubernetesConfig, metrics: Metrics) -> AsyncIterator[KubernetesApi]:
    api = KubernetesApi(settings, NAMES, metrics)
    yield api
    await api.close()


@pytest.fixture
async def hasty(settings: KubernetesConfig, metrics: Metrics) -> AsyncIterator[KubernetesApi]:
    """Gives up on an answer soon."""
    api = KubernetesApi(dataclasses.replace(settings, request_timeout_ms=150), NAMES, metrics)
    yield api
    await api.close()


@pytest.fixture
async def pods(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pods]:
    monkeypatch.setattr(founding, "PAUSE_MAX_S", 0.1)
    monkeypatch.setattr(founding, "CHECK_S", 0.1)
    fake.put("configmaps", {"metadata": {"name": RECORD}})
    for pod in PODS:
        fake.put("pods", {"metadata": {"name": pod}, "spec": {}, "status": {}})
    with TemporaryDirectory(prefix="pods-") as folder:  # a socket's path must be short
        async with three_pods(fake, Path(folder)) as found:
            yield found
