"""The pod's labels and its gate say what the node is, in the end, whatever happens on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from node.kubernetes import face as face_module
from node.kubernetes.api import KubernetesApi
from node.kubernetes.face import GATE, LEADERS, ROLE, Face, PodFace
from node.metrics import Metrics
from tests.kubernetes.conftest import eventually
from tests.kubernetes.fake_api import FakeApi, Key

INTERVAL_S = 0.05


class Node:
    """What the node is."""

    face = Face("learner", 0, "the cluster is not formed")


@pytest.fixture
async def node(
    hasty: KubernetesApi, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Node]:
    for name, value in (("TICK_S", 0.01), ("CHECK_S", 0.1), ("PAUSE_MAX_S", 0.1)):
        monkeypatch.setattr(face_module, name, value)
    node = Node()
    face = PodFace(hasty, metrics, lambda: node.face, INTERVAL_S)
    await face.start()
    yield node
    assert face.grace_s == 120
    await face.stop()


def labels(fake: FakeApi) -> tuple[str | None, str | None]:
    told = fake.pod("goqueue-1")["metadata"]["labels"]
    return told.get(ROLE), told.get(LEADERS)


def gate(fake: FakeApi) -> tuple[str, str] | None:
    conditions = fake.pod("goqueue-1")["status"]["conditions"]
    found = [(one["status"], one["message"]) for one in conditions if one["type"] == GATE]
    return found[0] if found else None


def patches(fake: FakeApi) -> int:
    return sum(asked.startswith("PATCH") for asked in fake.asked)


async def test_the_pod_follows_the_node(fake: FakeApi, node: Node) -> None:
    await eventually(lambda: labels(fake) == ("learner", "0"))
    assert gate(fake) == ("False", "the cluster is not formed")

    node.face = Face("controller", 7, "")

    await eventually(lambda: labels(fake) == ("controller", "7"))
    assert gate(fake) == ("True", "")
    assert fake.pod("goqueue-1")["metadata"]["labels"]["app"] == "goqueue"


async def test_quick_changes_are_few_patches(fake: FakeApi, node: Node) -> None:
    await eventually(lambda: labels(fake)[0] == "learner")
    before = patches(fake)

    for leaders in range(100):
        node.face = Face("learner", leaders, "the cluster is not formed")
        await asyncio.sleep(0.001)

    await eventually(lambda: labels(fake) == ("learner", "99"))
    assert patches(fake) - before <= 15


async def test_what_others_write_over_is_made_good(fake: FakeApi, node: Node) -> None:
    await eventually(lambda: labels(fake)[0] == "learner")

    fake.put("pods", {**fake.pod("goqueue-1"), "status": {"conditions": []}})
    fake.pod("goqueue-1")["metadata"]["labels"] = {ROLE: "controller"}

    await eventually(lambda: labels(fake) == ("learner", "0") and gate(fake) is not None)


async def test_a_conflict_is_looked_at_anew(fake: FakeApi, node: Node) -> None:
    await eventually(lambda: labels(fake)[0] == "learner")
    left = [3]

    def touch(key: Key) -> None:
        if left[0]:
            left[0] -= 1
            fake.put(key[0], fake.objects[key])

    fake.before_patch = touch
    node.face = Face("voter", 1, "the cluster is not formed")

    await eventually(lambda: labels(fake) == ("voter", "1"))
    assert left == [0]


@pytest.mark.parametrize("trouble", ["500", "403", "hang", "cut"])
async def test_an_api_that_is_lost_is_told_later(fake: FakeApi, node: Node, trouble: str) -> None:
    await eventually(lambda: labels(fake)[0] == "learner")
    fake.trouble = lambda _request: trouble
    node.face = Face("voter", 1, "")
    asked = len(fake.asked)
    await eventually(lambda: len(fake.asked) > asked + 1)
    assert labels(fake) == ("learner", "0")

    fake.trouble = lambda _request: ""

    await eventually(lambda: labels(fake) == ("voter", "1") and gate(fake) == ("True", ""))


async def test_an_open_gate_stays_open_through_short_troubles_and_closes_in_long_ones(
    fake: FakeApi, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.face = Face("voter", 1, "")
    await eventually(lambda: gate(fake) == ("True", ""))

    node.face = Face("voter", 2, "5 partitions are not in sync here")
    await eventually(lambda: labels(fake) == ("voter", "2"))
    assert gate(fake) == ("True", "")

    monkeypatch.setattr(face_module, "OUT_OF_SYNC_S", 0.0)
    await eventually(lambda: gate(fake) == ("False", "5 partitions are not in sync here"))
    node.face = Face("voter", 2, "")
    await eventually(lambda: gate(fake) == ("True", ""))
