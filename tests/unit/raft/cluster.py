"""A Raft cluster in one process on virtual time, over the real store on disks in memory."""

from __future__ import annotations

import functools
import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId, Term, TopicId, Voter
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.entry import Entry, EntryKind, make_entry
from log.store.directory import Store
from raft import frames
from raft.config import RaftConfig
from raft.configuration import Change
from raft.errors import Outcome
from raft.frames import FrameKind
from raft.group import RaftGroup
from raft.host import RaftHost
from raft.interfaces import Environment, Log

Claim = Callable[[type[RaftGroup]], None]

GROUP = PartitionId(TopicId(7, 1), 0)
EPOCH_MS = 1_700_000_000_000
STORAGE = StorageConfig(wal_file_bytes=1 << 16, segment_bytes=1 << 20, reserve_bytes=0)


class Timer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Time:
    """Virtual time: calls in order of their time, then of their arrival."""

    def __init__(self) -> None:
        self.time = 0.0
        self._queue: list[tuple[float, int, Timer, Callable[..., object], tuple[object, ...]]] = []
        self._count = 0

    def now(self) -> float:
        return self.time

    def pass_by(self, seconds: float) -> None:
        """Time passes during a call, and nothing else happens."""
        self.time += seconds

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        return self.call_later(0.0, callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        timer = Timer()
        self._count += 1
        heapq.heappush(self._queue, (self.time + delay_s, self._count, timer, callback, args))
        return timer

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Runs for this long, or until the condition holds; whether it does."""
        end = self.time + seconds
        while self._queue and self._queue[0][0] <= end:
            if until is not None and until():
                return True
            at, _count, timer, callback, args = heapq.heappop(self._queue)
            self.time = max(self.time, at)
            if not timer.cancelled:
                callback(*args)
        self.time = end
        return until() if until is not None else True


class NodeTime:
    """One node's share of the time: what it had planned dies with it."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.alive = True

    def now(self) -> float:
        return self._time.time

    def call_soon(self, callback: Callable[..., object], *args: object) -> Timer:
        return self._time.call_later(0.0, self._call, callback, args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Timer:
        return self._time.call_later(delay_s, self._call, callback, args)

    def _call(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        if self.alive:
            callback(*args)


@dataclass
class Machine:
    """A state machine that remembers what it was told."""

    applied: list[tuple[int, bytes]] = field(default_factory=list)
    events: list[tuple[str, object]] = field(default_factory=list)
    poison: bytes | None = None
    on_apply: Callable[[], None] | None = None

    def apply(self, entry: Entry) -> object:
        body = bytes(entry.body)
        if self.on_apply is not None:
            self.on_apply()
        if body == self.poison:
            raise ValueError("poison")
        self.applied.append((entry.index, body))
        return len(self.applied)

    def snapshot(self) -> bytes:
        return repr(self.applied).encode()

    def restore(self, index: Index, state: bytes) -> None:
        self.events.append(("restore", index))
        parts = state.decode().strip("[]")
        count = parts.count("(")
        self.applied = [(0, b"restored")] * count

    def on_leader(self, term: Term) -> None:
        self.events.append(("leader", term))

    def on_follower(self, leader: NodeId | None) -> None:
        self.events.append(("follower", leader))


@dataclass(frozen=True)
class Sent:
    """One frame on its way, as the filter of a test sees it."""

    source: str
    target: str
    partition_id: PartitionId
    frame: bytes

    @property
    def kind(self) -> int:
        return self.frame[0]


class Net:
    """Links with delay. `links` are up; `silent` ones lose everything without telling anybody."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.delay_s = 0.001
        self.links: set[tuple[str, str]] = set()
        self.silent: set[tuple[str, str]] = set()
        self.filter: Callable[[Sent], bool] | None = None
        self.log: list[Sent] = []
        self.epoch: dict[tuple[str, str], int] = {}
        self.proves_incarnations = False
        """Whether hosts learn with which data directory a link is."""

    def send(
        self, source: str, target: str, partition_id: PartitionId, parts: Sequence[bytes]
    ) -> bool:
        link = (min(source, target), max(source, target))
        if link not in self.links:
            return False
        sent = Sent(source, target, partition_id, b"".join(parts))
        self.log.append(sent)
        if (source, target) in self.silent or (self.filter and not self.filter(sent)):
            return True
        self.cluster.time.call_later(self.delay_s, self._deliver, sent, self.epoch[link])
        return True

    def _deliver(self, sent: Sent, epoch: int) -> None:
        link = (min(sent.source, sent.target), max(sent.source, sent.target))
        node = self.cluster.nodes[sent.target]
        if link in self.links and self.epoch[link] == epoch and node.host is not None:
            node.host.receive(NodeId(sent.source), sent.partition_id, memoryview(sent.frame))

    def connect(self, one: str, other: str) -> None:
        link = (min(one, other), max(one, other))
        nodes = self.cluster.nodes
        if link in self.links or nodes[one].host is None or nodes[other].host is None:
            return
        self.links.add(link)
        self.epoch[link] = self.epoch.get(link, 0) + 1
        for a, b in ((one, other), (other, one)):
            host = nodes[a].host
            assert host is not None
            proven = nodes[b].store.incarnation if self.proves_incarnations else None
            host.peer_connected(NodeId(b), proven)

    def cut(self, one: str, other: str) -> None:
        link = (min(one, other), max(one, other))
        if link not in self.links:
            return
        self.links.discard(link)
        for a, b in ((one, other), (other, one)):
            host = self.cluster.nodes[a].host
            if host is not None:
                host.peer_disconnected(NodeId(b))


class NodeNet:
    def __init__(self, net: Net, node: str) -> None:
        self.net = net
        self.node = node
        self.backlog = 0

    def send(self, node: NodeId, partition_id: PartitionId, parts: list[bytes]) -> bool:
        return self.net.send(self.node, node, partition_id, parts)

    def backlog_bytes(self, node: NodeId) -> int:
        return self.backlog


class ClusterNode:
    """One node: a disk that outlives it, and a store and host while it runs."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.disk = MemoryDisk()
        self.network = NodeNet(cluster.net, name)
        self.host: RaftHost | None = None
        self.store: Store
        self.machine = Machine()
        self.time: NodeTime
        self.failures: list[Exception] = []
        self.sync_s = 0.002
        self.syncing = True
        self._flushing = False

    def open(self) -> None:
        cluster = self.cluster
        self.time = NodeTime(cluster.time)
        self._flushing = False
        self.store = Store.open(
            self.disk,
            "/data",
            STORAGE,
            random_u64=lambda: cluster.rng.getrandbits(64),
            set_aside=True,
        )
        self.store.on_dirty = self._dirty
        environment = Environment(
            Voter(NodeId(self.name), self.store.incarnation),
            self.network,
            self.time,
            cluster.rng,
            lambda: EPOCH_MS + int(cluster.time.time * 1000),
            cluster.config,
            rests=lambda: cluster.rests,
        )
        self.host = RaftHost(environment, self.store, raft_group_type=cluster.raft_group_type)
        self.host.on_failed = lambda _group, error: self.failures.append(error)

    def _dirty(self) -> None:
        self.time.call_soon(self.flush)

    def flush(self) -> None:
        """Syncs what is pending, as long as the disk works; it takes `sync_s`."""
        if self._flushing or not self.syncing:
            return
        relaxed = self.cluster.relaxed
        job = self.store.take_flush(int(self.cluster.time.time * 1000) if relaxed else None)
        due = self.store.sync_due_ms()
        if due is not None:
            wait_s = due / 1000 - self.cluster.time.time
            self.time.call_later(max(wait_s, 0.0) + 0.001, self.flush)
        if job is None:
            return
        self._flushing = True

        def done() -> None:
            job.sync()
            job.spill()
            self._flushing = False
            self.store.complete_flush(job)
            self.store.complete_spill(job)
            self.flush()

        self.time.call_later(self.sync_s, done)

    @property
    def raft_group(self) -> RaftGroup:
        assert self.host is not None
        return self.host.raft_group(GROUP)


class Cluster:
    """Nodes a, b, c, ... of one group, connected pairwise."""

    def __init__(
        self,
        size: int = 3,
        *,
        spares: int = 0,
        seed: int = 1,
        config: RaftConfig | None = None,
        raft_group_type: type[RaftGroup] = RaftGroup,
        start: bool = True,
        relaxed: bool = False,
        rests: bool = False,
    ) -> None:
        self.relaxed = relaxed
        self.rests = rests
        self.time = Time()
        self.rng = random.Random(seed)
        self.config = config or RaftConfig()
        self.raft_group_type = raft_group_type
        self.net = Net(self)
        names = [chr(ord("a") + at) for at in range(size)]
        self.joined: set[str] = set()
        self.nodes = {name: ClusterNode(self, name) for name in names}
        self.voter_names = names
        self.answers: list[tuple[bytes, Outcome, object, int]] = []
        self.voters: list[Voter] = []
        if start:
            for name in names:
                self.nodes[name].open()
            self.voters = [
                Voter(NodeId(name), self.nodes[name].store.incarnation) for name in self.voter_names
            ]
            for name in names:
                self.start_raft_group(name, bootstrap=True)
            self.connect_all()
        for at in range(spares):
            name = chr(ord("a") + size + at)
            self.nodes[name] = ClusterNode(self, name)

    def name_voters(self) -> None:
        self.voters = [
            Voter(NodeId(name), self.nodes[name].store.incarnation) for name in self.voter_names
        ]

    def start_raft_group(self, name: str, *, bootstrap: bool = False) -> RaftGroup:
        node = self.nodes[name]
        node.machine = Machine()
        assert node.host is not None
        if self.relaxed:
            exists = node.store.has_log(GROUP)
            log = node.store.partition_log(GROUP) if exists else node.store.create_log(GROUP)
            log.relaxed = True
        return node.host.start_raft_group(
            GROUP,
            () if name in self.joined else self.voters,
            node.machine,
            bootstrap,
            created_ms=EPOCH_MS,
        )

    def join(self, name: str) -> Voter:
        """Starts a replica that knows nothing of the group; what it is to be named as."""
        self.joined.add(name)
        node = self.nodes[name]
        if node.host is None:
            node.open()
        self.start_raft_group(name)
        for other in self.nodes:
            if other != name:
                self.net.connect(name, other)
        return Voter(NodeId(name), node.store.incarnation)

    def connect_all(self) -> None:
        for one, other in self.pairs():
            self.net.connect(one, other)

    def pairs(self) -> Iterator[tuple[str, str]]:
        names = list(self.nodes)
        for at, one in enumerate(names):
            for other in names[at + 1 :]:
                yield one, other

    # -- asking

    def raft_group(self, name: str) -> RaftGroup:
        return self.nodes[name].raft_group

    def running(self) -> list[ClusterNode]:
        return [node for node in self.nodes.values() if node.host is not None]

    def leader(self) -> str | None:
        """The ready leader of the highest term."""
        ready = [node for node in self.running() if node.raft_group.is_ready_leader]
        return max(ready, key=lambda node: node.raft_group.term).name if ready else None

    def elect(self, within_s: float = 10.0) -> str:
        """Runs until a leader is ready."""
        assert self.time.run(within_s, lambda: self.leader() is not None), "no leader"
        leader = self.leader()
        assert leader is not None
        return leader

    def followers(self) -> list[str]:
        leader = self.leader()
        return [name for name in self.voter_names if name != leader]

    def propose(self, body: bytes, on: str | None = None) -> Index:
        raft_group = self.raft_group(on or self.elect())

        def answer(outcome: Outcome, result: object, index: Index) -> None:
            self.answers.append((body, outcome, result, index))

        return raft_group.propose(EntryKind.COMMAND, body, callback=answer)

    def change(self, change: Change, on: str | None = None) -> Index:
        """Appends a change on the leader; `settle` lets it commit."""

        def answer(outcome: Outcome, result: object, index: Index) -> None:
            self.answers.append((repr(change).encode(), outcome, result, index))

        return self.raft_group(on or self.elect()).changes.change(change, answer)

    def voting(self, name: str) -> str:
        """The voters of the configuration in force on this node, in one word."""
        return "".join(voter.node for voter in self.raft_group(name).membership.voters)

    def learning(self, name: str) -> str:
        return "".join(one.node for one in self.raft_group(name).membership.configuration.learners)

    def outcomes(self, body: bytes) -> list[Outcome]:
        return [outcome for text, outcome, _result, _index in self.answers if text == body]

    def settle(self, seconds: float = 1.0) -> None:
        self.time.run(seconds)

    def bodies(self, name: str) -> list[bytes]:
        return [body for _index, body in self.nodes[name].machine.applied]

    # -- faults

    def kill(self, name: str, *, power: bool = False, keep: float = 0.0) -> None:
        """The process dies; with `power` its disk loses what was not synced."""
        node = self.nodes[name]
        for other in self.nodes:
            if other != name:
                link = (min(name, other), max(name, other))
                if link in self.net.links:
                    self.net.links.discard(link)
                    host = self.nodes[other].host
                    if host is not None:
                        host.peer_disconnected(NodeId(name))
        node.time.alive = False
        node.host = None
        node.disk = node.disk.crash(self.rng, keep=keep) if power else node.disk.clone()

    def restart(self, name: str) -> None:
        self.nodes[name].open()
        self.start_raft_group(name)
        for other in self.nodes:
            if other != name:
                self.net.connect(name, other)

    def wipe(self, name: str) -> None:
        """The process dies, and its data directory is lost."""
        self.kill(name)
        self.nodes[name].disk = MemoryDisk()

    def isolate(self, name: str) -> None:
        for other in self.nodes:
            if other != name:
                self.net.cut(name, other)

    def mute(self, name: str) -> None:
        """Loses all frames from and to this node, with the links still up."""
        for other in self.nodes:
            if other != name:
                self.net.silent |= {(name, other), (other, name)}

    def unmute(self) -> None:
        self.net.silent.clear()


def append_frame(
    term: int, prev: int, prev_term: int, commit: int, entries: Sequence[Entry] = ()
) -> memoryview:
    """An APPEND as a leader would send it."""
    head = frames.append_head(term, prev, prev_term, commit, len(entries))
    return memoryview(b"".join([head, *(entry.frame for entry in entries)]))


class Lone(Cluster):
    """One real replica `a`; the others are words in the test's mouth."""

    def __init__(
        self,
        size: int = 3,
        *,
        raft_group_type: type[RaftGroup] = RaftGroup,
        config: RaftConfig | None = None,
        relaxed: bool = False,
    ) -> None:
        super().__init__(
            size, start=False, config=config, raft_group_type=raft_group_type, relaxed=relaxed
        )
        self.me.open()
        self.voters = [
            Voter(NodeId(name), Incarnation(number)) for number, name in enumerate(self.nodes)
        ]
        self.voters[0] = Voter(NodeId("a"), self.me.store.incarnation)
        self.start_raft_group("a", bootstrap=True)
        self.settle(0.01)
        self.link_up()

    @property
    def me(self) -> ClusterNode:
        return self.nodes["a"]

    @property
    def replica(self) -> RaftGroup:
        return self.me.raft_group

    def link_up(self) -> None:
        host = self.me.host
        assert host is not None
        for other in list(self.nodes)[1:]:
            self.net.links.add(("a", other))
            self.net.epoch["a", other] = 1
            host.peer_connected(NodeId(other))

    def hear(self, source: str, frame: bytes | memoryview, settle_s: float = 0.0) -> None:
        """A frame arrives; what it causes this instant, and within `settle_s`, has happened."""
        host = self.me.host
        assert host is not None
        host.receive(NodeId(source), GROUP, memoryview(frame))
        self.settle(settle_s)

    def said(self, kind: FrameKind, to: str | None = None) -> list[memoryview]:
        """Frames of this kind sent so far."""
        return [
            memoryview(sent.frame)
            for sent in self.net.log
            if sent.partition_id == GROUP and sent.kind == kind and to in (None, sent.target)
        ]

    def acked(self, to: str) -> list[int]:
        """The matched indexes acknowledged to this node, rejections left out."""
        acks = [frames.parse_ack(frame) for frame in self.said(FrameKind.ACK, to)]
        return [index for flags, _term, index, _hint, _hint_term in acks if not flags]

    def granted(self, to: str, term: int) -> bool:
        """Whether this node was told that it has the vote of that term."""
        replies = [frames.parse_vote_reply(frame) for frame in self.said(FrameKind.VOTE_REPLY, to)]
        return (frames.GRANTED, term, term) in replies

    def lead(self, votes: Sequence[str] = ("b",)) -> int:
        """Makes `a` the leader by the votes of these; its term. Its no-op is not acknowledged."""
        raft_group = self.replica
        for _ in range(60):
            self.settle(0.1)
            asked = raft_group.term + 1
            for voter in votes:
                reply = frames.vote_reply(raft_group.term, asked, frames.PRE | frames.GRANTED)
                self.hear(voter, reply)
            self.settle(0.02)
            for voter in votes:
                self.hear(
                    voter, frames.vote_reply(raft_group.term, raft_group.term, frames.GRANTED)
                )
            if raft_group.is_leader:
                self.settle(0.02)
                return raft_group.term
        raise AssertionError("a was not elected")

    def ack_all(self, source: str = "b") -> None:
        """This follower acknowledges everything in the leader's log."""
        last = self.log.last_index
        self.hear(source, frames.ack(self.replica.term, last), 0.02)

    @property
    def log(self) -> Log:
        return self.me.store.partition_log(GROUP)


def command(index: int, term: int, body: bytes) -> Entry:
    """An entry as a leader would make it."""
    return make_entry(index=index, term=term, time_ms=EPOCH_MS, kind=EntryKind.COMMAND, body=body)


def fails_under(*mutants: type[RaftGroup]) -> Callable[[Claim], Claim]:
    """The test must hold for the real group, and must fail for each of these."""

    def wrap(claim: Claim) -> Claim:
        @pytest.mark.parametrize("raft_group_type", [RaftGroup, *mutants], ids=lambda t: t.__name__)
        @functools.wraps(claim)
        def run(raft_group_type: type[RaftGroup]) -> None:
            if raft_group_type is RaftGroup:
                claim(raft_group_type)
                return
            with pytest.raises(AssertionError):
                claim(raft_group_type)

        return run

    return wrap
