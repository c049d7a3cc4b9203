"""Redis' own client for Python, on three nodes whose leaders are killed: nothing that was
acknowledged is lost, and nothing is settled twice."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from tests.cluster.processes import HOST, Cluster, eventually
from tests.ports import free_ports

STREAM, GROUP = "lines", "readers"
LINES, BATCH = 1_000, 25
DEADLINE_S = 120.0
T = TypeVar("T")
LINE = [line for line in Path(__file__).read_text().splitlines() if line.strip()]


class Clients:
    """One client for each node; whoever fails is left for the next one."""

    def __init__(self, ports: list[int]) -> None:
        self._all: list[Any] = [
            redis.Redis(
                host=HOST,
                port=port,
                decode_responses=True,
                socket_timeout=20,
                retry=None,
                protocol=3,
            )
            for port in ports
        ]
        self._at = 0

    def ask(self, work: Callable[[Any], T]) -> T:
        """Until one node does it; a publish whose outcome is not known is repeated."""
        end = time.monotonic() + DEADLINE_S
        while True:
            try:
                return work(self._all[self._at % len(self._all)])
            except redis.RedisError:
                self._at += 1
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        for client in self._all:
            client.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Cluster, Clients]]:
    ports = free_ports(3)
    with Cluster(tmp_path, 3, ["cluster.autoFinish=true"]) as made:
        for node, port in zip(made.nodes, ports, strict=True):
            node.arguments += ["--set", "listeners.redis.enabled=true"]
            node.arguments += ["--set", f"listeners.redis.port={port}"]
        made.start()
        levels = lambda: made[0].ask("GET", "/v1/version").body.get("level") == 2  # noqa: E731
        eventually("level 2", levels)
        clients = Clients(ports)
        yield made, clients
        clients.close()


def test_redis_py_loses_nothing_while_leaders_are_killed(
    cluster: tuple[Cluster, Clients],
) -> None:
    nodes, clients = cluster
    clients.ask(lambda client: _make_group(client))
    stored: list[str] = []
    killed = 0
    for at in range(0, LINES, BATCH):
        if at in (LINES // 4, LINES // 2):
            nodes.leader(STREAM).kill()
            killed += 1
        elif at in (3 * LINES // 8, 5 * LINES // 8):
            back = next(node for node in nodes.nodes if not node.is_running())
            back.start()
            eventually(f"{back.id} serves", back.is_up)
        some = [f"{n} {LINE[n % len(LINE)]}" for n in range(at, at + BATCH)]
        ids = clients.ask(lambda client, some=some: _published(client, some))
        assert len(ids) == BATCH
        stored += some

    seen: Counter[str] = Counter()
    ids: set[str] = set()
    settled = 0
    end = time.monotonic() + DEADLINE_S
    while len(seen) < LINES and time.monotonic() < end:
        if killed < 3 and len(seen) > LINES // 3:
            nodes.leader(STREAM).kill()
            killed += 1
        found = clients.ask(
            lambda client: client.xreadgroup(GROUP, "one", {STREAM: ">"}, count=100, block=2000)
        )
        for _, entries in (found or {}).items():
            seen.update(fields["value"] for _, fields in entries[0])
            some_ids = [id for id, _ in entries[0]]
            ids.update(some_ids)
            settled += clients.ask(
                lambda client, some_ids=some_ids: client.xack(STREAM, GROUP, *some_ids)
            )

    assert killed == 3
    assert set(stored) == set(seen), "every line that was acknowledged is read"
    assert settled <= len(ids), "nothing is settled twice"


def _make_group(client: Any) -> None:
    try:
        client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def _published(client: Any, lines: list[str]) -> list[str]:
    """All of them, in one pipeline; what is not certain is published again."""
    pipeline = client.pipeline(transaction=False)
    for line in lines:
        pipeline.xadd(STREAM, {"value": line})
    ids: list[str] = pipeline.execute()
    return ids
