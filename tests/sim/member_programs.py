"""Programs that consume as members of a group: they crash, restart, stand still, leave and return;
and one that is no member at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from delivery.entries import ops
from delivery.leader.dispatcher import Want
from goqueue.wire.types import NodeId, PartitionId
from tests.sim.member_life import Habits, Life
from tests.sim.queue_requests import Ask, Done
from tests.sim.repeated import Repeated

if TYPE_CHECKING:
    from tests.sim.member_work import MemberGroup, MemberWork

ACT_S = (0.3, 1.6)
SUBSCRIPTIONS = (
    ((), ("*",)),
    ((), ("*",)),
    (("orders",), ()),
    (("orders",), ("pay*",)),
)


class Program:
    """One program, and its memberships one after the other. Number 0 of a group subscribes to
    everything, and is always there in the end."""

    def __init__(
        self, work: MemberWork, group: MemberGroup, number: int, rng: random.Random
    ) -> None:
        self.group = group
        self.life: Life | None = None
        self._work = work
        self._number = number
        self._rng = rng
        self._lives = 0
        self._zombies: list[Life] = []
        """Memberships that it has given up, and that do not know it."""
        topics, patterns = SUBSCRIPTIONS[0] if not number else rng.choice(SUBSCRIPTIONS)
        if not group.is_mixed:
            topics, patterns = SUBSCRIPTIONS[0]
        self._habits = Habits(
            instance_id=f"i{number}" if rng.random() < 0.4 else "",
            topics=topics,
            patterns=patterns,
            lets_go=rng.random() < 0.7,
            limit=rng.choice((1, 3, 10)),
            work_s=rng.choice((0.02, 0.1, 0.3)),
            commits=group.commits,
            is_stubborn=rng.random() < 0.1,
        )

    def __str__(self) -> str:
        return f"program {self._number} of {self.group.name}"

    @property
    def is_first(self) -> bool:
        return not self._number

    def start(self) -> None:
        loop = self._work.world.loop
        loop.call_later(self._rng.uniform(0.05, 1.2), self.begin)
        loop.call_later(self._rng.uniform(*ACT_S), self._act)

    def begin(self) -> None:
        """Join, under a new id; not where it is a member already."""
        if self.life is None and not self._work.world.is_over:
            self._lives += 1
            id = f"{self.group.name}-{self._number}.{self._lives}"
            self.life = Life(self._work, self.group, id, self._habits, self._rng, self._ended)

    def crash(self, down_s: float | None) -> None:
        """Its process is gone, for this long, or for good."""
        if self.life is not None:
            self.life.die()
            self.life = None
        if down_s is not None:
            self._work.world.loop.call_later(down_s, self.begin)

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        for life in self._zombies:
            life.die()
        if self.life is not None:
            self.life.is_deaf = False
            self.life.time.resume()
        elif self.is_first:
            self.begin()

    def _ended(self, life: Life) -> None:
        """A member has left, or has learned that it is out."""
        if life is self.life:
            self.life = None
            if not self._work.world.is_quiet or self.is_first:
                self._work.world.loop.call_later(self._rng.uniform(0.01, 0.5), self.begin)

    # what goes wrong

    def _act(self) -> None:
        if self._work.world.is_quiet:
            return
        if self.life is not None:
            acts = (self._crash, self._restart, self._pause, self._deafen, self._leave)
            self._rng.choice((*acts, self._subscribe, *[self._nothing] * 6))(self.life)
        self._work.world.loop.call_later(self._rng.uniform(*ACT_S), self._act)

    def _nothing(self, _life: Life) -> None:
        return None

    def _crash(self, _life: Life) -> None:
        self.crash(self._rng.uniform(0.05, 1.5 * self.group.session_s))

    def _restart(self, life: Life) -> None:
        """A new process; the old one may stay, as one that was cut off does."""
        if self._rng.random() < 0.5:
            self._zombies.append(life)
            self.life = None
        self.crash(0.02)

    def _pause(self, life: Life) -> None:
        """Nothing happens for up to thrice its session; then it goes on as if nothing had."""
        life.time.pause()
        pause_s = self._rng.uniform(0.3, 3.0) * self.group.session_s
        self._work.world.loop.call_later(pause_s, life.time.resume)

    def _deafen(self, life: Life) -> None:
        """Its heartbeats do not arrive, and it works on."""
        life.is_deaf = True
        pause_s = self._rng.uniform(0.5, 2.5) * self.group.session_s
        self._work.world.loop.call_later(pause_s, setattr, life, "is_deaf", False)

    def _leave(self, life: Life) -> None:
        life.leave()

    def _subscribe(self, life: Life) -> None:
        if self.group.is_mixed and not self.is_first:
            topics, patterns = self._rng.choice(SUBSCRIPTIONS)
            self._habits = replace(self._habits, topics=topics, patterns=patterns)
            life.subscribe(self._habits)


class Outsider:
    """Receives from a group's partitions as no member: it is served where nobody owns them."""

    def __init__(self, work: MemberWork, group: MemberGroup, rng: random.Random) -> None:
        self._work = work
        self._group = group
        self._rng = rng

    def start(self) -> None:
        self._work.world.loop.call_later(self._rng.uniform(0.3, 1.0), self._receive)

    def _receive(self) -> None:
        work, rng = self._work, self._rng
        if work.world.is_quiet:
            return
        if work.world.partition_ids:
            partition = rng.choice(work.world.partition_ids)
            want = Want(self._group.id, "outsider", 3, None, rng.getrandbits(64) | 1)
            right = work.right(self._group.id, partition, "outsider", 0)

            def ended(answer: object | None, _in_doubt: bool) -> None:
                result = answer.result if isinstance(answer, Done) else None
                if isinstance(result, ops.Granted) and result.grants:
                    self._granted(partition, result)
                elif isinstance(result, ops.StaleResult):
                    work.refused(self._group.id, partition, ("outsider", 0), right)

            self._ask(partition, ended, want=want)
        work.world.loop.call_later(rng.uniform(0.2, 1.0), self._receive)

    def _granted(self, partition: PartitionId, granted: ops.Granted) -> None:
        offsets = [grant.offset for grant in granted.grants]
        self._work.told_granted(self._group.id, partition, granted.delivery, offsets)
        told = partition, self._group.id, "outsider", granted
        self._work.world.timelines.told_granted(*told)
        deliveries = [(granted.delivery, offsets)]
        op = ops.Settled(self._group.id, ops.ACK, deliveries, request=self._rng.getrandbits(63))

        def ended(answer: object | None, _in_doubt: bool) -> None:
            result = answer.result if isinstance(answer, Done) else None
            if isinstance(result, ops.SettledResult):
                self._work.told_settled(partition, op, result)

        self._work.world.loop.call_later(
            self._rng.choice((0.01, 0.2, 0.6)), self._ask, partition, ended, op
        )

    def _ask(
        self,
        partition: PartitionId,
        ended: Callable[[object | None, bool], None],
        op: ops.Op | None = None,
        want: Want | None = None,
    ) -> None:
        world = self._work.world

        def send(node: NodeId, reply: Callable[[object], None]) -> None:
            world.ask_queue(node, Ask(partition, reply, op=op, want=want))

        Repeated(world, self._rng, send, ended, tries=2).go()
