"""A pod's preStop hook in a cluster of whole nodes: what a stop costs while another is away."""

from __future__ import annotations

import asyncio

from goqueue.wire.types import NodeId
from tests.kubernetes.conftest import eventually
from tests.kubernetes.test_stopping import Hook
from tests.kubernetes.whole_pods import LONG_S, PODS, Pods


async def test_a_pod_does_not_stop_while_another_is_down_and_does_once_it_is_back(
    pods: Pods,
) -> None:
    """`helm upgrade` deletes the highest ordinal though another pod is not there."""
    await pods.start()
    await eventually(pods.are_ready, LONG_S)
    broker = pods.running["goqueue-2"].broker
    await broker.topics.create_topic("t", {"partitions": 4, "replication_factor": 3})
    cluster = broker.topics._cluster
    await eventually(lambda: cluster.state.layout.held[NodeId("goqueue-2")] == 4, LONG_S)
    await pods.stop("goqueue-0")
    await eventually(lambda: list(cluster.absent()) == ["goqueue-0"], LONG_S)

    hook = Hook(pods.folder / "goqueue-2")
    running = asyncio.create_task(hook.run())

    stake = (
        "the cluster group and 4 partitions would have no majority, as goqueue-0 is away or not "
        "in sync"
    )
    await eventually(lambda: f"without this node, {stake}" in hook.said, LONG_S)
    assert not running.done()
    await pods.start("goqueue-0")
    assert await running, hook.said
    assert len(pods.running) == len(PODS)
