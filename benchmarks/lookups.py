"""How long it takes to find one message among a million in a partition: by what it carries, by time
and by state. `python -m benchmarks.lookups` prints these rows alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.connection import BadAnswer, Connection, get, post
from benchmarks.processes import ROOT, DevCluster, cpu_seconds, memory_bytes
from benchmarks.publish import create_topic, percentile
from benchmarks.report import Report, Row, Target
from goqueue.wire.batch import BATCH_MEDIA_TYPE
from goqueue.wire.encoding import encode_columns

TOPIC = "lookups"
GROUP = "workers"
BATCH = 1000
LOOKUPS = 60
TARGET_MS = 50.0
KEYS = 20_000
RARE = 1000
"""Messages that share a rare header."""
TAKEN = 2000
"""Messages that the group takes: it rejects one in a hundred, acks the others but the last ten."""
HELD = {"visibility_timeout": "1h"}
INDEXED_DEADLINE_S = 180.0
BYTES = 100
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of look-up: its path, given a message's number, and what must be found."""

    name: str
    path: Callable[[int], str]
    is_right: Callable[[dict[str, Any], int], bool]


async def measure(report: Report, folder: Path, *, quick: bool) -> None:
    count = 200_000 if quick else 1_000_000
    section = f"Look-ups, one node, {count:,} messages of {BYTES} B in one partition"
    with DevCluster(1, folder / "lookups") as cluster:
        await create_topic(cluster, TOPIC, partitions=1)
        began, cpu_s = time.monotonic(), cpu_seconds(cluster.pids())
        await fill(cluster, count)
        rate = count / (time.monotonic() - began)
        published_s = cpu_seconds(cluster.pids())
        note = "with an id, a key and two headers each"
        cpu_us = (published_s - cpu_s) / count * 1e6
        report.add(section, Row("publish, binary", rate, "msg/s", cpu_us=cpu_us, note=note))
        await work(cluster)
        stats = await indexed(cluster)
        waited_us = (cpu_seconds(cluster.pids()) - published_s) / count * 1e6
        report.add(
            section,
            Row(
                "index on disk",
                stats["index_disk_bytes"] / count,
                "B a message",
                note=f"{stats['index_memory_bytes'] / MIB:.1f} MiB in memory; "
                f"{waited_us:.1f} µs of CPU a message after publishing",
            ),
        )
        for case in cases(count):
            await add(report, section, cluster, case, count)
        (pid,) = cluster.pids()
        report.add(section, Row("RssAnon", memory_bytes(pid, "RssAnon") / MIB, "MiB"))


async def add(report: Report, section: str, cluster: DevCluster, case: Case, count: int) -> Row:
    """One row: the slowest of one in a hundred look-ups, each for another message."""
    times_s = await timed(cluster, case, count)
    middle = percentile(times_s, 0.5) * 1e3
    slow = percentile(times_s, 0.99) * 1e3
    target = Target.at_most(TARGET_MS, "ms")
    return report.add(section, Row(case.name, slow, "ms", target, note=f"p50 {middle:.1f} ms"))


async def timed(cluster: DevCluster, case: Case, count: int) -> list[float]:
    """Seconds that each look-up took. Raises `BadAnswer` where one did not find what is there."""
    rng = random.Random(case.name)
    connection = await Connection.open(cluster.addresses[0])
    times_s: list[float] = []
    for _ in range(LOOKUPS):
        number = rng.randrange(count)
        request = get(case.path(number))
        began = time.perf_counter()
        _, body = await connection.ask(request)
        times_s.append(time.perf_counter() - began)
        if not case.is_right(json.loads(body), number):
            raise BadAnswer(f"{case.name}, message {number}: {body[:300]!r}")
    connection.close()
    return times_s


