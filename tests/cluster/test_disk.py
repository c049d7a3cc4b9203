"""Disks of real nodes fill up, fail and slow down: who says what, and what is left afterwards.

Full disks are file systems of their own, which takes root. Failing ones are told by a preloaded
library, which takes a C compiler.
"""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.shim import SYNC, WRITE, Shim, ShimUnavailable, library
from tests.cluster.processes import Cluster, Node, eventually, publish, read_all, tail

DISK_BYTES = 40 << 20
SETTINGS = (
    "storage.walFileBytes=1048576",
    "storage.reserveBytes=8388608",
    "storage.reservePercent=0",
    "storage.checkpointInterval=500ms",
)
EXIT_DISK_FAILED = 74
SLOW_SYNC_S = 2.0
"""Longer than a busy machine holds a loop."""
TOPIC = "t"


class Publisher:
    """Publishes one message after the other through some nodes, and keeps what they answered."""

    def __init__(self, nodes: list[Node], name: str) -> None:
        self.acked: list[str] = []
        self.refused: dict[str, int] = {}
        self.slowest_s = 0.0
        self._nodes = nodes
        self._name = name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            value = f"{self._name}-{number}"
            began = time.monotonic()
            code = attempt(self._nodes[number % len(self._nodes)], value)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            if code is None:
                self.acked.append(value)
            else:
                self.refused[code] = self.refused.get(code, 0) + 1
            number += 1


def attempt(node: Node, value: str) -> str | None:
    """Why a message was refused; None where it was acked."""
    try:
        body = {"messages": [{"value": value, "partition": 0}]}
        answer = node.ask("POST", f"/topics/{TOPIC}/messages", body)
    except OSError as error:
        return type(error).__name__
    result = answer.body["results"][0] if "results" in answer.body else answer.body
    return result.get("code") if "error" in result else None


def create(cluster: Cluster) -> None:
    """Each test begins with the topic empty."""
    if cluster[0].ask("GET", f"/topics/{TOPIC}").status == 200:
        assert cluster[0].ask("DELETE", f"/topics/{TOPIC}").status == 200
    answer = cluster[0].ask("POST", "/topics", {"name": TOPIC, "num_partitions": 1})
    assert answer.status == 201, answer.content
    for node in cluster.nodes:
        eventually("known everywhere", lambda node=node: topic_id(node) == answer.body["id"])


def topic_id(node: Node) -> str | None:
    answer = node.ask("GET", f"/topics/{TOPIC}")
    return answer.body["id"] if answer.status == 200 else None


def receive(node: Node, limit: int) -> list[dict[str, Any]]:
    body = {"topics": [TOPIC], "limit": limit}
    answer = node.ask("POST", "/v1/groups/g/receive", body)
    assert answer.status == 200, answer.content
    found: list[dict[str, Any]] = answer.body["messages"]
    return found


def ack(node: Node, messages: list[dict[str, Any]]) -> int:
    receipts = [message["receipt"] for message in messages]
    answer = node.ask("POST", "/v1/groups/g/ack", {"receipts": receipts})
    assert answer.status == 200, answer.content
    return sum(result["success"] for result in answer.body["results"])


def values(node: Node) -> list[str]:
    return [message["value"] for message in read_all(node, TOPIC, 0)]


def problems(node: Node) -> list[str]:
    found: list[str] = node.ask("GET", "/cluster/health").body["problems"]
    return found


@pytest.fixture
def room_again(disks: Disks) -> Iterator[None]:
    """Whatever a test has filled has room for the next one."""
    yield
    for node in disks.cluster.nodes:
        (node.data / "ballast").unlink(missing_ok=True)
    for shim in disks.shims.values():
        shim.clear()


def fill(node: Node) -> Path:
    """Takes every byte that is left of the node's disk; the file to delete afterwards.

    The node may give some back meanwhile: what it had of a file that doesn't fit, its reserve.
    """
    ballast = node.data / "ballast"
    with ballast.open("wb", buffering=0) as file:

        def is_filled() -> bool:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError as error:
                    assert error.errno == errno.ENOSPC
            return os.statvfs(node.data).f_bavail == 0

        eventually("filled", is_filled)
    return ballast


