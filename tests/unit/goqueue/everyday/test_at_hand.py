"""The way to a directory of one's own process: no requests, and what becomes of refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goqueue import Queue
from goqueue.errors import GoQueueError, OutcomeUnknown, Unavailable
from goqueue.local.directory import DirectoryChannel
from goqueue.transport.spans import NoSpans
from node.embedded.engine import Engine


class Refusing:
    """An engine whose desk refuses everything."""

    def __init__(self, error: GoQueueError) -> None:
        self._error = error

    def append(self, *_: object) -> None:
        raise self._error

    take = settle = append


class Recorded(NoSpans):
    def is_active(self) -> bool:
        return True


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Queue[Any]]:
    with Queue(tmp_path / "jobs") as jobs:
        yield jobs


@pytest.fixture
def asked(jobs: Queue[Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that are made from now on."""
    found: list[str] = []
    ask = Engine.ask

    def noted(engine: Engine, method: str, target: str, *given: Any) -> Any:
        found.append(f"{method} {target.rpartition('/')[2]}")
        return ask(engine, method, target, *given)

    monkeypatch.setattr(Engine, "ask", noted)
    return found


def work(jobs: Queue[Any]) -> list[Any]:
    jobs.put("a")
    jobs.put_many([b"b", "c"])
    first = jobs.get(timeout=0)
    first.ack()
    others = jobs.get_many(5, timeout=0)
    jobs.ack(*others)
    return [item.value for item in (first, *others)]


def test_a_directory_of_ones_own_is_asked_without_requests(
    jobs: Queue[Any], asked: list[str]
) -> None:
    assert work(jobs) == ["a", b"b", "c"]

    assert asked == []
    assert jobs.empty()


@pytest.mark.parametrize("why", ["refused", "recorded"])
def test_what_is_refused_for_now_or_recorded_goes_by_requests(
    jobs: Queue[Any], asked: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "refused":
        refusing = Refusing(Unavailable(outcome="none"))
        monkeypatch.setattr(DirectoryChannel, "engine", refusing)
    else:
        monkeypatch.setattr("goqueue.everyday.at_hand.SPANS", Recorded())

    assert work(jobs) == ["a", b"b", "c"]
    assert asked.count("POST messages") == 2
    assert asked.count("POST settle") == 2


def test_what_may_have_happened_is_not_asked_again(
    jobs: Queue[Any], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.put("a")
    item = jobs.get(timeout=0)
    monkeypatch.setattr(DirectoryChannel, "engine", Refusing(OutcomeUnknown()))

    for call in (lambda: jobs.put("b"), lambda: jobs.put_many(["b"]), item.ack):
        with pytest.raises(OutcomeUnknown):
            call()
    assert asked == []
