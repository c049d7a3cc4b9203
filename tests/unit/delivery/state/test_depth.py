"""What a deep backlog costs: a million messages pending in five lanes, beside next to none."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from delivery.offsets.bitmaps import BitMap64
from tests.steps import peak_bytes, steps
from tests.unit.delivery.desk import Desk

ROOT = Path(__file__).resolve().parents[4]
PENDING = 1_000_000
BATCH = 5000
ANON_MB_MAX = 60
RATIO_MAX = 1.1
BYTES_MAX = 100_000
"""Of one piece of work: a copy of anything that a million messages have takes a megabyte."""


def publish_many(desk: Desk, count: int, *, keys: bool = False) -> None:
    choice = random.Random(5)
    for base in range(0, count, BATCH):
        lanes = choice.choices(range(5), k=BATCH)
        names = [b"k%d" % row for row in range(base, base + BATCH)] if keys else None
        desk.publish(BATCH, lanes=lanes, keys=names)
    desk.group().look()


def steps_of(work: Callable[[], object], times: int) -> float:
    """The steps that one of so many takes."""
    return sum(steps(work) for _ in range(times)) / times


@pytest.mark.parametrize(("limit", "times"), [(1, 300), (100, 60)])
def test_receiving_and_acking_cost_the_same_with_a_million_pending(limit: int, times: int) -> None:
    shallow, deep = Desk(), Desk()
    for desk, count in ((shallow, 10 * BATCH), (deep, PENDING + 10 * BATCH)):
        desk.open(1)
        publish_many(desk, count)

    def work(desk: Desk) -> Callable[[], object]:
        return lambda: desk.ack(desk.receive(limit))

    assert steps_of(work(deep), times) <= RATIO_MAX * steps_of(work(shallow), times)
    assert peak_bytes(work(deep)) < BYTES_MAX


def test_settling_retries_and_expiries_cost_the_same_with_a_million_pending() -> None:
    def churn(desk: Desk) -> Callable[[], object]:
        return lambda: churned(desk)

    def churned(desk: Desk) -> None:
        desk.nack(desk.receive(20), to_back=True)
        desk.nack(desk.receive(20), delay_ms=5)
        desk.receive(20, visibility_ms=0)
        desk.now_ms += 10
        desk.expire()
        desk.publish(20, expires_at_ms=[5] * 20, deliver_at_ms=[2] * 10 + [None] * 10)
        desk.now_ms += 10

    shallow, deep = Desk(), Desk()
    for desk, count in ((shallow, 10 * BATCH), (deep, PENDING + 10 * BATCH)):
        desk.open(1, max_attempts=0)
        publish_many(desk, count)

    assert steps_of(churn(deep), 20) <= RATIO_MAX * steps_of(churn(shallow), 20)
    assert peak_bytes(churn(deep)) < BYTES_MAX


def test_giving_a_whole_backlog_to_the_back_costs_each_message_the_same() -> None:
    desk = Desk()
    desk.open(1, max_attempts=0)
    desk.publish(40_000)

    def back() -> object:
        return desk.nack(desk.receive(50), to_back=True)

    first = steps_of(back, 20)
    while desk.group().ready.heads()[2] is not None and desk.group().counters.nacked < 40_000:
        desk.nack(desk.receive(1000), to_back=True)

    assert steps_of(back, 20) <= 2 * first  # two kinds of runs


def test_a_long_lease_does_not_keep_what_came_and_went_behind_it() -> None:
    desk = Desk()
    desk.open(1)
    desk.publish(12_000)
    desk.deliver([0], visibility_ms=1000)

    for offset in range(1, 12_000, 2):
        granted = desk.deliver([offset, offset + 1], visibility_ms=12 * 3600 * 1000)
        desk.ack(granted)

    assert len(desk.group().leases._by_deadline) < 1100


def anon_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("this system does not tell its anonymous memory")


def measure(*, keys: bool) -> None:
    """Prints the MB that a million pending messages take, and after acks of every other one."""
    desk = Desk()
    desk.open(1)
    publish_many(desk, BATCH, keys=keys)
    idle_mb = anon_mb()
    publish_many(desk, PENDING, keys=keys)
    pending_mb = anon_mb() - idle_mb
    for base in range(0, PENDING, 2000):
        desk.ack(desk.deliver(list(range(base, base + 2000, 2))))
    assert isinstance(desk.group().done, BitMap64)
    print(pending_mb, anon_mb() - idle_mb)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("keys", [False, True])
def test_a_million_pending_messages_fit_into_60_mb(
    keys: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    code = f"from tests.unit.delivery.state.test_depth import measure; measure(keys={keys})"
    path = os.pathsep.join([str(ROOT), str(ROOT / "client")])

    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    pending_mb, acked_mb = map(float, found.stdout.split())
    with capsys.disabled():
        figures = f"{pending_mb:.0f} MB, {acked_mb:.0f} MB after acks of every other one"
        print(f"\na million pending{' with keys' if keys else ''}: {figures}")
    assert max(pending_mb, acked_mb) <= ANON_MB_MAX
