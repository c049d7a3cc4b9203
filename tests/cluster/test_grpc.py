"""Real lines by gRPC, through stubs of the facts alone, while leaders are killed: nothing is lost,
and nothing acked twice. GOQUEUE_GRPC_LINES=10000 takes longer."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc

from tests.cluster.grpc_facts import messages, stub
from tests.cluster.processes import HOST, Cluster, Node, eventually
from tests.cluster.test_real_lines import sample_files
from tests.ports import free_ports

LINES = int(os.environ.get("GOQUEUE_GRPC_LINES", "300"))
KILLS = 3
PARTITIONS = (1, 2, 3)
"""Partition 0 can't be named without a key."""
CHUNK = 50
"""What is repeated at once: less than a partition remembers of a producer."""
TOPIC, GROUP = "lines", "readers"


class Client:
    """Calls any node, and the next one where that does not answer."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._turn = 0
        self.classes = messages()
        self._channel = self._open()

    def call(self, service: str, method: str) -> Any:
        return stub(self._channel, self.classes, service, method)

    def move(self) -> None:
        self._channel.close()
        self._turn += 1
        self._channel = self._open()

    def close(self) -> None:
        self._channel.close()

    def _open(self) -> grpc.Channel:
        return grpc.insecure_channel(f"{HOST}:{self._ports[self._turn % len(self._ports)]}")


class Publisher:
    """One partition's lines, each under a producer's number, so that it is stored once."""

    def __init__(self, client: Client, producer: tuple[int, int], partition: int) -> None:
        self._client = client
        self._producer = producer
        self._partition = partition
        self._sequence = 0

    def publish(self, lines: list[bytes]) -> None:
        """Returns once all of them are stored."""
        while not self._sent(lines):
            self._client.move()
        self._sequence += len(lines)

    def _sent(self, lines: list[bytes]) -> bool:
        try:
            answers = self._client.call("PublishService", "PublishStream")(
                self._requests(lines), timeout=20
            )
            return [one.HasField("error") for one in answers] == [False] * len(lines)
        except grpc.RpcError:
            return False

    def _requests(self, lines: list[bytes]) -> Iterator[Any]:
        id, epoch = self._producer
        for number, line in enumerate(lines):
            yield self._client.classes("PublishStreamRequest")(
                correlation_id=str(number),
                topic=TOPIC,
                value=line,
                partition=self._partition,
                producer_id=id,
                producer_epoch=epoch,
                sequence=self._sequence + number,
            )


class Reader:
    """A member of the group, that acks what it gets until it is told to stop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.seen: Counter[tuple[int, int]] = Counter()
        self.values: dict[tuple[int, int], bytes] = {}
        self.acked: Counter[tuple[int, int]] = Counter()
        self.unknown: set[tuple[int, int]] = set()
        """Whose ack was not answered."""
        self.trouble = ""
        """What its last stream ended with."""
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                self._read()
            except grpc.RpcError as error:
                self.trouble = str(error)
                self._client.move()

    def _read(self) -> None:
        request = self._client.classes("SubscribeRequest")(topics=[TOPIC], group_id=GROUP)
        request.heartbeat_interval.seconds = 1
        stream = self._client.call("ConsumeService", "Subscribe")(request)
        for told in stream:
            if told.WhichOneof("payload") == "messages":
                self._ack(told.messages.messages)
            if self.is_over.is_set():
                stream.cancel()
                return

    def _ack(self, messages: Any) -> None:
        places = {m.receipt_handle: (m.partition, m.offset) for m in messages}
        self.values.update({places[m.receipt_handle]: m.value for m in messages})
        self.seen.update(places.values())
        request = self._client.classes("BatchAckRequest")(
            group_id=GROUP, receipt_handles=list(places)
        )
        try:
            told = self._client.call("AckService", "BatchAck")(request, timeout=20)
        except grpc.RpcError:
            self.unknown.update(places.values())
            raise
        failed = {one.receipt_handle: one.error.details["outcome"] for one in told.failures}
        self.unknown.update(places[one] for one, how in failed.items() if how == "unknown")
        self.acked.update(place for one, place in places.items() if one not in failed)


def story(readers: list[Reader], threads: list[threading.Thread]) -> str:
    """How far they are."""
    told = []
    for reader, thread in zip(readers, threads, strict=True):
        places = Counter(partition for partition, _ in dict(reader.values))
        told.append(f"{dict(places)} read, alive {thread.is_alive()}, {reader.trouble}")
    return f"all lines are read: {told}"


def lines_of(folder: Path) -> list[bytes]:
    found = [line for file in sample_files(folder) for line in file.read_bytes().splitlines()]
    return (found * (LINES // len(found) + 1))[:LINES]


def producer_of(node: Node) -> tuple[int, int]:
    told = node.ask("POST", "/producers/init", {}).body
    return int(told["producer_id"]), int(told.get("epoch", told.get("producer_epoch", 0)))


def test_real_lines_are_stored_and_acked_once_while_leaders_are_killed(tmp_path: Path) -> None:
    lines = lines_of(tmp_path)
    ports = free_ports(3)
    with Cluster(tmp_path / "cluster", 3) as cluster:
        for node, port in zip(cluster.nodes, ports, strict=True):
            wanted = ("listeners.grpc.enabled=true", f"listeners.grpc.port={port}")
            node.arguments += [word for one in wanted for word in ("--set", one)]
        cluster.start()
        topic = {"name": TOPIC, "num_partitions": 4, "replication_factor": 3}
        assert cluster[0].ask("POST", "/topics", topic).status == 201
        readers = [Reader(Client(ports[at:] + ports[:at])) for at in (0, 1)]
        threads = [threading.Thread(target=reader.run) for reader in readers]
        for thread in threads:
            thread.start()
        client = Client(ports)
        producer = producer_of(cluster[0])
        publishers = [Publisher(client, producer, number) for number in PARTITIONS]
        chunks = [lines[at : at + CHUNK] for at in range(0, len(lines), CHUNK)]
        kill_at = {len(chunks) * number // KILLS for number in range(KILLS)}
        killed: Node | None = None
        for number, chunk in enumerate(chunks):
            if number in kill_at:
                if killed is not None:
                    killed.start()
                    cluster.wait_until_ready()
                killed = cluster.leader(TOPIC, PARTITIONS[number % 3])
                killed.kill()
            publishers[number % 3].publish(chunk)
        assert killed is not None
        killed.start()

        wanted = Counter(lines)
        places: dict[tuple[int, int], bytes] = {}

        def all_read() -> bool:
            places.clear()
            for reader in readers:
                places.update(dict(reader.values))
            return len(places) >= len(lines)

        eventually(lambda: story(readers, threads), all_read, deadline_s=180)
        for reader in readers:
            reader.is_over.set()
        for thread in threads:
            thread.join(timeout=60)
        client.close()

    acked = sum((reader.acked for reader in readers), Counter[tuple[int, int]]())
    unknown = set[tuple[int, int]]().union(*(reader.unknown for reader in readers))
    assert Counter(places.values()) == wanted
    assert max(acked.values()) == 1
    assert set(places) - set(acked) <= unknown
