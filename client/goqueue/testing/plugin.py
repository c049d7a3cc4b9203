"""Fixtures for pytest, there wherever the library is installed.

`goqueue_broker` is one broker a process, as new for each test; `goqueue_client`,
`goqueue_async_client` and `goqueue_queue` are of it. `@pytest.mark.goqueue(now="…")` says when its
time begins. They are plain fixtures: pytest-asyncio, anyio and xdist take them as they are. Nothing
is imported before a test asks for one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from goqueue.api.client import AsyncClient
    from goqueue.blocking.client import Client
    from goqueue.everyday.queue import Queue
    from goqueue.testing.broker import Broker

MARK = "goqueue"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARK}(now): when the time of the test's goqueue_broker begins"
    )


@pytest.fixture(scope="session")
def _goqueue_process() -> Iterator[list[Broker]]:
    """The broker of this process, once a test has asked for it."""
    opened: list[Broker] = []
    yield opened
    for broker in opened:
        broker.close()


@pytest.fixture
def goqueue_broker(
    request: pytest.FixtureRequest, _goqueue_process: list[Broker]
) -> Iterator[Broker]:
    """A broker of this test's own: nothing is stored, and its time stands at its beginning."""
    from goqueue.testing.broker import START, Broker

    mark = request.node.get_closest_marker(MARK)
    now = START if mark is None else mark.kwargs.get("now", START)
    if _goqueue_process:
        broker = _goqueue_process[0]
        broker.reset(now=now)
    else:
        broker = Broker(spare=True)
        broker.start()
        _goqueue_process.append(broker)
        if now != START:
            broker.reset(now=now)
    yield broker
    broker.resume()
    broker.close_clients()


@pytest.fixture
def goqueue_client(goqueue_broker: Broker) -> Client:
    """A client of the broker."""
    return goqueue_broker.client()


@pytest.fixture
def goqueue_async_client(goqueue_broker: Broker) -> AsyncClient:
    """A client of the broker, for the test's event loop."""
    return goqueue_broker.async_client()


@pytest.fixture
def goqueue_queue(goqueue_client: Client) -> Queue[Any]:
    """A queue of the broker, with one partition."""
    from goqueue.everyday.queue import Queue

    return Queue(goqueue_client)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails shows what its broker has not done."""
    report = yield
    broker: Broker | None = getattr(item, "funcargs", {}).get("goqueue_broker")
    if broker is not None and report.when == "call" and report.failed:
        broker.resume()
        told = broker.checks.unfinished().strip()
        if told:
            report.sections.append(("goqueue: messages that are not done", told))
    return report
