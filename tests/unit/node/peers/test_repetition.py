"""What is sent again after a lost answer: everything is declared, and nothing acked is undone."""

from __future__ import annotations

import ast
import asyncio
import importlib
import random
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import msgspec
import pytest

import node
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import (
    Command,
    CreateTopic,
    DeleteTopic,
    RegisterBroker,
    decode_command,
)
from delivery.config import GroupConfig
from delivery.dedup import results
from delivery.entries.ops import (
    RELEASE,
    REPEATED,
    Committed,
    CountResult,
    Delivered,
    Granted,
    Halted,
    Op,
    OpenGroup,
    Parked,
    Purged,
    Redriven,
    Resumed,
    SettledResult,
    Sought,
    Unparked,
)
from goqueue.wire.errors import Conflict, NotLeader, OutcomeUnknown
from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId, TopicId, Voter
from node.broker.archive import ArchivedRequest, NodeArchives
from node.broker.partitions import Partitions
from node.cluster.host import ClusterHost
from node.metrics import Metrics
from node.peers.forwarding import Forwarder
from node.peers.link import NoPeers
from node.peers.repetition import COMMANDS, METHODS, QUEUE_OPS, Repeats
from node.queue.operations import Operations
from node.rpc import partitions as rpc
from node.rpc.queue import OpsAnswer, OpsRequest
from raft.link import LinkDown, RemoteError
from tests.unit.delivery.desk import Desk, all_of

ME, LEADER = NodeId("me"), NodeId("leader")
PARTITION = PartitionId(TopicId(1, 2), 0)
K = b"k"


# the table


def _members(union: Any) -> set[type]:
    return {kind for part in get_args(union) for kind in get_args(part) or (part,)}


def _with_request(kinds: set[type]) -> set[type]:
    return {kind for kind in kinds if "request" in cast(Any, kind).__struct_fields__}


def _by_request(table: dict[type, Repeats]) -> set[type]:
    return {kind for kind, how in table.items() if how is Repeats.BY_REQUEST}


def test_every_operation_of_a_queue_says_whether_it_is_repeated() -> None:
    assert set(QUEUE_OPS) == _members(Op)
    assert _by_request(QUEUE_OPS) == _with_request(_members(Op)) == set(REPEATED)


def test_every_command_says_whether_it_is_repeated() -> None:
    assert set(COMMANDS) == _members(Command)
    assert _by_request(COMMANDS) == _with_request(_members(Command))


def test_every_request_between_nodes_says_whether_it_is_repeated() -> None:
    handled = {
        method
        for path in Path(node.__path__[0]).rglob("*.py")
        for method in _handled(path, f"node.{'.'.join(_parts(path))}")
    }

    assert len(handled) > 30
    assert set(METHODS) == handled


def _parts(path: Path) -> Sequence[str]:
    return path.relative_to(node.__path__[0]).with_suffix("").parts


def _handled(path: Path, module: str) -> list[str]:
    """The methods that a module serves on the link, by the names it has for them."""
    tree = ast.parse(path.read_text())
    calls = [found for found in ast.walk(tree) if isinstance(found, ast.Call)]
    served = [
        call.args[0]
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "handle" and call.args
        if ast.unparse(call.func.value).endswith("link")
    ]
    if not served:
        return []
    names = vars(importlib.import_module(module))
    return [eval(ast.unparse(name), names) for name in served]


# queues


class LosesAnswers:
    """A leader that applies what it is asked, and loses its first answer; `meanwhile` is what
    somebody else does, and is answered, before it is asked again."""

    def __init__(self, desk: Desk, meanwhile: Sequence[Op]) -> None:
        self.desk = desk
        self.meanwhile = meanwhile
        self.requests: list[OpsRequest] = []

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        request = rpc.decode_request(payload, OpsRequest)
        self.requests.append(request)
        results = self.desk.do(*request.ops)
        if len(self.requests) == 1:
            for op in self.meanwhile:
                self.desk.do(op)
            raise LinkDown(LEADER, sent=True)
        return rpc.encode(OpsAnswer(results))


class Leads:
    """Leadership as a node knows it that is sure of the leader."""

    def leader(self, partition_id: PartitionId) -> NodeId | None:
        return LEADER

    def learn(self, partition_id: PartitionId, leader: NodeId | None, asked: NodeId) -> None: ...

    def replicas(self, partition_id: PartitionId) -> tuple[NodeId, ...]:
        return (LEADER,)

    def reachable(self, partition_id: PartitionId) -> int:
        return 1

    async def changed(self, partition_id: PartitionId, timeout_s: float) -> None:
        await asyncio.sleep(0)


def operations(link: Any) -> Operations:
    forwarder = Forwarder(ME, Leads(), link, random.Random(1), Metrics())
    return Operations(cast(Any, None), forwarder, NoPeers(), random.Random(2))


def keyed_desk() -> Desk:
    desk = Desk()
    desk.do(OpenGroup(1, "g", 1, GroupConfig(ordering="key"), 0))
    desk.publish(10, keys=[K] * 10)
    return desk