@dataclass
class Disks:
    """Three nodes whose disks are small and do what their shims are told, where that can be."""

    cluster: Cluster
    shims: dict[str, Shim]
    no_shim: str
    not_small: str


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disks]:
    folder = tmp_path_factory.mktemp("disk")
    made = Disks(Cluster(folder, 3, SETTINGS), {}, "", "")
    mounted: list[Path] = []
    try:
        for node in made.cluster.nodes:
            node.data.mkdir(parents=True)
            made.not_small = made.not_small or mount(node.data)
            if not made.not_small:
                mounted.append(node.data)
        try:
            library()
            made.shims = {node.id: Shim(folder / f"{node.id}.shim") for node in made.cluster.nodes}
        except ShimUnavailable as error:
            made.no_shim = str(error)
        for name, shim in made.shims.items():
            made.cluster.node(name).environment = shim.environment()
        with made.cluster:
            made.cluster.start()
            yield made
    finally:
        for path in mounted:
            subprocess.run(["umount", str(path)], check=True)
        for shim in made.shims.values():
            shim.close()


def mount(path: Path) -> str:
    """Why there is no file system of that size there; empty where there is."""
    if os.geteuid() != 0:
        return "file systems of a given size take root to mount"
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    return made.stderr.strip() and f"no file system of a given size: {made.stderr.strip()}"


@pytest.fixture
def small(disks: Disks, room_again: None) -> Disks:
    if disks.not_small:
        pytest.skip(disks.not_small)
    return disks


@pytest.fixture
def shimmed(disks: Disks, room_again: None) -> Disks:
    if disks.no_shim:
        pytest.skip(disks.no_shim)
    return disks


def test_full_disks_refuse_what_they_must_and_go_on_when_there_is_room(
    small: Disks,
) -> None:
    cluster = small.cluster
    create(cluster)
    before = [f"before-{n}" for n in range(200)]
    publish(cluster[0], TOPIC, [{"value": value, "partition": 0} for value in before])
    full = cluster.leader(TOPIC)
    others = [node for node in cluster.nodes if node is not full]
    pids = [node.process.pid for node in cluster.nodes if node.process is not None]

    # one of three is full: the others go on, and it serves what needs no room
    with Publisher(others, "one") as one:
        ballast = [fill(full)]
        eventually("another node leads", lambda: cluster.leader(TOPIC, ask=others[0]) is not full)
        count = len(one.acked)
        eventually("publishes go on", lambda: len(one.acked) > count + 50)
        assert values(full)[:200] == before
        taken = receive(full, 50)
        assert ack(full, taken) == 50
    assert set(one.refused) <= {"disk_full"}, one.refused
    print(f"one full: {len(one.acked)} acked, {one.refused}, slowest {one.slowest_s:.2f} s")

    # all are full: nothing more is taken, what is there is read, received and acked
    ballast += [fill(node) for node in others]
    for node in cluster.nodes:  # one that does not know yet may lead, and take what has room still
        short = f"{node.id} is short of disk space"
        eventually("told", lambda node=node, short=short: short in str(problems(node)))
    for node in cluster.nodes:
        eventually("refused", lambda node=node: attempt(node, "early") == "disk_full")
        assert attempt(node, "refused") == "disk_full"
        assert values(node)[:200] == before
        for _ in range(10):
            taken = receive(node, 5)
            assert ack(node, taken) == len(taken) == 5
    answer = cluster[0].ask("POST", f"/topics/{TOPIC}/messages", {"messages": [{"value": "x"}]})
    assert (answer.status, answer.body["retriable"]) == (507, True)
    assert int(answer.headers["retry-after"]) >= 1

    # there is room again: nobody has to be restarted
    for path in ballast:
        path.unlink()
    freed = time.monotonic()
    for node in cluster.nodes:
        eventually("acked again", lambda node=node: attempt(node, f"after-{node.id}") is None)
    print(f"room for publishes again: {time.monotonic() - freed:.1f} s")
    assert pids == [node.process.pid for node in cluster.nodes if node.process is not None]
    for node in cluster.nodes:
        wanted = {*before, *one.acked, *(f"after-{other.id}" for other in cluster.nodes)}
        eventually("all acked is there", lambda node=node, all=wanted: all <= set(values(node)))
        assert "refused" not in values(node)
        eventually("no problem is left", lambda node=node: problems(node) == [])


