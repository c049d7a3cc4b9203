"""Consumers over streams while nodes and clients are killed; then every message is counted.

`python -m tests.cluster.stream_kills --kills 30 --lines 10000` publishes real log lines to three
nodes. Four processes of five consumers each handle them, over streams. Again and again a node is
killed and started again, a client is, or a node stops in order. In the end each line was acked,
none twice, and no attempt of a message was given to two consumers unless it was given back.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from goqueue import AsyncClient, GoQueueError, OutgoingMessage
from tests.cluster.figures import figures
from tests.cluster.processes import ROOT, Cluster, Node
from tests.cluster.test_real_lines import sample_files

TOPIC, GROUP = "lines", "workers"
PARTITIONS = 6
CLIENTS, CONSUMERS = 4, 5
STEP_S = 1.0
SESSION_S = 6.0
DEADLINE_S = 600.0
PROGRAM = """
import asyncio, os, signal, sys
from goqueue import AsyncClient, AsyncConsumer, GoQueueError, Received

urls, folder, consumers = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3])
NOTES = os.open(f"{folder}/{os.getpid()}.notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(what: str, message: Received) -> None:
    line = f"{what} {message.partition} {message.offset} {message.attempt}\\n"
    os.write(NOTES, line.encode())

async def handle(message: Received) -> None:
    note("given", message)
    await asyncio.sleep(0.001)
    try:
        settled = await message.ack()
    except GoQueueError as error:
        note(f"refused:{error.code}", message)
        raise
    note("acked" if settled.attempts == message.attempt else "miscounted", message)

async def main() -> None:
    async with AsyncClient(urls) as client:
        found = [
            AsyncConsumer(client, "workers", "lines", mode="shared") for _ in range(consumers)
        ]
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: [one.stop() for one in found])
        async with asyncio.TaskGroup() as tasks:
            for one in found:
                tasks.create_task(consume(one))

async def consume(consumer: AsyncConsumer) -> None:
    async with consumer:
        await consumer.run(handle)

