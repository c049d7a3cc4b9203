"""Publishes that are acked or not, and a group that receives and acks, while versions change."""

from __future__ import annotations

import threading
from collections.abc import Callable

from goqueue import Client, GoQueueError
from tests.cluster.processes import Cluster, eventually, read_all

TOPIC, PARTITIONS, GROUP = "rolled", 4, "workers"
BATCH = 5
PAUSE_S = 0.02
DEADLINE_S = 60.0


class Load:
    """Runs from `with` on; `verify` at its end says that nothing was lost."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._faults: list[BaseException] = []
        self.acked: list[str] = []
        self.worked: set[str] = set()
        self.failures = 0

    def __enter__(self) -> Load:
        with self._client() as client:
            client.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            client.put_group(GROUP)
        for run in (self._publish, self._work):
            thread = threading.Thread(target=self._guarded, args=(run,), daemon=True)
            self._threads.append(thread)
            thread.start()
        self.until_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def until_more(self, count: int = 50) -> None:
        """Return once so many more were acked, and some worked through."""
        acked, worked = len(self.acked), len(self.worked)
        eventually(
            lambda: f"{count} more acked (and {self._faults})",
            lambda: len(self.acked) >= acked + count and len(self.worked) > worked,
            deadline_s=DEADLINE_S,
        )

    def verify(self) -> None:
        """Everything acked is stored once and was, or is, received by the group."""
        assert self._faults == []
        stored = [
            message["value"]
            for partition in range(PARTITIONS)
            for message in read_all(self._cluster[0], TOPIC, partition)
        ]
        assert len(stored) == len(set(stored)), "stored twice"
        assert set(self.acked) <= set(stored), "acked, and not stored"
        with self._client() as client:
            while found := client.receive(GROUP, TOPIC, limit=100, wait="2s"):
                for message in found:
                    self._take(message.text, message.ack)
        assert set(stored) <= self.worked, "stored, and never delivered to the group"

    def _client(self) -> Client:
        servers = [node.url for node in self._cluster.nodes]
        return Client(servers, timeout_s=10)

    def _publish(self) -> None:
        number = 0
        with self._client() as client:
            while not self._over.wait(PAUSE_S):
                values = [f"m{number + one}" for one in range(BATCH)]
                number += BATCH
                for value in values:
                    try:
                        client.publish(TOPIC, value, key=value, message_id=value)
                    except GoQueueError:
                        self.failures += 1
                    else:
                        self.acked.append(value)

    def _work(self) -> None:
        with self._client() as client:
            while not self._over.is_set():
                try:
                    for message in client.receive(GROUP, TOPIC, limit=20, wait="500ms"):
                        self._take(message.text, message.ack)
                except GoQueueError:
                    self.failures += 1
                    self._over.wait(PAUSE_S)

    def _take(self, value: str, ack: Callable[[], object]) -> None:
        self.worked.add(value)
        try:
            ack()
        except GoQueueError:
            self.failures += 1  # it comes again

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            self._faults.append(error)
            raise
