"""Random faults on a small cluster, and what must hold afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable

from goqueue.wire.types import Index
from raft.config import RaftConfig
from raft.errors import NotLeader, Outcome
from raft.group import RaftGroup
from tests.unit.raft.cluster import GROUP, Cluster, Sent

ONE_ENTRY = RaftConfig(append_entries=1)
"""Catching up takes many frames, so that faults fall between them."""


class Chaos:
    """Kills, power cuts, cut and silent links, delay, loss, duplicates; then a quiet end."""

    def __init__(
        self,
        seed: int,
        *,
        size: int = 3,
        raft_group_type: type[RaftGroup] = RaftGroup,
        config: RaftConfig = ONE_ENTRY,
        keep: float = 0.3,
        relaxed: bool = False,
        spares: int = 0,
    ) -> None:
        self.rng = random.Random(seed)
        self.keep = keep
        self.cluster = Cluster(
            size,
            spares=spares,
            seed=seed,
            raft_group_type=raft_group_type,
            config=config,
            relaxed=relaxed,
        )
        self.committed: dict[int, bytes] = {}
        self.leaders: dict[int, str] = {}
        self.outcomes: dict[bytes, list[tuple[Outcome, int]]] = {}
        self.wrong: list[str] = []
        self._number = 0
        self._quiet = False
        self.cluster.net.filter = self._on_wire
        self._at(0.3, self._client)
        self._at(0.7, self._fault)

    def _at(self, delay_s: float, call: Callable[..., object], *args: object) -> None:
        self.cluster.time.call_later(delay_s, call, *args)

    def _on_wire(self, sent: Sent) -> bool:
        """Loses, delays or doubles a frame."""
        if self._quiet:
            return True
        chance = self.rng.random()
        if chance < 0.02:
            return False
        if chance < 0.10:
            link = (min(sent.source, sent.target), max(sent.source, sent.target))
            net = self.cluster.net
            delay = self.rng.choice((0.005, 0.05, 0.3))
            self._at(delay, net._deliver, sent, net.epoch[link])
            return chance < 0.06
        return True

    def _client(self) -> None:
        if self._quiet:
            return
        for node in self.cluster.running():
            raft_group = node.raft_group
            if raft_group.is_leader:
                known = self.leaders.setdefault(raft_group.term, node.name)
                if known != node.name:
                    self.wrong.append(f"{known} and {node.name} lead in term {raft_group.term}")
            if raft_group.is_ready_leader:
                for _ in range(self.rng.randint(1, 4)):
                    self._propose(raft_group)
        self._look()
        self._at(0.03, self._client)

    def _propose(self, raft_group: RaftGroup) -> None:
        self._number += 1
        body = b"%d" % self._number
        answers = self.outcomes.setdefault(body, [])

        def answer(outcome: Outcome, _result: object, index: Index) -> None:
            answers.append((outcome, index))

        try:
            raft_group.propose(4, body, callback=answer)
        except NotLeader:
            del self.outcomes[body]

    def _look(self) -> None:
        """Every replica must have applied the same body at the same index."""
        for node in self.cluster.running():
            for index, body in node.machine.applied[-64:]:
                if self.committed.setdefault(index, body) != body:
                    self.wrong.append(f"{node.name} applied {body!r} at {index}, not the others'")

    def _fault(self) -> None:
        if self._quiet:
            return
        cluster, rng = self.cluster, self.rng
        names = list(cluster.nodes)
        one, other = rng.sample(names, 2)
        kind = rng.random()
        if kind < 0.2:
            cluster.net.cut(one, other)
            self._at(rng.uniform(0.05, 2), cluster.net.connect, one, other)
        elif kind < 0.35:
            cluster.isolate(one)
            for name in names:
                if name != one:
                    self._at(rng.uniform(0.2, 3), cluster.net.connect, one, name)
        elif kind < 0.5:
            cluster.mute(one)
            self._at(rng.uniform(0.2, 3), cluster.unmute)
        elif kind < 0.6:
            for name in names:
                self._kill(name, power=True)
        elif kind < 0.7:
            cluster.nodes[one].sync_s = rng.choice((0.002, 0.05, 0.4))
        elif kind < 0.75:
            self._transfer()
        else:
            self._kill(one, power=rng.random() < 0.6)
        self._at(rng.uniform(0.1, 1.5), self._fault)

    def _transfer(self) -> None:
        leader = self.cluster.leader()
        if leader is not None:
            self.cluster.raft_group(leader).transfer.start()

    def _kill(self, name: str, *, power: bool = True) -> None:
        self._look()
        if self.cluster.nodes[name].host is not None:
            self.cluster.kill(name, power=power, keep=self.keep)
            self._at(self.rng.uniform(0.02, 1.5), self._restart, name)

    def _restart(self, name: str) -> None:
        if self.cluster.nodes[name].host is None:
            self.cluster.restart(name)

    def run(self, seconds: float = 12.0) -> list[str]:
        """What was violated, in words; nothing if all is well."""
        cluster = self.cluster
        cluster.time.run(seconds)
        self._quiet = True
        cluster.unmute()
        for name in cluster.nodes:
            cluster.nodes[name].sync_s = 0.002
            self._restart(name)
        cluster.connect_all()
        cluster.time.run(8.0)
        self._judge()
        return self.wrong

    def _members(self) -> list[str]:
        """Who must have everything in the end."""
        return list(self.cluster.nodes)

    def _judge(self) -> None:
        cluster = self.cluster
        if cluster.leader() is None:
            self.wrong.append("nobody leads in the end")
            return
        applied = {name: cluster.nodes[name].machine.applied for name in self._members()}
        longest = max(applied.values(), key=len)
        for name, entries in applied.items():
            if entries != longest:
                self.wrong.append(f"{name} ends with another state than the others")
        at = dict(longest)
        for index, body in self.committed.items():
            if at.get(index) != body:
                self.wrong.append(f"{body!r}, once applied at {index}, is gone")
        bodies = set(at.values())
        for body, answers in self.outcomes.items():
            if len(answers) > 1:
                self.wrong.append(f"{body!r} was answered {len(answers)} times")
            for outcome, index in answers:
                if outcome is Outcome.APPLIED and at.get(index) != body:
                    self.wrong.append(f"{body!r} was acknowledged at {index} and is lost")
                if outcome is Outcome.NONE and body in bodies:
                    self.wrong.append(f"{body!r} was answered NONE and is there")
        failures = [error for node in cluster.nodes.values() for error in node.failures]
        self.wrong += [f"a replica failed: {error}" for error in failures]
        assert GROUP in cluster.nodes["a"].store.partition_ids()


def is_unsafe(seed: int, raft_group_type: type[RaftGroup], *, size: int = 3) -> bool:
    """Whether the run of this seed violated something, or could not even finish."""
    try:
        return bool(Chaos(seed, size=size, raft_group_type=raft_group_type).run())
    except AssertionError:
        return True


class RelaxedChaos(Chaos):
    """The same with a relaxed group, where a minority at a time loses power.

    A replica counts to that minority from its power cut until it has caught up again; then nothing
    acknowledged may be lost, synced or not. Other power cuts become kills.
    """

    def __init__(
        self, seed: int, *, size: int = 3, raft_group_type: type[RaftGroup] = RaftGroup
    ) -> None:
        self.dark: dict[str, float] = {}
        """Who lost power, and how often in a row it was seen without suspicion since."""
        self.power_cuts = 0
        super().__init__(seed, size=size, raft_group_type=raft_group_type, keep=0.0, relaxed=True)

    def _look(self) -> None:
        super()._look()
        now = self.cluster.time.now()
        for name in list(self.dark):
            node = self.cluster.nodes[name]
            if node.host is None or node.store.partition_log(GROUP).suspect:
                self.dark[name] = now
            elif now > self.dark[name] + 1.0:
                del self.dark[name]

    def _kill(self, name: str, *, power: bool = True) -> None:
        minority = (len(self.cluster.nodes) - 1) // 2
        power = power and (name in self.dark or len(self.dark) < minority)
        if power and self.cluster.nodes[name].host is not None:
            self.dark[name] = self.cluster.time.now()
            self.power_cuts += 1
        super()._kill(name, power=power)
