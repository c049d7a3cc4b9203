"""`python -m benchmarks.rebuild --gigabytes 2`: a node that lost its disk gets its replica back.

Three processes hold a partition of that size. One is killed, its data directory deleted, and it is
started again; all the time four connections publish at a steady rate. Told are how fast the replica
was copied, and what publishing took beside it. At the end every message is read back, and the
files of all nodes are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.connection import BadAnswer, Connection, post
from benchmarks.counters import figures
from benchmarks.payloads import Body, batch_bodies, fingerprint
from benchmarks.processes import ROOT, DevCluster
from benchmarks.publish import Load, create_topic, percentile, publish
from goqueue import AsyncClient
from log.config import StorageConfig
from log.disk.files import OsDisk
from log.store.directory import Store

TOPIC = "rebuilt"
RECEIVED = 'goqueue_transferred_bytes_total{direction="received"}'
UNDER_WAY = "goqueue_transfers"
RECORD_BYTES, RECORDS = 10_000, 50
"""Of one request while the partition is filled."""
STEADY_PER_S, CONNECTIONS = 100, 4
STEADY_BYTES = 1_000
NORMAL_S = 10.0
SETTLE_S = 5.0
POLL_S = 0.05
REBUILT_S = 900.0
RATE_TARGET, SLOWDOWN_TARGET = 50e6, 3.0
GIGABYTE = 10**9


@dataclass
class Steady:
    """Connections that each send at their times; what is not answered in time delays the next."""

    address: tuple[str, int]
    sent: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When each was sent, and how long it took to be acked."""
    print: int = 0
    stopped: bool = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(CONNECTIONS):
                tasks.create_task(self._run(number))

    async def _run(self, number: int) -> None:
        connection = await Connection.open(self.address)
        due = time.perf_counter()
        while not self.stopped:
            value = b"%012d" % (CONNECTIONS * len(self.sent) + number)
            value += b"s" * (STEADY_BYTES - len(value))
            body = b'{"messages":[{"partition":0,"value":"%s"}]}' % value
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            began = time.perf_counter()
            path = f"/v1/topics/{TOPIC}/messages"
            _, answer = await connection.ask(post(path, body, "application/json"))
            if b'"error"' in answer:
                raise BadAnswer(answer[:300].decode())
            self.sent.append((began, time.perf_counter() - began))
            self.print += fingerprint([value])
            due = max(due + CONNECTIONS / STEADY_PER_S, began)
        connection.close()

    def p99_s(self, began: float, ended: float) -> float:
        return percentile([took for at, took in self.sent if began <= at <= ended], 0.99)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What came out. `restarted_s` is from the process's start until the replica was in sync."""

    bytes: int
    copied_s: float
    restarted_s: float
    normal_p99_s: float
    beside_p99_s: float
    longest_s: float
    messages: int
    segments: int

    @property
    def rate(self) -> float:
        return self.bytes / self.copied_s

    @property
    def slowdown(self) -> float:
        return self.beside_p99_s / self.normal_p99_s

    @property
    def is_fast(self) -> bool:
        return self.rate >= RATE_TARGET and self.slowdown <= SLOWDOWN_TARGET

    def __str__(self) -> str:
        return (
            f"copied {self.bytes / 1e6:,.0f} MB in {self.copied_s:.1f} s: "
            f"{self.rate / 1e6:.0f} MB/s (target >= {RATE_TARGET / 1e6:.0f}); "
            f"in sync {self.restarted_s:.1f} s after the start\n"
            f"publish p99 {self.normal_p99_s * 1e3:.1f} ms before, "
            f"{self.beside_p99_s * 1e3:.1f} ms beside the copy: {self.slowdown:.2f} x "
            f"(target <= {SLOWDOWN_TARGET:.0f}), longest {self.longest_s * 1e3:.0f} ms\n"
            f"checked: {self.messages:,} messages read back with equal content, "
            f"{self.segments} sealed segments of the rebuilt replica equal the others' by hash"
        )


async def measure(folder: Path, size_bytes: int) -> Rebuilt:
    """Raises BadAnswer where anything is lost, or is another than it was."""
    with DevCluster(3, folder / "rebuild") as cluster:
        await create_topic(cluster, TOPIC, partitions=1, replication_factor=3, retention_bytes=-1)
        filled = await _fill(cluster, size_bytes)
        victim, stays = await _victim(cluster)
        await asyncio.sleep(SETTLE_S)

        steady = Steady(cluster.addresses[stays])
        publishing = asyncio.create_task(steady.run())
        await asyncio.sleep(NORMAL_S)
        normal_ended = time.perf_counter()
        cluster.end(victim, signal.SIGKILL)
        await asyncio.to_thread(shutil.rmtree, cluster.data(victim))
        started = time.perf_counter()
        ready = asyncio.create_task(asyncio.to_thread(cluster.again, victim))
        copied = await _watch(cluster, victim)
        await _until(lambda: _is_in_sync(cluster, victim, stays))
        in_sync = time.perf_counter()
        await ready
        steady.stopped = True
        await publishing
        messages = await _check(cluster, victim, filled, steady)
        for number in range(3):
            cluster.end(number, signal.SIGTERM)
        segments = await asyncio.to_thread(_compare, cluster, victim)
        return Rebuilt(
            copied.bytes,
            copied.ended - copied.began,
            in_sync - started,
            steady.p99_s(normal_ended - NORMAL_S, normal_ended),
            steady.p99_s(copied.began, copied.ended),
            max(took for at, took in steady.sent if copied.began <= at <= copied.ended),
            messages,
            segments,
        )