def test_short_writes_are_completed_a_full_log_waits_and_a_slow_disk_disturbs_nobody(
    shimmed: Disks,
) -> None:
    cluster, shims = shimmed.cluster, shimmed.shims
    create(cluster)
    bad = cluster.leader(TOPIC)
    others = [node for node in cluster.nodes if node is not bad]
    shim = shims[bad.id]
    assert bad.process is not None
    pid = bad.process.pid
    eventually("it knows that all have room again", lambda: attempt(bad, "early") is None)

    short = shim.shorten(match=f"{bad.data}/", times=20)
    with Publisher(others, "short") as first:
        eventually("written in pieces", lambda: short.done == 20)
    assert not first.refused

    shim.clear()
    shim.fail(WRITE, errno.ENOSPC, match=f"{bad.data}/wal")
    with Publisher(others, "stuck") as second:
        eventually("another node leads", lambda: cluster.leader(TOPIC, ask=others[0]) is not bad)
        eventually("it says so", lambda: any("is full" in problem for problem in problems(bad)))
        assert set(first.acked) <= set(values(bad))
        shim.clear()
        eventually("it follows", lambda: set(second.acked[:50]) <= set(values(bad)))
        eventually("it is well again", lambda: problems(bad) == [])
    assert set(second.refused) <= {"disk_full"}, second.refused

    leader = cluster.leader(TOPIC, ask=others[0])
    shim = shims[leader.id]
    quick = [node for node in cluster.nodes if node is not leader]
    shim.delay(SYNC, SLOW_SYNC_S, match=f"{leader.data}/")
    with Publisher(quick, "slow") as third:
        eventually("it is called slow", lambda: metric(leader, "goqueue_disk_slow") == 1)
        eventually("the slow one leads no more", lambda: not leads(leader, quick[0]))
        count = len(third.acked)
        eventually("publishes go on", lambda: len(third.acked) > count + 50)
        assert not leads(leader, quick[0])
    assert metric(leader, "goqueue_storage_fsync_latency_seconds_sum") > 3
    assert metric(leader, "goqueue_loop_lag_worst_seconds") < SLOW_SYNC_S, (
        "no loop waits for a disk"
    )
    assert not third.refused
    shim.clear()
    for node in cluster.nodes:
        wanted = {*first.acked, *second.acked, *third.acked}
        eventually("all acked is there", lambda node=node, all=wanted: all <= set(values(node)))
    assert bad.process.pid == pid
    print(f"slowest publish: stuck {second.slowest_s:.2f} s, slow {third.slowest_s:.2f} s")


def test_a_failed_sync_ends_its_node_by_name_and_loses_nothing(
    shimmed: Disks,
) -> None:
    cluster, shims = shimmed.cluster, shimmed.shims
    create(cluster)
    failing = cluster.leader(TOPIC)
    others = [node for node in cluster.nodes if node is not failing]
    assert failing.process is not None

    with Publisher(others, "m") as publisher:
        eventually("a start", lambda: len(publisher.acked) > 20)
        rule = shims[failing.id].fail(SYNC, errno.EIO, match=f"{failing.data}/wal", times=1)
        assert failing.process.wait(15) == EXIT_DISK_FAILED
        left = time.monotonic()
        count = len(publisher.acked)
        eventually("the others go on", lambda: len(publisher.acked) > count + 20)
        took_s = time.monotonic() - left
    assert rule.done == 1
    last = tail(failing.log, 1)
    assert "node_left" in last
    assert "the disk failed" in last

    failing.start()  # as a supervisor would
    cluster.wait_until_ready()
    assert attempt(failing, "after") is None
    eventually("it follows", lambda: set(publisher.acked) <= set(values(failing)))
    for node in cluster.nodes:
        found = values(node)
        assert len(found) == len(set(found)), "each was published once"
    print(f"others went on {took_s:.2f} s after the node had left; {publisher.refused}")


def metric(node: Node, name: str) -> float:
    text = node.ask("GET", "/metrics").content.decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name))


def leads(node: Node, ask: Node) -> bool:
    answer = ask.ask("GET", f"/topics/{TOPIC}/partitions")
    named: str = answer.body["partitions"][0]["leader"]
    return named == node.id
