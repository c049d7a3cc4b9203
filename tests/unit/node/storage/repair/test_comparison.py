"""Who is believed where replicas differ: a majority of those that vote, and nobody else."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from goqueue.wire.errors import NotFound, Unavailable
from goqueue.wire.types import Incarnation, NodeId, PartitionId, TopicId, Voter
from log.partition.range_hashes import Range
from node.metrics import Metrics
from node.rpc import partitions as rpc
from node.rpc.scrub import DIVERGED, HASHES, DivergedRequest, HashesAnswer
from node.storage.repair.comparison import Comparison

GROUP = PartitionId(TopicId(1, 7), 0)
RANGE: Range = (1, 4)
TRUE, FALSE = b"t" * 16, b"f" * 16


class Log:
    """A log as far as a comparison looks at it."""

    id = GROUP
    disk_segments = SimpleNamespace(generation=0)


class Replicas:
    """The replicas of one group, led by `me`: the hash that each node has of one range."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, hashes: dict[str, bytes], voters: list[str]
    ) -> None:
        self.hashes = hashes
        self.told: dict[str, bytes] = {}
        self.meanwhile: Callable[[str, str], object] = lambda _node, _method: None
        """What happens while a node is asked."""
        peers = {name: SimpleNamespace(connected=True) for name in sorted(hashes) if name != "me"}
        replica = SimpleNamespace(
            id=GROUP,
            is_ready_leader=True,
            leader="me",
            peers=peers,
            membership=SimpleNamespace(
                voters=[Voter(NodeId(name), Incarnation(1)) for name in voters]
            ),
        )
        self.handlers: dict[str, Callable[[NodeId, bytes], Awaitable[bytes]]] = {}
        self.running = [replica]
        self.logs = {GROUP: Log()}
        monkeypatch.setattr(
            "node.storage.repair.comparison.hash_range", lambda *_: (hashes["me"], 0)
        )
        self.comparison = Comparison(
            NodeId("me"),
            cast(
                Any,
                SimpleNamespace(
                    partition_log=self.logs.__getitem__, has_log=self.logs.__contains__
                ),
            ),
            cast(Any, SimpleNamespace(handle=self.handlers.__setitem__, request=self.request)),
            cast(Any, SimpleNamespace(raft_groups=lambda: self.running, raft_group=self.found)),
            ThreadPoolExecutor(1),
            Metrics(),
            pay=self.pay,
            on_diverged=lambda _partition_id, reason: self.told.update(me=reason.encode()),
        )

    def found(self, partition_id: PartitionId) -> Any:
        for replica in self.running:
            if replica.id == partition_id:
                return replica
        raise KeyError(partition_id)

    async def compare(self) -> None:
        hashes = SimpleNamespace(found={RANGE: self.hashes["me"]}, sizes={RANGE: 100})
        await self.comparison.compare(GROUP, cast(Any, hashes))

    async def request(self, node: str, method: str, payload: bytes, _timeout_s: float) -> bytes:
        self.meanwhile(node, method)
        if method == HASHES:
            return rpc.encode(HashesAnswer([self.hashes[node]]))
        assert method == DIVERGED
        self.told[node] = rpc.decode_request(payload, DivergedRequest).hash
        return b""

    async def pay(self, _size: int) -> None:
        pass


async def test_a_copy_that_a_learner_made_of_a_wrong_replica_outvotes_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashes = {"bad": FALSE, "copy": FALSE, "good": TRUE, "me": TRUE}
    replicas = Replicas(monkeypatch, hashes, ["bad", "good", "me"])

    await replicas.compare()

    assert replicas.told == {"bad": TRUE, "copy": TRUE}


async def test_two_voters_that_differ_are_not_decided_between_by_a_learner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = Replicas(monkeypatch, {"bad": FALSE, "copy": FALSE, "me": TRUE}, ["bad", "me"])

    await replicas.compare()

    assert replicas.told == {}
    [text] = replicas.comparison.diverged()
    assert "no majority agrees" in text


async def test_what_is_deleted_differs_no_more_and_its_log_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deleted topic stayed among the cluster's problems, and each log that was ever scrubbed in
    memory."""
    replicas = Replicas(monkeypatch, {"bad": FALSE, "me": TRUE}, ["bad", "me"])
    await replicas.compare()
    log = weakref.ref(replicas.logs[GROUP])

    replicas.running.clear()
    replicas.logs.clear()

    assert replicas.comparison.diverged() == []
    assert log() is None


async def test_a_learner_that_differs_from_all_voters_is_copied_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashes = {"a": TRUE, "learner": FALSE, "me": TRUE}
    replicas = Replicas(monkeypatch, hashes, ["a", "me"])

    await replicas.compare()

    assert replicas.told == {"learner": TRUE}


async def test_a_replica_that_goes_while_others_are_told_is_judged_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A verdict on it would be one on the replica that is made anew after it."""
    hashes = {"a": TRUE, "b": TRUE, "bad": FALSE, "me": FALSE}
    replicas = Replicas(monkeypatch, hashes, ["a", "b", "me"])
    judged: list[bool] = []
    replicas.comparison._on_diverged = lambda *_: judged.append(bool(replicas.running))

    def told(_node: str, method: str) -> None:
        if method == DIVERGED:
            replicas.running.clear()

    replicas.meanwhile = told

    await replicas.compare()

    assert judged == [True]


async def test_who_is_told_that_it_differs_looks_at_the_replica_that_still_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = Replicas(monkeypatch, {"a": TRUE, "me": FALSE}, ["a", "me"])

    async def pay(_size: int) -> None:
        replicas.running.clear()  # moved away meanwhile: its log is another one

    monkeypatch.setattr(replicas.comparison, "_pay", pay)
    request = rpc.encode(DivergedRequest(GROUP.pack(), *RANGE, TRUE))

    with pytest.raises(NotFound, match="has gone"):
        await replicas.handlers[DIVERGED](NodeId("me"), request)

    assert replicas.told == {}


async def test_a_group_that_is_deleted_while_replicas_are_compared_ends_no_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replicas = Replicas(monkeypatch, {"bad": FALSE, "me": TRUE}, ["bad", "me"])

    def deleted(_node: str, _method: str) -> None:
        replicas.running.clear()
        replicas.logs.clear()

    replicas.meanwhile = deleted

    await replicas.compare()

    assert replicas.told == {}


async def test_a_node_that_stops_refuses_others_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = Replicas(monkeypatch, {"me": TRUE, "b": FALSE}, ["me", "b"])
    request = rpc.encode(DivergedRequest(GROUP.pack(), *RANGE, TRUE))
    assert await replicas.handlers[DIVERGED](NodeId("me"), request) == b""

    replicas.comparison.stop()

    with pytest.raises(Unavailable):
        await replicas.handlers[DIVERGED](NodeId("me"), request)