asyncio.run(main())
"""

Place = tuple[int, int]


@dataclass(slots=True)
class Counted:
    """What consumers noted, and what the group has left."""

    lines: int
    kills: Counter[str]
    given: Counter[tuple[Place, int]] = field(default_factory=Counter[tuple[Place, int]])
    acked: Counter[Place] = field(default_factory=Counter[Place])
    miscounted: set[Place] = field(default_factory=set[Place])
    """Acked as another attempt than the one that was given."""
    stored: int = 0
    lag: int = 0
    streamed: int = 0
    """Messages that nodes pushed; what one pushed in its last moments may be missing."""

    def problems(self) -> list[str]:
        found = []
        if twice := [place for place, count in self.acked.items() if count > 1]:
            found.append(f"acked twice: {sorted(twice)[:10]}")
        if self.lag:
            found.append(f"{self.lag} are not acked")
        if self.stored != self.lines:
            found.append(f"{self.stored} stored of {self.lines}")
        if self.miscounted:
            found.append(f"attempts miscounted: {sorted(self.miscounted)[:10]}")
        if not self.kills["node in order"]:
            again = [key for key, count in self.given.items() if count > 1]
            if again:
                found.append(f"one attempt given twice: {sorted(again)[:10]}")
        if not self.streamed:
            found.append("nothing was pushed")
        return found

    def line(self) -> str:
        newest: dict[Place, int] = {}
        for place, attempt in self.given:
            newest[place] = max(attempt, newest.get(place, 0))
        lost = sum(attempt - 1 for attempt in newest.values())
        unknown = self.lines - len(self.acked)
        kills = ", ".join(f"{count} × {what}" for what, count in sorted(self.kills.items()))
        return (
            f"{kills}: {self.lines} lines, all acked, {sum(self.acked.values())} of them confirmed"
            f" ({unknown} answers lost), {lost} attempts lost with clients and nodes,"
            f" {self.streamed} pushed"
        )


async def run(lines: int, kills: int, seed: int, folder: Path) -> Counted:
    """Publish, kill, wait, count. The first node is killed when streams deliver."""
    rng = random.Random(seed)
    (folder / "client.py").write_text(PROGRAM)
    counted = Counted(lines, Counter())
    with Cluster(folder / "cluster", 3, ["cluster.autoFinish=true"]) as cluster:
        cluster.start()
        urls = [node.url for node in cluster.nodes]
        async with AsyncClient(urls, timeout_s=60.0) as client:
            await client.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
            await client.put_group(GROUP, max_attempts=1000, session_timeout=SESSION_S)
            await _streams(client)
            clients = [await _client(urls, folder) for _ in range(CLIENTS)]
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await _publish(client, folder, range(PARTITIONS), PARTITIONS)
                    while not await _streamed(cluster.nodes):  # noqa: ASYNC110 - it is a poll
                        await asyncio.sleep(0.1)
                    batch = max(1, lines // max(1, kills * 4))
                    publishing = asyncio.ensure_future(
                        _publish(client, folder, range(PARTITIONS, lines), batch)
                    )
                    for _ in range(kills):
                        await asyncio.sleep(STEP_S)
                        await _kill(rng, cluster, clients, urls, folder, counted)
                    await publishing
                    await _until_acked(client, lines)
            finally:
                for process in clients:
                    if process.returncode is None:
                        process.send_signal(signal.SIGTERM)
                    await process.wait()
            counted.lag = (await client.lag(GROUP)).total_lag
            await _count(client, folder, counted)
            counted.streamed += await _streamed(cluster.nodes)
    return counted


async def _streams(client: AsyncClient) -> None:
    """The cluster has finished the level that streams need."""
    while await client.admin.level() < 2:  # noqa: ASYNC110 - it is a poll
        await asyncio.sleep(0.1)


async def _client(urls: list[str], folder: Path) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *(str(folder / "client.py"), ",".join(urls), str(folder), str(CONSUMERS)),
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
    )


async def _publish(client: AsyncClient, folder: Path, lines: range, batch: int) -> None:
    """The lines of these numbers, a batch every quarter of a step."""
    texts = [
        line for path in sample_files(folder) for line in path.read_text().splitlines() if line
    ]
    for first in range(0, len(lines), batch):
        some = [
            OutgoingMessage(texts[number % len(texts)], message_id=str(number))
            for number in lines[first : first + batch]
        ]
        while True:
            try:
                await client.publish_many(TOPIC, some)
                break
            except GoQueueError:
                await asyncio.sleep(0.1)  # under the same ids: what is stored is not stored again
        await asyncio.sleep(STEP_S / 4)


async def _kill(
    rng: random.Random,
    cluster: Cluster,
    clients: list[Process],
    urls: list[str],
    folder: Path,
    counted: Counted,
) -> None:
    what = rng.choice(["node", "client", "leader", "node in order"])
    counted.kills[what] += 1
    if what == "client":
        at = rng.randrange(CLIENTS)
        clients[at].kill()
        await clients[at].wait()
        clients[at] = await _client(urls, folder)
        return
    node: Node = rng.choice(cluster.nodes)
    if what == "leader":
        node = await asyncio.to_thread(cluster.leader, TOPIC, rng.randrange(PARTITIONS))
    counted.streamed += await _streamed([node])
    await asyncio.to_thread(node.stop if what == "node in order" else node.kill)
    node.start()
    await asyncio.to_thread(cluster.wait_until_ready)


async def _until_acked(client: AsyncClient, lines: int) -> None:
    """The group has settled so many; while no consumer has come it has nothing to do, either."""
    settled = 0
    while settled < lines:
        await asyncio.sleep(0.2)
        settled = sum(one.committed_offset for one in (await client.lag(GROUP)).partitions)


async def _count(client: AsyncClient, folder: Path, counted: Counted) -> None:
    for note in await asyncio.to_thread(_notes, folder):
        what, partition, offset, attempt = note.split()
        place = int(partition), int(offset)
        if what == "given":
            counted.given[place, int(attempt)] += 1
        elif what in ("acked", "miscounted"):
            counted.acked[place] += 1
            if what == "miscounted":
                counted.miscounted.add(place)
    counted.stored = (await client.topic(TOPIC, current=True)).total_messages


def _notes(folder: Path) -> list[str]:
    return [line for path in folder.glob("*.notes") for line in path.read_text().splitlines()]


async def _streamed(nodes: Sequence[Node]) -> int:
    """What these nodes have pushed since they were started last."""
    told = [await asyncio.to_thread(figures, node) for node in nodes]
    return int(sum(one["goqueue_stream_messages_total"] for one in told))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        counted = asyncio.run(run(given.lines, given.kills, given.seed, Path(folder)))
    problems = counted.problems()
    print("\n".join([counted.line(), *problems]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
