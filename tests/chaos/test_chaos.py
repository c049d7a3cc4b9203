"""The harness against fronts over one node: honest ones pass, lying ones are caught."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from goqueue.wire.errors import OutcomeUnknown, Unavailable
from goqueue.wire.types import Offset
from node.api.records import AppendResult
from node.broker.node import NodeBroker
from node.http.server.app import HttpFront
from tests.chaos import report
from tests.chaos.cluster import Cluster, environment
from tests.chaos.http import Answer, Http
from tests.chaos.publishers import KINDS, Publisher, Refused, offsets_of
from tests.chaos.readers import Reader
from tests.chaos.two_fronts import two_fronts
from tests.check.history import Event, History
from tests.check.logcheck import Verdict, check
from tests.one_node import one_node

PARTITIONS = 3
ENOUGH_S = 30.0
EVERY = 7
APPENDS = 100
"""With several failures of each fault."""


class Liar:
    """In the place of a broker's `append`: fails, or lies, every `EVERY`-th time."""

    def __init__(self, broker: NodeBroker) -> None:
        self.fault = ""
        self.appends = 0
        self._append = broker.records.append
        broker.records.append = self.append  # type: ignore[method-assign]

    async def append(
        self, topic: str, partition: int, batch: bytes, **options: Any
    ) -> AppendResult:
        self.appends += 1
        if not self.fault or self.appends % EVERY:
            return await self._append(topic, partition, batch, **options)
        if self.fault == "refuse":
            raise Unavailable
        if self.fault == "doubt unstored":
            raise OutcomeUnknown
        if self.fault == "lose":
            return AppendResult(Offset(10**6 + self.appends), 1, False, 0, "majority")
        found = await self._append(topic, partition, batch, **options)
        if self.fault == "doubt stored":
            raise OutcomeUnknown
        if self.fault == "store refused":
            raise Unavailable
        if self.fault == "wrong offset":
            return dataclasses.replace(found, base_offset=Offset(found.base_offset + 1))
        return found


@dataclass
class Stage:
    """Fronts over one broker, playing a cluster."""

    liar: Liar
    fronts: list[HttpFront]
    cluster: Cluster
    http: Http
    history: History

    async def publish(self, is_enough: Callable[[], bool], publishers: int = 4) -> list[Publisher]:
        """They go on until it is enough, however slow the machine is."""
        rng = random.Random(1)
        made = [
            Publisher(n, self.cluster, self.http, "chaos", PARTITIONS, self.history, rng)
            for n in range(publishers)
        ]
        reader = Reader(self.cluster, self.http, "chaos", self.history, rng)
        working: list[Publisher | Reader] = [*made, reader]
        running = [asyncio.create_task(worker.run()) for worker in working]
        async with asyncio.timeout(ENOUGH_S):
            while not is_enough():  # noqa: ASYNC110 - any condition: there is no event to wait for
                await asyncio.sleep(0.05)
        for worker in working:
            worker.stop()
        await asyncio.gather(*running)
        await reader.read_everything()
        return made


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with one_node() as node, two_fronts(node.broker, tmp_path) as (fronts, cluster):
        await node.broker.topics.create_topic("chaos", {"partitions": PARTITIONS})
        http = Http()
        with History() as history:
            yield Stage(Liar(node.broker), fronts, cluster, http, history)
        await http.close()


async def test_every_kind_of_publisher_reaches_every_partition(stage: Stage) -> None:
    def has_reached_all() -> bool:
        begun = [e for e in stage.history if e["type"] == "invoke"]
        reached = {(e["publisher"], e["partition"]) for e in begun}
        return len(reached) == len(KINDS) * PARTITIONS and len(begun) > 150

    await stage.publish(has_reached_all)

    verdict = check(stage.history)
    assert list(verdict.lines()) == []
    assert verdict.acked == verdict.read > 100


async def test_publishers_go_on_through_another_node(stage: Stage) -> None:
    fell_s: list[float] = []

    async def fall() -> None:
        await asyncio.sleep(0.4)
        stage.cluster.nodes[0].is_running = False
        await stage.fronts[0].stop()
        del stage.cluster.nodes[0]
        fell_s.append(time.monotonic())

    def have_all_gone_on() -> bool:
        acked = [e for e in stage.history if fell_s and e["type"] == "ok"]
        since = {e["op"] for e in acked if e["sent"] > fell_s[0]}
        begun = (e for e in stage.history if e["type"] == "invoke")
        return len({e["publisher"] for e in begun if e["op"] in since}) == len(KINDS)

    falling = asyncio.create_task(fall())
    await stage.publish(have_all_gone_on)
    await falling

    assert list(check(stage.history).lines()) == []


@pytest.mark.parametrize("fault", ["refuse", "doubt stored", "doubt unstored"])
async def test_honest_failures_break_nothing_and_identity_survives_them(
    stage: Stage, fault: str
) -> None:
    stage.liar.fault = fault
    made = await stage.publish(lambda: stage.liar.appends >= APPENDS)

    verdict = check(stage.history)

    assert list(verdict.lines()) == []
    assert verdict.refused + verdict.in_doubt > 0
    assert sum(p.identities_lost for p in made) == 0