def cases(count: int) -> list[Case]:
    """The kinds of look-ups, over messages made by `columns`."""
    base = f"/v1/messages?topic={TOPIC}"

    def offsets(answer: dict[str, Any]) -> list[int]:
        return [message["offset"] for message in answer["messages"]]

    def only(answer: dict[str, Any], number: int) -> bool:
        return bool(answer["complete"]) and offsets(answer) == [number]

    def keyed(answer: dict[str, Any], number: int) -> bool:
        expected = range(number % KEYS, count, KEYS)
        return offsets(answer) == list(expected)[::-1][:5]

    def rare(answer: dict[str, Any], number: int) -> bool:
        expected = range(number % RARE, count, RARE)
        return offsets(answer) == list(expected)[::-1][:5]

    def in_state(state: str) -> Case:
        return Case(
            f"10 messages {state}, by topic, time and state",
            lambda _number: f"{base}&group={GROUP}&state={state}&limit=10&from_time=1",
            lambda answer, _number: len(offsets(answer)) == 10,
        )

    return [
        Case("by message id", lambda n: f"{base}&message_id={message_id(n)}", only),
        Case("by trace id", lambda n: f"{base}&trace_id={trace_id(n)}", only),
        Case("by a header that 1 message has", lambda n: f"{base}&header=order:{n}", only),
        Case("by a header, 5 of many", lambda n: f"{base}&header=shop:{n % RARE}&limit=5", rare),
        Case(f"by key, 5 of {count // KEYS}", lambda n: f"{base}&key={key(n)}&limit=5", keyed),
        Case(
            "by an id that no message has",
            lambda n: f"{base}&message_id=none-{n}",
            lambda answer, _number: answer["complete"] and not answer["messages"],
        ),
        *(in_state(state) for state in ("ready", "acked", "dead", "in_flight")),
        Case(
            "timeline by message id",
            lambda n: f"/v1/messages/{quote(message_id(n))}/timeline?topic={TOPIC}",
            lambda answer, number: answer["offset"] == number,
        ),
    ]


def message_id(number: int) -> str:
    return f"order-{number:09d}"


def key(number: int) -> str:
    return f"customer-{number % KEYS}"


def trace_id(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 128) or 1:032x}"


def batch(first: int, count: int) -> bytes:
    """Messages from this number on, which is the offset that each gets."""
    numbers = range(first, first + count)
    return encode_columns(
        [b"%0100d" % number for number in numbers],
        [key(number).encode() for number in numbers],
        headers=[
            (
                ("traceparent", f"00-{trace_id(number)}-00f067aa0ba902b7-01".encode()),
                ("shop", b"%d" % (number % RARE)),
                ("order", b"%d" % number),
            )
            for number in numbers
        ],
        message_ids=[message_id(number) for number in numbers],
    )


async def fill(cluster: DevCluster, count: int) -> None:
    """In order, so that the message's number is its offset."""
    connection = await Connection.open(cluster.addresses[0])
    path = f"/v1/topics/{TOPIC}/partitions/0/messages"
    for first in range(0, count, BATCH):
        body = await asyncio.to_thread(batch, first, min(BATCH, count - first))
        await connection.ask(post(path, body, BATCH_MEDIA_TYPE))
    connection.close()


async def work(cluster: DevCluster) -> None:
    """Something to be in each state."""
    ask = _asker(await Connection.open(cluster.addresses[0]))
    receipts: list[str] = []
    while len(receipts) < TAKEN:
        told = await ask("receive", {"topic": TOPIC, "limit": 1000, "wait": "1s", **HELD})
        receipts += [message["receipt"] for message in told["messages"]]
    await ask("reject", {"receipts": receipts[:-10:100], "reason": "no such customer"})
    dead = set(receipts[:-10:100])
    await ask("ack", {"receipts": [one for one in receipts[:-10] if one not in dead]})


async def indexed(cluster: DevCluster) -> dict[str, Any]:
    """Figures of the index, once it is up to date, which look-ups hasten. Raises `BadAnswer` if it
    never is."""
    connection = await Connection.open(cluster.addresses[0])
    ends = time.monotonic() + INDEXED_DEADLINE_S
    while True:
        _, body = await connection.ask(get("/v1/traces/stats"))
        stats: dict[str, Any] = json.loads(body)
        if not stats["index_behind_entries"]:
            return stats
        if time.monotonic() > ends:
            raise BadAnswer(f"{stats['index_behind_entries']} entries are not indexed")
        await connection.ask(get(f"/v1/messages?topic={TOPIC}&message_id=none"))


def _asker(connection: Connection) -> Callable[[str, object], Awaitable[dict[str, Any]]]:
    async def ask(what: str, body: object) -> dict[str, Any]:
        request = post(f"/v1/groups/{GROUP}/{what}", json.dumps(body).encode(), "application/json")
        _, told = await connection.ask(request)
        found: dict[str, Any] = json.loads(told)
        return found

    return ask


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lookups", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="200,000 messages")
    parser.add_argument("--data", type=Path, default=ROOT / ".benchmarks", help="scratch folder")
    given = parser.parse_args()
    report = Report()
    asyncio.run(measure(report, given.data.resolve(), quick=given.quick))
    print(f"\n{len(report.misses())} of the targets missed")


if __name__ == "__main__":
    main()