@pytest.mark.parametrize(
    ("op", "meanwhile"),
    [
        (Committed(1, 10), [Sought(1, 0, 77)]),
        (Sought(1, 0), [Committed(1, 10)]),
        (Parked(1, K), [Unparked(1, K)]),
        (Unparked(1, K), [Parked(1, K)]),
        (Resumed(1), [Halted(1, "too many failures")]),
    ],
    ids=lambda found: "" if isinstance(found, list) else type(found).__name__,
)
async def test_a_repeat_takes_nothing_back_that_others_did_in_between(
    op: Op, meanwhile: list[Op]
) -> None:
    once, twice = keyed_desk(), keyed_desk()
    (expected,) = once.do(op)
    for other in meanwhile:
        once.do(other)
    link = LosesAnswers(twice, meanwhile)

    answer = await operations(link).put(PARTITION, [op])

    assert [request.again for request in link.requests] == [False, True]
    assert _standing(twice) == _standing(once)
    assert answer.results == [expected]


def _standing(desk: Desk) -> tuple[int, int, object, str]:
    group = desk.group()
    return group.committed_offset, group.ready_count(), group.parked(), group.halted


@pytest.mark.parametrize("kind", [Purged, Redriven])
async def test_dead_letters_are_counted_once_whoever_does_not_name_the_request(kind: Any) -> None:
    desk = Desk()
    desk.open(1)
    desk.publish(1)
    desk.reject(desk.receive())
    link = LosesAnswers(desk, [])

    answer = await operations(link).put(PARTITION, [kind(1, [0])])

    assert answer.results == [CountResult(1)]
    assert len({request.ops[0].request for request in link.requests}) == 1  # type: ignore[union-attr]


def test_old_entries_have_no_request_id_and_apply_as_they_did() -> None:
    old = msgspec.msgpack.encode([[8, 1, 10, "", 0], [13, 1, K], [14, 1, K], [16, 1]])
    desk = keyed_desk()

    ops = msgspec.msgpack.decode(old, type=list[Op])

    assert ops == [Committed(1, 10), Parked(1, K), Unparked(1, K), Resumed(1)]
    assert desk.do(ops[0]) == [CountResult(10)]
    desk.do(Sought(1, 0, 5))
    assert desk.do(ops[0]) == [CountResult(10)]


@pytest.mark.parametrize(("anew", "times"), [(True, 1), (False, 2)])
async def test_a_report_that_takes_over_from_any_archive_is_not_repeated(
    anew: bool, times: int
) -> None:
    """Another archive may have been told of, and answered, since the first attempt."""
    asked: list[bytes] = []

    class Lost(NoPeers):
        async def request(
            self, node: NodeId, method: str, payload: bytes, timeout_s: float
        ) -> bytes:
            asked.append(payload)
            raise LinkDown(LEADER, sent=True) if len(asked) < 2 else RemoteError(Conflict("enough"))

    link = Lost()
    forwarder = Forwarder(ME, Leads(), link, random.Random(1), Metrics())
    broker = NodeArchives(Partitions(cast(Any, None), cast(Any, None), forwarder, link))
    request = ArchivedRequest(PARTITION.pack(), "t", "s3://one", 5, anew)

    with pytest.raises(OutcomeUnknown if anew else Conflict):
        await broker._tell(request)
    assert len(asked) == times


# results that are forgotten


async def test_a_repeat_that_may_have_been_forgotten_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "CHANGES_MAX", 5)
    desk = keyed_desk()
    desk.state.queue.results.load([])
    commit = Committed(1, 3, request=1)
    submitted: list[Op] = []

    async def submit(ops: Sequence[Op], _opens: object) -> list[Any]:
        submitted.extend(ops)
        return desk.do(*ops)

    host = SimpleNamespace(
        state=desk.state,
        log_time_ms=lambda: desk.now_ms,
        queue=SimpleNamespace(submit=submit),
        figures=SimpleNamespace(settled=lambda *_: None),
    )
    partitions = cast(Any, SimpleNamespace(leading=lambda _group: host))
    taken = Operations(partitions, cast(Any, None), NoPeers(), random.Random(1))

    async def ask(op: Op, *, again: bool) -> OpsAnswer:
        return await taken.take(OpsRequest(PARTITION.pack(), [op], None, again))

    await ask(commit, again=False)
    assert (await ask(commit, again=True)).results == [CountResult(3)]
    for number in range(5):
        await ask(Sought(1, 0, 100 + number), again=False)

    with pytest.raises(OutcomeUnknown) as refused:
        await ask(commit, again=True)
    assert refused.value.data["forgotten"] is True
    assert len(submitted) == 7
    await ask(commit, again=False)  # a first attempt is no repeat
    desk.now_ms += results.REMEMBERED_MS + 1
    await ask(Sought(1, 0, 1000), again=True)  # nobody repeats for so long