@pytest.mark.parametrize(
    ("fault", "rule"), [("lose", "L1"), ("store refused", "L6"), ("wrong offset", "L2")]
)
async def test_lying_broker_is_caught(stage: Stage, fault: str, rule: str) -> None:
    stage.liar.fault = fault
    await stage.publish(lambda: stage.liar.appends >= APPENDS)

    assert rule in check(stage.history).rules()


def timeline(*acks: tuple[float, float, int], kills: dict[float, list[int]]) -> list[Event]:
    """Acks as (request left, ack came, partition)."""
    events: list[Event] = []
    for op, (sent, came, partition) in enumerate(acks):
        events.append({"type": "invoke", "op": op, "partition": partition, "time": sent})
        events.append(
            {
                "type": "ok",
                "op": op,
                "partition": partition,
                "sent": sent,
                "time": came,
                "offsets": [op],
            }
        )
    for at, partitions in kills.items():
        events.append({"type": "kill", "node": "n", "partitions": partitions, "at": at})
    return events


def test_gap_ends_with_the_first_ack_of_a_request_that_left_after_the_kill() -> None:
    events = timeline(
        (9.9, 10.01, 0),  # on its way when the leader died
        (10.2, 10.9, 0),
        (10.3, 10.7, 0),
        (10.4, 10.45, 1),  # another partition
        kills={10.0: [0]},
    )

    (gap,) = report.gaps(events)

    assert gap.seconds == pytest.approx(0.7)


def test_partition_that_never_acks_again_has_an_infinite_gap_and_fails() -> None:
    events = timeline((9.0, 9.1, 0), kills={10.0: [0, 1]})

    found = report.gaps(events)

    assert [gap.seconds for gap in found] == [math.inf, math.inf]
    assert report.exit_code(Verdict([], acked=1), found, 1, 1) == 3


def test_exit_code_tells_what_failed() -> None:
    def gaps(*seconds: float) -> list[report.Gap]:
        return [report.Gap(0, "n", 0, s) for s in seconds]

    good = Verdict([], acked=10)
    broken = check(_lost())

    assert report.exit_code(good, gaps(*[0.4] * 99, 1.9), 100, 100) == 0
    assert report.exit_code(good, gaps(*[0.6] * 100), 100, 100) == 3
    assert report.exit_code(good, gaps(*[0.4] * 98, 2.1, 2.1), 100, 100) == 3
    assert report.exit_code(good, gaps(0.4), 99, 100) == 4
    assert report.exit_code(Verdict([]), gaps(0.4), 1, 1) == 1
    assert report.exit_code(broken, gaps(0.4), 1, 1) == 1


def _lost() -> list[Event]:
    return [
        {"type": "invoke", "op": 1, "publisher": "p", "partition": 0, "key": None,
         "values": ["v"], "time": 1.0},
        {"type": "ok", "op": 1, "offsets": [0], "sent": 1.0, "time": 2.0},
    ]  # fmt: skip


def test_quantiles_are_observed_values() -> None:
    values = [float(n) for n in range(1, 101)]

    assert report.quantile(values, 0.5) == 50
    assert report.quantile(values, 0.99) == 99
    assert report.quantile(values, 1.0) == 100
    assert math.isnan(report.quantile([], 0.5))


def test_answers_become_offsets_or_refusals() -> None:
    acked = Answer(200, {"results": [{"partition": 0, "offset": 4}, {"partition": 0, "offset": 5}]})
    batch = Answer(200, {"results": [{"partition": 0, "offset": 4, "count": 3, "duplicate": True}]})
    refused = Answer(
        503,
        {"error": "no", "code": "not_leader", "outcome": "none", "retriable": True, "results": []},
    )
    one_failed = Answer(
        200,
        {"results": [{"partition": 0, "offset": -1, "error": "no", "code": "c"}]},
    )

    assert offsets_of(acked, 2, is_batch=False) == ([4, 5], False)
    assert offsets_of(batch, 3, is_batch=True) == ([4, 5, 6], True)
    with pytest.raises(Refused, match="not_leader") as caught:
        offsets_of(refused, 1, is_batch=False)
    assert caught.value.is_retriable and not caught.value.is_unknown
    with pytest.raises(Refused) as caught:
        offsets_of(one_failed, 1, is_batch=False)
    assert caught.value.is_unknown
    with pytest.raises(Refused) as caught:
        offsets_of(Answer(502, None), 1, is_batch=False)
    assert caught.value.is_unknown


@pytest.mark.parametrize("use", ["loads(b'N.')", "dumps(1)", "Unpickler(f).load()"])
def test_process_of_a_chaos_cluster_dies_when_it_pickles(use: str) -> None:
    harmful = "f = __import__('io').BytesIO(b'cos\\nsystem\\n.')"
    code = f"import pysyncobj.pickle, pickle; print('began', flush=True); {harmful}; pickle.{use}"

    ended = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment(), capture_output=True, check=False
    )

    assert ended.stdout == b"began\n"
    assert ended.returncode == 86
    assert b"pickle was used" in ended.stderr
