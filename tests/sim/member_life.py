"""One membership, from a join to its end: it receives from what it is told is its own, settles,
lets go of what it is asked for, and never goes back to an older view."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.commands.codec import Command
from coordinator.commands.members import JoinGroup, LeaveGroup, MemberResult, Partition
from coordinator.groups.membership import MemberView
from delivery.entries import ops
from delivery.leader.dispatcher import Want
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId, PartitionId
from tests.sim.coordinating import Beat, Told
from tests.sim.loop import ProcessTime
from tests.sim.queue_requests import Ask, Done
from tests.sim.repeated import Repeated

if TYPE_CHECKING:
    from tests.sim.member_work import MemberGroup, MemberWork

REQUEST_S = 0.001
PATIENCE_S = (0.4, 1.2)
LOST = 0.08
"""How many heartbeats do not arrive, while faults strike."""
UNANSWERED = 0.04
"""How many answers do not."""
CHOICES = (ops.ACK,) * 9 + (ops.NACK, ops.EXTEND, ops.RELEASE)


@dataclass(frozen=True)
class Habits:
    """How a program consumes."""

    instance_id: str
    topics: tuple[str, ...]
    patterns: tuple[str, ...]
    lets_go: bool
    limit: int
    work_s: float
    commits: bool
    """It commits offsets, instead of settling receipts."""
    is_stubborn: bool = False
    """It says that it lets go, and does not."""


class Share:
    """One partition that a member takes to be its own."""

    def __init__(self, life: Life, partition: PartitionId) -> None:
        self.partition = partition
        self.is_over = False
        """Nothing is received any more."""
        self.held = 0
        """Batches that it works on, or settles."""
        self._life = life
        self.receive()

    def receive(self) -> None:
        life, rng = self._life, self._life.rng
        if self.is_over or life.is_over:
            return
        work, sent_by = life.work, life.claim()
        limit = 100 if life.is_calm else life.habits.limit
        request = rng.getrandbits(64) | 1
        want = Want(life.group.id, sent_by[0], limit, None, request, sent_by[1])
        wait_s = rng.choice((0.0, 0.3, 0.8))
        right = work.right(life.group.id, self.partition, *sent_by)
        asks: list[tuple[NodeId, Ask]] = []

        def send(node: NodeId, reply: Callable[[object], None]) -> None:
            asks.append((node, Ask(self.partition, reply, want=want, wait_s=wait_s)))
            work.world.ask_queue(*asks[-1])

        def ended(answer: object | None, _in_doubt: bool) -> None:
            result = answer.result if isinstance(answer, Done) else None
            if isinstance(result, ops.Granted):
                self._received(result, wait_s)
            elif isinstance(result, ops.StaleResult):
                work.refused(life.group.id, self.partition, sent_by, right)
                life.lose(self)
            else:
                for node, ask in asks:
                    work.world.withdraw(node, ask)
                life.time.call_later(0.1, self.receive)

        life.repeat(self.partition, send, ended, tries=rng.choice((1, 2, 3)), wait_s=wait_s)

    def _received(self, granted: ops.Granted, wait_s: float) -> None:
        life = self._life
        if life.is_over:
            return
        if not granted.grants:
            life.time.call_later(0.02 if wait_s else 0.3, self.receive)
            return
        offsets = [grant.offset for grant in granted.grants]
        life.work.told_granted(life.group.id, self.partition, granted.delivery, offsets)
        told = self.partition, life.group.id, life.id, granted
        life.work.world.timelines.told_granted(*told)
        self.held += 1
        work_s = 0.001 if life.is_calm else life.habits.work_s * life.rng.uniform(0.1, 2.0)
        life.time.call_later(work_s, self._done, granted.delivery, offsets)

    def _done(self, delivery: int, offsets: list[int]) -> None:
        life, rng = self._life, self._life.rng
        if life.is_over:
            return
        if not life.is_calm and rng.random() < 0.05:
            self._ended()  # forgotten: its lease runs out
        elif life.habits.commits:
            member, generation = life.claim()
            self._submit(ops.Committed(life.group.id, max(offsets) + 1, member, generation))
        else:
            action = ops.ACK if life.is_calm else rng.choice(CHOICES)
            member, generation = life.claim() if rng.random() < 0.6 else ("", 0)
            request = rng.getrandbits(64) | 1
            deliveries = [(delivery, offsets)]
            op = ops.Settled(
                life.group.id,
                action,
                deliveries,
                reason="failed" if action == ops.NACK else "",
                visibility_ms=300 if action == ops.EXTEND else 0,
                request=request,
                member=member,
                generation=generation,
            )
            self._submit(op)
        self.receive()

    def _submit(self, op: ops.Settled | ops.Committed) -> None:
        life = self._life
        right = life.work.right(life.group.id, self.partition, op.member, op.generation)

        def send(node: NodeId, reply: Callable[[object], None]) -> None:
            life.work.world.ask_queue(node, Ask(self.partition, reply, op=op))

        def ended(answer: object | None, _in_doubt: bool) -> None:
            result = answer.result if isinstance(answer, Done) else None
            if isinstance(result, ops.SettledResult) and isinstance(op, ops.Settled):
                life.work.told_settled(self.partition, op, result)
            elif isinstance(result, ops.StaleResult):
                life.work.refused(life.group.id, self.partition, (op.member, op.generation), right)
                life.lose(self)
            self._ended()

        life.repeat(self.partition, send, ended, tries=life.rng.choice((8, 8, 3)))

    def _ended(self) -> None:
        self.held -= 1
        self._life.look()


class Life:
    """A member. `ended(life)` is called where it learns that it is out, or has left."""

    def __init__(
        self,
        work: MemberWork,
        group: MemberGroup,
        id: str,
        habits: Habits,
        rng: random.Random,
        ended: Callable[[Life], None],
    ) -> None:
        self.work = work
        self.group = group
        self.id = id
        self.habits = habits
        self.rng = rng
        self.time = ProcessTime(work.world.loop)
        self.is_over = False
        self.is_deaf = False
        """Its heartbeats do not arrive."""
        self.generation = 0
        self.shares: dict[PartitionId, Share] = {}
        self.is_leaving = False
        self.has_joined = False
        self._ended = ended
        self._revision = ""
        self._revoking: dict[PartitionId, Share | None] = {}
        """None where it works on nothing of it."""
        self._node = rng.choice(self.nodes)
        self._beats = 0
        self._send(self._join(), self._joined)

    def __str__(self) -> str:
        return f"{self.id} of {self.group.name}"

    # as its program and the world see it

    @property
    def is_calm(self) -> bool:
        return self.work.world.is_quiet

    @property
    def loop(self) -> ProcessTime:
        return self.time

    @property
    def nodes(self) -> list[NodeId]:
        """Whom it asks. A node that was wiped, and not let in anew, refuses at once: then a client
        asks the next one, and stays with who has answered."""
        wiped = self.work.world.machines.wiped()
        return [node for node in self.work.world.nodes if node not in wiped]

    @property
    def is_idle(self) -> bool:
        held = any(share.held for share in self.shares.values())
        return self.has_joined and not self._revoking and not held

    def die(self) -> None:
        """Without a word; what it has asked for may still be done."""
        self.is_over = True
        self.time.kill()

    def leave(self) -> None:
        """Let go of everything, and go."""
        self.is_leaving = True
        for share in self.shares.values():
            share.is_over = True
        self.look()

    def claim(self) -> tuple[str, int]:
        """Who it says that it is, where it acts in a partition."""
        return self.id, 0 if self.group.mode == "shared" else self.generation

    def repeat(
        self,
        partition: PartitionId,
        send: Callable[[NodeId, Callable[[object], None]], None],
        ended: Callable[[object | None, bool], None],
        *,
        tries: int = 0,
        wait_s: float = 0.0,
    ) -> None:
        """Ask a partition, as long as it lives; what comes while it is paused comes later."""

        def sent(node: NodeId, reply: Callable[[object], None]) -> None:
            def replied(answer: object) -> None:
                if self.is_calm or self.rng.random() > UNANSWERED:
                    self.time.call_soon(reply, answer)

            send(node, replied)

        Repeated(self, self.rng, sent, ended, tries=tries, wait_s=wait_s).go()

    def lose(self, share: Share) -> None:
        """A partition is not its own any more: it asks at once what is."""
        share.is_over = True
        self.shares.pop(share.partition, None)
        self._revoking.pop(share.partition, None)
        if self._revision:
            self._revision = ""
            self.time.call_later(0.02, self._beat)

    def look(self) -> None:
        """Whether there is something to let go of, or nothing left before it goes."""
        if self.is_over:
            return
        if self.is_leaving and not any(share.held for share in self.shares.values()):
            self._send(LeaveGroup(self.group.id, self.id), self._left)
        elif self._to_let_go():
            self._beat()

    def _to_let_go(self) -> list[PartitionId]:
        if self.habits.is_stubborn and not self.is_calm:
            return []
        return [p for p, share in self._revoking.items() if share is None or not share.held]

    # membership

    def _join(self) -> JoinGroup:
        habits = self.habits
        return JoinGroup(
            self.group.name,
            self.group.id,
            self.id,
            client_id="simulated",
            instance_id=habits.instance_id,
            topics=list(habits.topics),
            patterns=list(habits.patterns),
            lets_go=habits.lets_go,
        )

    def subscribe(self, habits: Habits) -> None:
        """Subscribe to something else from now on."""
        self.habits = habits
        self._send(self._join(), self._subscribed)

    def _joined(self, result: object) -> None:
        if not isinstance(result, MemberResult):
            self.end()  # one of its topics is gone
        else:
            self.work.joined(self, result.generation)
            self.has_joined = True
            self._beat()

    def _subscribed(self, result: object) -> None:
        return None

    def _left(self, _result: object) -> None:
        self.end()

    def end(self) -> None:
        """It is no member any more."""
        if not self.is_over:
            self.die()
            self._ended(self)

    def _send(self, command: Command, ended: Callable[[object], None]) -> None:
        """A command, until it is answered."""
        answered = False

        def end(result: object) -> None:
            nonlocal answered
            if not answered and result is not None:
                answered = True
                ended(result)

        def again() -> None:
            if not answered and not self.is_over:
                node = self.rng.choice(self.nodes)
                self.work.command(node, command, lambda result: self.time.call_soon(end, result))
                self.time.call_later(self.rng.uniform(*PATIENCE_S), again)

        self.time.call_soon(again)

    # heartbeats

    def _beat(self) -> None:
        if self.is_over:
            return
        self._beats += 1
        beat, rng = self._beats, self.rng
        wait_s = rng.choice((0.0, 0.2, 0.4)) * self.group.session_s
        let_go = self._to_let_go()

        def reply(answer: object) -> None:
            self.time.call_soon(self._answered, beat, let_go, answer)

        lost = self.is_deaf or (not self.is_calm and rng.random() < LOST)
        if not lost:
            short: list[Partition] = [(p.topic.index, p.partition) for p in let_go]
            asked = Beat(self.group.id, self.id, self._revision, wait_s, short, reply)
            late_s = 0.0 if self.is_calm else rng.choice((0.0, 0.0, 0.0, 0.2, 0.5))
            self.work.beat(self._node, asked, REQUEST_S + late_s)
        self.time.call_later(wait_s + rng.uniform(*PATIENCE_S), self._unanswered, beat)

    def _unanswered(self, beat: int) -> None:
        if beat == self._beats:
            self._node = self.rng.choice(self.nodes)
            self._beat()

    def _answered(self, beat: int, let_go: list[PartitionId], answer: object) -> None:
        if self.is_over:
            return
        if isinstance(answer, Told):
            for partition in let_go:
                self._revoking.pop(partition, None)
            if answer.view.generation >= self.generation:
                self._take(answer.view, answer.places)
        if isinstance(answer, GoQueueError):
            self.end()
        elif beat == self._beats:
            self.time.call_later(self.group.session_s * self.rng.uniform(0.02, 0.25), self._again,
                                 beat)  # fmt: skip

    def _again(self, beat: int) -> None:
        if beat == self._beats:
            self._beat()

    def _take(self, view: MemberView, places: dict[tuple[str, int], PartitionId]) -> None:
        """Make this view its own."""
        self.generation, self._revision = view.generation, view.revision
        assigned = [places[place] for place in view.assigned]
        revoking = [places[place] for place in view.revoking]
        self.work.told(self, assigned)
        for partition in revoking:
            share = self.shares.pop(partition, None)
            if share is not None:
                share.is_over = True
            if share is not None or partition not in self._revoking:
                self._revoking[partition] = share
        for partition in [p for p in self.shares if p not in assigned]:
            self.shares.pop(partition).is_over = True
        for partition in [p for p in self._revoking if p not in revoking]:
            del self._revoking[partition]
        for partition in assigned if not self.is_leaving else ():
            if partition not in self.shares:
                self.shares[partition] = Share(self, partition)
        self.look()
