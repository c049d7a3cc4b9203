"""A request finds its leader, is repeated only where that is safe, and ends by its deadline."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    NoQuorum,
    NotLeader,
    OutcomeUnknown,
    Timeout,
    UnknownTopic,
)
from goqueue.wire.types import NodeId, PartitionId, TopicId
from node.metrics import Metrics
from node.peers.forwarding import Forwarder
from raft.link import LinkDown, RemoteError

GROUP = PartitionId(TopicId(1, 2), 0)
ME, A, B = NodeId("me"), NodeId("a"), NodeId("b")


class Known:
    """What this node knows of leadership; each wait moves on to the next known leader."""

    def __init__(self, *leaders: NodeId | None, reachable: int = 3) -> None:
        self.leaders = list(leaders)
        self.is_reachable = reachable
        self.waits = 0
        self.learned: list[NodeId] = []
        self.members: tuple[NodeId, ...] = (ME, A, B)

    def leader(self, partition_id: PartitionId) -> NodeId | None:
        return self.leaders[0] if self.leaders else None

    def learn(self, partition_id: PartitionId, leader: NodeId | None, asked: NodeId) -> None:
        self.learned += [] if leader is None else [leader]

    def replicas(self, partition_id: PartitionId) -> tuple[NodeId, ...]:
        return self.members

    def reachable(self, partition_id: PartitionId) -> int:
        return self.is_reachable

    async def changed(self, partition_id: PartitionId, timeout_s: float) -> None:
        self.waits += 1
        if len(self.leaders) > 1:
            del self.leaders[0]
        await asyncio.sleep(max(0.0, min(timeout_s, 0.002)))


class Mesh:
    """Answers each request with the next of a script, and remembers whom it was sent to."""

    def __init__(self, *script: bytes | Exception) -> None:
        self.script = list(script)
        self.asked: list[NodeId] = []
        self.payloads: list[bytes] = []

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        self.asked.append(node)
        self.payloads.append(payload)
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def remote(error: GoQueueError) -> RemoteError:
    return RemoteError(error)


async def call(
    known: Known,
    mesh: Mesh,
    *,
    local: Callable[[], bytes] | None = None,
    deadline_s: float = 1.0,
    has_identity: bool = True,
) -> bytes:
    async def here(_left_s: float) -> bytes:
        assert local is not None, "not expected here"
        return local()

    return await Forwarder(ME, known, mesh, random.Random(1), Metrics()).call(
        GROUP,
        local=here,
        method="append",
        payload=lambda _left_s: b"the same bytes",
        decode=bytes,
        deadline_s=deadline_s,
        has_identity=has_identity,
    )


async def test_the_local_leader_answers_without_the_link() -> None:
    mesh = Mesh()

    assert await call(Known(ME), mesh, local=lambda: b"here") == b"here"
    assert mesh.asked == []


async def test_a_hint_is_followed_at_once() -> None:
    known, mesh = Known(A), Mesh(remote(NotLeader("b")), b"done")

    assert await call(known, mesh) == b"done"
    assert mesh.asked == [A, B]
    assert known.waits == 0
    assert known.learned == [B]


async def test_nodes_that_point_at_each_other_are_not_asked_in_a_tight_loop() -> None:
    pointing = [remote(NotLeader("b")), remote(NotLeader("a"))] * 4
    known, mesh = Known(A), Mesh(*pointing, b"done")

    assert await call(known, mesh) == b"done"
    assert known.waits >= 2


async def test_an_unknown_leader_is_waited_for() -> None:
    known, mesh = Known(None, None, B), Mesh(b"done")

    assert await call(known, mesh) == b"done"
    assert mesh.asked == [B]


async def test_doubt_is_resolved_by_sending_the_same_bytes_again() -> None:
    known, mesh = Known(A, B), Mesh(LinkDown(A, sent=True), b"duplicate, original offset 7")

    assert await call(known, mesh) == b"duplicate, original offset 7"
    assert mesh.asked == [A, B]
    assert mesh.payloads[0] == mesh.payloads[1]


async def test_doubt_without_identity_is_told_and_never_repeated() -> None:
    mesh = Mesh(LinkDown(A, sent=True))

    with pytest.raises(OutcomeUnknown):
        await call(Known(A), mesh, has_identity=False)
    assert mesh.asked == [A]


async def test_a_silent_leader_is_left_as_soon_as_another_is_known() -> None:
    class Silent(Mesh):
        async def request(
            self, node: NodeId, method: str, payload: bytes, timeout_s: float
        ) -> bytes:
            if node == A:
                self.asked.append(node)
                await asyncio.Event().wait()
            return await super().request(node, method, payload, timeout_s)

    known, mesh = Known(A, B), Silent(b"done")
    forwarder = Forwarder(ME, known, mesh, random.Random(1), Metrics())

    async def never(_left_s: float) -> bytes:
        raise AssertionError("not led here")

    calling = asyncio.create_task(
        forwarder.call(
            GROUP,
            local=never,
            method="append",
            payload=lambda _left_s: b"same",
            decode=bytes,
            deadline_s=30,
        )
    )
    await asyncio.sleep(0.01)
    forwarder.leader_changed(GROUP, A)  # still the same
    await asyncio.sleep(0.01)
    assert not calling.done()

    forwarder.leader_changed(GROUP, B)

    assert await asyncio.wait_for(calling, 30) == b"done"
    assert mesh.asked == [A, B]


async def test_a_refusal_for_good_is_passed_on_as_it_is() -> None:
    mesh = Mesh(remote(BadRequest("no", field="x")))

    with pytest.raises(BadRequest) as caught:
        await call(Known(A), mesh)
    assert (caught.value.outcome, caught.value.data) == ("none", {"field": "x"})


async def test_a_refusal_after_doubt_does_not_claim_that_nothing_happened() -> None:
    mesh = Mesh(LinkDown(A, sent=True), remote(BadRequest("no")))

    with pytest.raises(BadRequest) as caught:
        await call(Known(A), mesh)
    assert caught.value.outcome == "unknown"


async def test_without_a_majority_the_refusal_is_no_quorum_and_says_how_many() -> None:
    async with asyncio.timeout(60):
        with pytest.raises(NoQuorum) as caught:
            await call(Known(None, reachable=1), Mesh(), deadline_s=3600)
    assert (caught.value.outcome, caught.value.http_status) == ("none", 503)
    assert (caught.value.data["reachable"], caught.value.data["replicas"]) == (1, 3)
    assert caught.value.data["retry_after_s"] == 1


async def test_the_deadline_ends_the_search_for_a_leader() -> None:
    with pytest.raises(Timeout) as caught:
        await call(Known(None), Mesh(), deadline_s=0.05)
    assert caught.value.outcome == "none"


async def test_the_deadline_in_doubt_says_unknown() -> None:
    known = Known(A, None)

    with pytest.raises(Timeout) as caught:
        await call(known, Mesh(LinkDown(A, sent=True)), deadline_s=0.05)
    assert caught.value.outcome == "unknown"


@pytest.mark.parametrize(
    ("script", "outcome"), [([], "none"), ([LinkDown(A, sent=True)], "unknown")]
)
async def test_a_topic_that_goes_meanwhile_is_unknown_and_not_without_quorum(
    script: list[Exception], outcome: str
) -> None:
    known = Known(*([A] if script else []), None)
    known.members = ()

    with pytest.raises(UnknownTopic) as refusal:
        await call(known, Mesh(*script), deadline_s=30)

    assert refusal.value.outcome == outcome