async def _fill(cluster: DevCluster, size_bytes: int) -> Load:
    bodies: list[Body] = batch_bodies(TOPIC, RECORD_BYTES, RECORDS, 1)
    count = size_bytes // RECORD_BYTES // RECORDS * RECORDS
    load = await publish(cluster, bodies, 4, REBUILT_S, count_max=count)
    print(f"filled {load.count * RECORD_BYTES / 1e6:,.0f} MB in {load.seconds:.0f} s", flush=True)
    return load


async def _victim(cluster: DevCluster) -> tuple[int, int]:
    """A node that leads nothing, and another: a failover is not what is measured here."""
    async with AsyncClient(cluster.urls) as client:
        (partition,) = await client.partitions(TOPIC)
        leaders = {partition.leader, (await client.admin.cluster()).controller}
    names = [f"node-{number + 1}" for number in range(3)]
    spare = [number for number, name in enumerate(names) if name not in leaders]
    return spare[0], next(n for n, name in enumerate(names) if name == partition.leader)


@dataclass
class _Copied:
    began: float = 0.0
    ended: float = 0.0
    bytes: int = 0


async def _watch(cluster: DevCluster, victim: int) -> _Copied:
    """The copy, from its first byte to its installation, as the node's metrics tell."""
    found = _Copied()

    async def looked() -> bool:
        received, under_way = await _copies(cluster.addresses[victim])
        now = time.perf_counter()
        if received and not found.began:
            found.began = now - POLL_S
        found.ended, found.bytes = now, received
        return received > 0 and not under_way

    await _until(looked)
    return found


async def _copies(address: tuple[str, int]) -> tuple[int, int]:
    try:
        found = await figures(address, [RECEIVED, UNDER_WAY])
    except (OSError, BadAnswer):
        return 0, 0
    return int(found[RECEIVED]), int(found[UNDER_WAY])


async def _is_in_sync(cluster: DevCluster, victim: int, stays: int) -> bool:
    async with AsyncClient(cluster.urls[stays]) as client:
        (partition,) = await client.partitions(TOPIC)
    return f"node-{victim + 1}" in partition.isr


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(REBUILT_S):
        while not await condition():  # noqa: ASYNC110 - another process: there is no event
            await asyncio.sleep(POLL_S)


async def _check(cluster: DevCluster, victim: int, filled: Load, steady: Steady) -> int:
    """Read all of it through the rebuilt node."""
    count = total = 0
    async with AsyncClient(cluster.urls[victim]) as client:
        async for page in client.pages(TOPIC, 0):
            count += len(page.messages)
            total += fingerprint(message.value for message in page.messages)
    wanted = filled.count + len(steady.sent), (filled.print + steady.print) % 2**64
    if (count, total % 2**64) != wanted:
        raise BadAnswer(f"{wanted[0]} messages acked, {count} read, or other content")
    return count


def _compare(cluster: DevCluster, victim: int) -> int:
    """The sealed segments that the rebuilt replica shares with others; all of them are equal."""
    hashes: list[dict[int, str]] = []
    for number in range(3):
        store = Store.open(OsDisk(), str(cluster.data(number)), StorageConfig())
        try:
            log = store.partition_log(
                next(
                    partition_id
                    for partition_id in store.partition_ids()
                    if partition_id.topic.index
                )
            )
            sealed = [segment for segment in log.segments() if segment.sealed]
            hashes.append(
                {one.first_index: log.disk_segments.hash(one.first_index) for one in sealed}
            )
        finally:
            store.close()
    others = [found for number, found in enumerate(hashes) if number != victim]
    shared = [at for at in hashes[victim] if any(at in found for found in others)]
    for at in shared:
        if any(found.get(at, hashes[victim][at]) != hashes[victim][at] for found in others):
            raise BadAnswer(f"segment {at} differs on the rebuilt node")
    return len(shared)


def main() -> int:
    """The exit code: 0 where both targets are met and nothing is lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rebuild", description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--data", type=Path, default=ROOT / ".benchmarks", help="scratch folder")
    given = parser.parse_args()
    found = asyncio.run(measure(given.data.resolve(), int(given.gigabytes * GIGABYTE)))
    print(found)
    return 0 if found.is_fast else 1


if __name__ == "__main__":
    sys.exit(main())
