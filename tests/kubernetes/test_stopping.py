"""`goqueue pod-stop`: who is to go waits until nothing is left here, others until others lead."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coordinator.brokers.registry import DRAINED, DRAINING, Broker
from coordinator.errors import TooFewBrokers
from goqueue.wire.types import Incarnation, NodeId
from node.config.pod_names import STOP_SOCKET
from node.kubernetes import stopping
from node.kubernetes.api import ApiProblem
from node.kubernetes.stopping import PodStop, StopTimes, Told
from tests.kubernetes.conftest import eventually

GRACE_S = 4.0
"""Half of it is left for handing over: more than a slow machine stalls for."""


class Node:
    """Pod 3, which holds 8 replicas and leads 2."""

    def __init__(self) -> None:
        self.seen: int | None = 5
        self.api_wants: int | None = 5
        self.api_is_lost = False
        self.known = Broker(NodeId("goqueue-3"), Incarnation(1), "", "", "", "", {}, 0)
        self.replicas, self.leaderships = 8, 2
        self.behind = ""
        self.stakes = ""
        self.others_leaving: list[str] = []
        self.refuses = ""
        self.is_stopping = False
        self.complaints: list[str] = []
        self.reasons: list[str] = []
        self.drains = 0

    def ordinal(self) -> int:
        return 3

    def wanted(self) -> int | None:
        return self.seen

    async def look(self) -> int | None:
        if self.api_is_lost:
            raise ApiProblem("the Kubernetes API is not reached")
        self.seen = self.api_wants
        return self.seen

    def broker(self) -> Broker | None:
        return self.known

    def become(self, state: str) -> None:
        self.known = dataclasses.replace(self.known, state=state)

    def held(self) -> int:
        return self.replicas

    def lagging(self) -> str:
        return self.behind

    def at_stake(self) -> str:
        return self.stakes

    def leaving(self) -> list[str]:
        return self.others_leaving

    def led(self) -> int:
        return self.leaderships

    async def drain(self) -> Any:
        self.drains += 1
        if self.refuses:
            raise TooFewBrokers(self.refuses)
        self.become(DRAINING)

    async def hand_over(self, timeout_s: float) -> None:
        assert self.is_stopping, "peers would hand it back"
        self.leaderships -= 1

    def stops(self, stopping: bool) -> None:
        self.is_stopping = stopping

    async def complain(self, problem: str, reason: str) -> None:
        self.complaints.append(problem)
        self.reasons.append(reason)


class Hook:
    """Someone who runs `pod-stop`."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / STOP_SOCKET)
        self.lines: list[Told] = []

    async def run(self) -> bool:
        reader, writer = await asyncio.open_unix_connection(self._path)
        while line := await reader.readline():
            self.lines.append(msgspec.json.decode(line, type=Told))
        writer.close()
        return self.lines[-1].done is True

    @property
    def said(self) -> str:
        return "\n".join(line.said for line in self.lines)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    return Hook(tmp_path)


@pytest.fixture
async def stop(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PodStop]:
    quick = {
        "PAUSE_S": 0.01,
        "ASK_PAUSE_S": 0.02,
        "SPREAD_S": 0.01,
        "MARGIN_S": 0.0,
        "EVENT_AFTER_S": 0.02,
    }
    for name, value in quick.items():
        monkeypatch.setattr(stopping, name, value)
    stop = PodStop(str(tmp_path), node, StopTimes(lambda: GRACE_S, 0.05))
    await stop.start()
    yield stop
    await stop.stop()


async def test_a_pod_that_comes_back_hands_over_what_it_leads(
    stop: PodStop, node: Node, hook: Hook
) -> None:
    assert await hook.run()

    assert node.leaderships == 0
    assert node.is_stopping
    assert node.drains == 0
    assert node.complaints == []


async def test_it_first_lets_others_catch_up(stop: PodStop, node: Node, hook: Hook) -> None:
    node.behind = "2 partitions on goqueue-1"
    running = asyncio.create_task(hook.run())
    await eventually(lambda: "catch up: 2 partitions on goqueue-1" in hook.said)
    assert not node.is_stopping

    node.behind = ""

    assert await running


async def test_it_does_not_wait_for_others_for_ever(stop: PodStop, node: Node, hook: Hook) -> None:
    node.behind = "2 partitions on goqueue-1"

    assert not await hook.run()

    assert node.leaderships == 0
    assert node.complaints == ["stops although others lag: 2 partitions on goqueue-1"]


STAKE = "12 partitions would have no majority, as goqueue-0 is away or not in sync"