async def test_only_what_may_have_been_applied_is_told_to_be_a_repeat() -> None:
    """Given a leader that hands over, and one whose answer is lost; then the attempt after the
    refusal is no repeat, which may be refused as forgotten, and the one after the loss is."""
    attempts: list[bool] = []

    class Refuses:
        async def request(self, _node: NodeId, _method: str, payload: bytes, _s: float) -> bytes:
            attempts.append(rpc.decode_request(payload, OpsRequest).again)
            if len(attempts) == 1:
                raise RemoteError(NotLeader(None))
            if len(attempts) == 2:
                raise LinkDown(LEADER, sent=False)
            if len(attempts) == 3:
                raise LinkDown(LEADER, sent=True)
            return rpc.encode(OpsAnswer([CountResult(3)]))

    await operations(Refuses()).put(PARTITION, [Committed(1, 3)])

    assert attempts == [False, False, False, True]


async def test_what_is_forgotten_is_not_asked_for_again() -> None:
    class Forgets:
        asked = 0

        async def request(self, *_: object) -> bytes:
            self.asked += 1
            raise RemoteError(OutcomeUnknown(forgotten=True))

    link = Forgets()

    with pytest.raises(OutcomeUnknown):
        await operations(link).put(PARTITION, [Committed(1, 10)])
    assert link.asked == 1


def test_much_that_is_granted_does_not_make_a_partition_forget_a_seek(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(results, "MESSAGES_MAX", results.MESSAGES_MAX // 16)
    desk = Desk()
    desk.open(1, visibility_ms=1000)
    desk.publish(1000)
    desk.do(Sought(1, 0, 7))
    evicted = 0
    for number in range(20):
        offsets = desk.group().select(1000, desk.now_ms)
        (granted,) = desk.do(Delivered(1, "m", 30_000, offsets, 1000 + number))
        assert isinstance(granted, Granted)
        desk.settle(RELEASE, all_of(granted))
        evicted = desk.queue.results.evicted

    assert evicted > 0
    assert desk.queue.results.of(7) is not None
    assert not desk.queue.results.may_have_forgotten(8, desk.now_ms, settles=False)
    assert desk.queue.results.may_have_forgotten(8, desk.now_ms, settles=True)


def test_a_snapshot_tells_what_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "CHANGES_MAX", 2)
    full = results.Results()
    for request in (1, 2, 3):
        full.remember(request, 50 + request, CountResult(request))

    again = results.Results()
    again.load(full.dump())

    assert (full.evicted, again.evicted) == (1, 0)  # a figure of each process
    assert again.may_have_forgotten(1, 60, settles=False)
    assert not again.may_have_forgotten(2, 60, settles=False)
    assert not again.may_have_forgotten(1, 60 + results.REPEATED_MS, settles=False)
    assert len(again) == 2


def test_a_repeat_is_not_refused_for_results_that_nobody_asks_for_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given consumers that settle so much that results go after two minutes, long after the last
    repeat; when a settle comes again after its leader died, then it is applied."""
    monkeypatch.setattr(results, "MESSAGES_MAX", 120)
    known = results.Results()
    result = SettledResult([], 0, advanced=True, in_flight=0)
    for second in range(300):
        known.remember(1 + second, 1000 * second, result)

    assert known.evicted == 180 and known.of(180) is None
    assert not known.may_have_forgotten(999, 300_000, settles=True)


def test_the_oldest_result_is_found_without_a_look_at_those_that_went_before() -> None:
    """A dict steps over all keys that were deleted before its first one: 65,536 results that are
    too old at once held the loop for seconds, and each entry for a tenth of a millisecond."""
    known = results.Results()

    assert all(isinstance(table.results, OrderedDict) for table in (known._handed, known._changes))


# the cluster group


async def test_a_topic_that_was_created_and_deleted_is_not_created_by_a_repeat() -> None:
    state = ClusterState(9)
    state.apply(Index(2), 0, RegisterBroker("n1", 7, "a:1", "http://a", "", "1", {}))
    cluster = ClusterHost(Voter(NodeId("n1"), Incarnation(1)), on_change=lambda: None)
    seen: list[CreateTopic] = []

    class Leader:
        async def call(self, *_: Any, payload: Any, on_doubt: Any, **__: Any) -> object:
            seen.append(create(payload))  # refused by one that does not lead
            for index in (3, 5):
                seen.append(create(payload))
                result = state.apply(Index(index), 0, seen[-1])
                state.apply(Index(index + 1), 0, DeleteTopic("t"))
                on_doubt()
            raise cast(Conflict, result)

    def create(payload: Any) -> CreateTopic:
        command = decode_command(payload(1.0))
        assert isinstance(command, CreateTopic)
        return command

    cluster.use(cast(Forwarder, Leader()), NoPeers())

    with pytest.raises(Conflict, match="created and deleted"):
        await cluster.command(CreateTopic("t", {"replication_factor": 1}), 1)
    assert [command.after > 0 for command in seen] == [False, False, True]
    assert "t" not in state.topics
