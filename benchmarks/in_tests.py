"""A broker inside the tests: how soon it is there, how soon as new, and what an hour takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.publish import percentile
from benchmarks.report import Report, Row, Target
from goqueue.testing import Broker

SECTION = "A broker inside the tests"
TESTS = 50
TEST_S = 0.05
"""How long a test takes, about: meanwhile the node after it is opened."""
WARM_UPS = 3


def measure(report: Report) -> None:
    with Broker() as broker:  # the imports, which take a second, once
        broker.url  # noqa: B018 - listens from then on
    started = [_started() for _ in range(TESTS)]
    _add(report, "start, after the imports", started[WARM_UPS:], 100)
    with Broker(spare=True) as broker:
        _add(report, "reset between tests of 50 ms", _resets(broker)[WARM_UPS:], 5)
        for every, runs in ((5, 12), (1, 60)):
            name = f"an hour of a schedule that runs {runs} times"
            _add(report, name, _hours(broker, every)[WARM_UPS:], 50)


def _started() -> float:
    broker = Broker()
    took_s = _seconds(broker.start)
    broker.close()
    return took_s


def _resets(broker: Broker) -> list[float]:
    found: list[float] = []
    for _ in range(TESTS):
        client = broker.client()
        client.publish("jobs", "a")
        client.receive("mail", "jobs")
        broker.close_clients()
        time.sleep(TEST_S)
        found.append(_seconds(broker.reset))
    return found


def _hours(broker: Broker, every_minutes: int) -> list[float]:
    broker.reset()
    client = broker.client()
    client.create_topic("jobs")
    client.create_schedule("tick", "jobs", cron=f"*/{every_minutes} * * * *", value="tick")
    return [_seconds(lambda: broker.clock.advance("1h")) for _ in range(TESTS)]


def _seconds(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def _add(report: Report, name: str, took_s: list[float], target_ms: float) -> None:
    median_ms = percentile(took_s, 0.5) * 1e3
    note = f"p99 {percentile(took_s, 0.99) * 1e3:.1f} ms"
    report.add(SECTION, Row(name, median_ms, "ms", Target.at_most(target_ms, "ms"), note=note))