async def test_a_stop_that_would_cost_a_majority_waits_beyond_half_of_the_grace_period(
    stop: PodStop, node: Node, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others only lag, it would have given up long before."""
    monkeypatch.setattr(stopping, "CATCH_UP_SHARE", 0.0)
    node.stakes, node.behind = STAKE, "12 partitions on goqueue-0"
    running = asyncio.create_task(hook.run())
    await eventually(lambda: node.complaints)
    waited = f"waits for as long as its grace period lasts: without it, {STAKE}"
    assert (node.complaints, node.reasons) == ([waited], ["QuorumAtStake"])
    assert not node.is_stopping

    node.stakes = node.behind = ""

    assert await running
    assert len(node.complaints) == 1


async def test_it_stops_in_order_and_says_so_where_the_majority_does_not_come_back(
    stop: PodStop, node: Node, hook: Hook
) -> None:
    node.stakes = STAKE

    assert not await hook.run()

    assert node.complaints[-1] == f"stops, as its grace period is over: without it, {STAKE}"
    assert set(node.reasons) == {"QuorumAtStake"}
    assert node.leaderships == 0, "time was left to hand over"


async def test_two_pods_that_are_to_go_at_once_say_that_they_end_together(
    stop: PodStop, node: Node, hook: Hook
) -> None:
    node.api_wants, node.others_leaving = 3, ["goqueue-3", "goqueue-4"]
    running = asyncio.create_task(hook.run())
    await eventually(lambda: node.drains)
    node.become(DRAINED)

    assert await running
    (told,) = node.complaints
    assert "goqueue-3, goqueue-4 are to go at once, and end together" in told
    assert "cluster drain NODE --wait" in told


async def test_a_pod_that_is_to_go_waits_until_nothing_is_left_here(
    stop: PodStop, node: Node, hook: Hook
) -> None:
    node.api_wants = 3
    running = asyncio.create_task(hook.run())
    await eventually(lambda: "8 replicas are still here" in hook.said)
    assert node.drains == 1
    assert not node.is_stopping

    node.become(DRAINED)

    assert await running
    assert "nothing is left here" in hook.said
    assert node.is_stopping


async def test_what_was_seen_last_counts_where_the_api_is_lost(
    stop: PodStop, node: Node, hook: Hook
) -> None:
    node.api_is_lost, node.seen = True, 3
    running = asyncio.create_task(hook.run())
    await eventually(lambda: node.drains)
    node.become(DRAINED)

    assert await running
    assert "the Kubernetes API is not there" in hook.said


@pytest.mark.parametrize("wanted", [None, 0])
async def test_nobody_is_drained_where_all_are_switched_off(
    stop: PodStop, node: Node, hook: Hook, wanted: int | None
) -> None:
    node.api_wants = wanted

    assert await hook.run()

    assert node.drains == 0


async def test_a_refused_drain_and_the_end_of_the_grace_period_are_said_plainly(
    stop: PodStop, node: Node, hook: Hook
) -> None:
    node.api_wants, node.refuses = 2, "2 brokers would be left for 3 replicas of a partition"

    assert not await hook.run()

    refusal, end = node.complaints
    assert refusal == "can't be drained: 2 brokers would be left for 3 replicas of a partition"
    assert "the grace period is over and 8 replicas are still on this node" in end
    assert refusal in hook.said
    assert end in hook.said


async def test_a_pod_that_is_wanted_again_stays_whole(
    stop: PodStop, node: Node, hook: Hook
) -> None:
    node.api_wants = 3
    running = asyncio.create_task(hook.run())
    await eventually(lambda: node.drains)

    node.seen = 5

    assert await running
    assert "wanted again" in hook.said


async def test_two_hooks_are_told_of_one_stop(
    stop: PodStop, node: Node, hook: Hook, tmp_path: Path
) -> None:
    other = Hook(tmp_path)

    assert await asyncio.gather(hook.run(), other.run()) == [True, True]

    assert [line.said for line in hook.lines] == [line.said for line in other.lines]


async def test_a_node_that_was_not_told_to_end_after_all_is_ready_again(
    stop: PodStop, node: Node, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "UNDONE_S", 0.05)
    stop._times = StopTimes(lambda: 0.5, 0.0)
    assert await hook.run()
    assert node.is_stopping

    await eventually(lambda: not node.is_stopping)


async def test_a_stop_is_not_taken_back_in_the_middle_as_one_before_it_is_over(
    stop: PodStop, node: Node, hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers gave the node leaderships again, and clients came, just before it was killed."""
    monkeypatch.setattr(stopping, "UNDONE_S", 0.1)
    stop._times = StopTimes(lambda: 0.5, 0.0)
    await hook.run()

    stop._times = StopTimes(lambda: 5.0, 1.0)
    assert await Hook(tmp_path).run()

    assert node.is_stopping


async def test_the_command_says_what_the_node_says_and_ends_as_it_did(
    stop: PodStop, node: Node, tmp_path: Path
) -> None:
    assert (tmp_path / STOP_SOCKET).stat().st_mode & 0o077 == 0

    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.serve", "pod-stop"),
        env={"GOQUEUE_BROKER_DATADIR": str(tmp_path), "PYTHONPATH": "client"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await command.communicate()

    assert command.returncode == 0, said
    assert b"nothing is led here" in said
    assert node.is_stopping


async def test_the_command_without_a_node_says_so(tmp_path: Path) -> None:
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.serve", "pod-stop"),
        env={"GOQUEUE_BROKER_DATADIR": str(tmp_path), "PYTHONPATH": "client"},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await command.communicate()

    assert command.returncode == 1
    assert b"no node to stop at" in said
