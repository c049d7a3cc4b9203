"""The StatefulSet that the chart renders, run as local processes: formed, scaled and rolled under
load, with no publish failed and no ack lost.

`GOQUEUE_PODS=long` rolls three times and scales there and back twice: the second time, ordinals
that were removed return with their volumes.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from goqueue import Client
from tests.cluster.processes import eventually, tail
from tests.deploy import container
from tests.deploy.pods import Pods
from tests.deploy.rendering import one, render

ROUNDS = 2 if os.environ.get("GOQUEUE_PODS") == "long" else 1
ROLLS = 3 if os.environ.get("GOQUEUE_PODS") == "long" else 1
GRACE_S = 60
TOPIC, PARTITIONS = "orders", 6
VALUES = {
    "terminationGracePeriodSeconds": GRACE_S,
    "config": {"kubernetes": {"stopDelay": "1s", "labelInterval": "500ms"}},
}


class Load(threading.Thread):
    """Publishes as an application does, through the Service, with the library's own repeats."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._done = threading.Event()
        self.acked: list[str] = []
        self.failed: list[str] = []

    def run(self) -> None:
        with self._client.producer() as producer:
            count = 0
            while not self._done.wait(0.01):
                sent = {f"m{count + one}": one for one in range(5)}
                futures = [(v, producer.send(TOPIC, v, key=v)) for v in sent]
                count += len(sent)
                for value, future in futures:
                    try:
                        future.result(60)
                        self.acked.append(value)
                    except Exception as error:  # noqa: BLE001 - any failure counts
                        self.failed.append(f"{value}: {error!r}")

    def finish(self) -> None:
        self._done.set()
        self.join(60)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    why = container.missing()
    if why:
        print(f"\nskipped: pods are not run as processes: {why}")
        pytest.skip(why)
    with Pods(tmp_path, render(VALUES), grace_s=GRACE_S) as pods:
        try:
            yield pods
        finally:
            for log in sorted(tmp_path.glob("*/log")):
                print(f"--- {log.parent.name}\n{tail(log, 25)}")


def client_of(pods: Pods, tmp_path: Path) -> Client:
    authority = tmp_path / "ca.crt"
    secret = one(pods.objects, "Secret", "goqueue-tls")
    authority.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
    admin = one(pods.objects, "Secret", "goqueue-admin")
    key = base64.b64decode(admin["data"]["admin-key"]).decode().strip()
    server = f"https://localhost:{pods.service_port}"
    return Client(server, api_key=key, ca_file=authority, timeout_s=60)


def stored(client: Client) -> list[str]:
    found: list[str] = []
    for partition in range(PARTITIONS):
        at = 0
        while messages := client.read(TOPIC, partition, at, limit=1000).messages:
            found += [bytes(message.value or b"").decode() for message in messages]
            at = messages[-1].offset + 1
    return found


def held(client: Client) -> dict[str, int]:
    """Replicas by broker, voting now."""
    counts: dict[str, int] = {}
    for partition in client.partitions(TOPIC):
        for node in partition.isr:
            counts[node] = counts.get(node, 0) + 1
    return counts


def test_the_rendered_set_forms_serves_scales_and_rolls_without_loss(
    pods: Pods, tmp_path: Path
) -> None:
    pods.scale(3)
    with client_of(pods, tmp_path) as client:
        through_changes(pods, client)

    roles = [pods.labels(pod)["goqueue.io/role"] for pod in sorted(pods.running)]
    assert sorted(roles) == ["controller", "voter", "voter"]
    leaders = sum(int(pods.labels(pod)["goqueue.io/leaders"]) for pod in pods.running)
    assert leaders >= PARTITIONS


def through_changes(pods: Pods, client: Client) -> None:
    client.admin.cluster()  # pods that are ready know the first admin key
    client.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
    load = Load(client)
    load.start()
    eventually("acks", lambda: len(load.acked) > 20)

    for _ in range(ROUNDS):
        pods.scale(5)
        eventually("the new pods hold replicas", lambda: len(held(client)) == 5, deadline_s=40)
        pods.scale(3)
        for pod in ("goqueue-3", "goqueue-4"):
            assert pods.codes[pod][-2:] == [("hook", 0), ("process", 0)], pods.said[pod]
            assert "nothing is left here" in pods.said[pod][-1]
        assert set(held(client)) == {"goqueue-0", "goqueue-1", "goqueue-2"}
        eventually("the drained ones are removed", lambda: len(client.admin.cluster_nodes()) == 3)

    for _ in range(ROLLS):
        pods.roll("goqueue-2", "goqueue-1", "goqueue-0")
    for pod in ("goqueue-0", "goqueue-1", "goqueue-2"):
        assert pods.codes[pod][-2:] == [("hook", 0), ("process", 0)], pods.said[pod]

    load.finish()
    print(f"\n{len(load.acked)} acked, {len(load.failed)} failed")
    assert load.failed == []
    assert len(load.acked) > 100
    found = stored(client)
    assert set(load.acked) <= set(found)
    assert len(found) == len(set(found))
