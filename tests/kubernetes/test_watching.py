"""What is wanted of the StatefulSet is known soon, and kept over whatever the API does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from node.kubernetes import watching
from node.kubernetes.api import KubernetesApi
from node.kubernetes.watching import StatefulSetWatch
from node.metrics import Metrics
from tests.kubernetes.conftest import eventually
from tests.kubernetes.fake_api import FakeApi


@pytest.fixture
async def watch(
    hasty: KubernetesApi, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StatefulSetWatch]:
    monkeypatch.setattr(watching, "PAUSE_FIRST_S", 0.02)
    monkeypatch.setattr(watching, "PAUSE_MAX_S", 0.05)
    watch = StatefulSetWatch(hasty, metrics, lambda: None)
    task = asyncio.create_task(watch.run())
    yield watch
    assert not task.done(), "it never ends by itself"
    task.cancel()
    await asyncio.wait([task])


async def test_a_change_is_heard_of_by_one_watch(fake: FakeApi, watch: StatefulSetWatch) -> None:
    await eventually(lambda: watch.wanted == 3 and fake.watches == 1)
    asked = len(fake.asked)

    fake.scale("goqueue", 5)

    await eventually(lambda: watch.wanted == 5)
    assert len(fake.asked) == asked


async def test_a_watch_that_lost_its_place_is_begun_anew(
    fake: FakeApi, watch: StatefulSetWatch
) -> None:
    await eventually(lambda: fake.watches == 1)

    fake.scale("goqueue", 4)
    fake.put("pods", {"metadata": {"name": "other"}})
    fake.compact()

    await eventually(lambda: watch.wanted == 4)
    fake.scale("goqueue", 5)
    await eventually(lambda: watch.wanted == 5)


@pytest.mark.parametrize("trouble", ["500", "401", "hang", "cut", "text"])
async def test_an_api_that_is_lost_leaves_what_was_seen_last(
    fake: FakeApi, watch: StatefulSetWatch, metrics: Metrics, trouble: str
) -> None:
    await eventually(lambda: watch.wanted == 3)
    fake.trouble = lambda _request: trouble
    fake.compact()  # ends the watch that stands
    fake.put("pods", {"metadata": {"name": "other"}})
    fake.compact()
    asked = len(fake.asked)
    fake.scale("goqueue", 5)

    await eventually(lambda: len(fake.asked) > asked + 2)
    assert watch.wanted == 3
    assert "goqueue_kubernetes_replicas_wanted 3.0" in metrics.render()[0].decode()
    fake.trouble = lambda _request: ""

    await eventually(lambda: watch.wanted == 5)


async def test_nothing_is_wanted_of_a_set_that_goes_or_is_gone(
    fake: FakeApi, watch: StatefulSetWatch
) -> None:
    await eventually(lambda: watch.wanted == 3)

    metadata = {"name": "goqueue", "deletionTimestamp": "2026-11-22T00:00:00Z"}
    fake.put("statefulsets", {"metadata": metadata, "spec": {"replicas": 3}})
    await eventually(lambda: watch.wanted is None)
    fake.put("statefulsets", {"metadata": {"name": "goqueue"}, "spec": {"replicas": 2}})
    await eventually(lambda: watch.wanted == 2)
    fake.delete("statefulsets", "goqueue")
    await eventually(lambda: watch.wanted is None)
    assert await watch.look() is None


async def test_how_long_nothing_was_heard_is_told(
    fake: FakeApi, watch: StatefulSetWatch, metrics: Metrics
) -> None:
    def age() -> float:
        text = metrics.render()[0].decode()
        return float(text.partition("\ngoqueue_kubernetes_watch_age_seconds ")[2].split()[0])

    await eventually(lambda: watch.wanted == 3)
    await eventually(lambda: age() > 0.1)
    fake.scale("goqueue", 4)
    await eventually(lambda: watch.wanted == 4)
    assert age() < 0.1
