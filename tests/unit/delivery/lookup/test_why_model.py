"""In any state of a queue, `why` says of each message what the model says, calls it deliverable
exactly when the dispatcher would grant it, and names the times at which that changes."""

from __future__ import annotations

from typing import Any, ClassVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import rule

from delivery.entries.ops import NACK, Delivered, Expired, Op, Settled, Tick, encode_ops
from delivery.group.state import GroupState
from delivery.leader.dispatcher import DELIVERED_MAX, Dispatcher, Want
from delivery.lookup.verdict import Around, Reason, Subject, Verdict
from delivery.lookup.why import TAKEN_MAX, why
from delivery.offsets.lanes import Fairness
from delivery.state.partition import PartitionState
from goqueue.wire.layout import LANES
from log.entry import EntryKind, make_entry
from tests.unit.delivery.queue_model import GroupModel
from tests.unit.delivery.state.test_queue_model import QueueMachine, many, small
from tests.walk import walk

RUNS, STEPS = 80, 60
ASKED_LEAST, TIMES_LEAST = 5000, 300
SLOW = 25
"""How a receive is made that keeps its messages for long."""
BACKOFFS_MS = (300, 2000, -1)
PLACES = {
    "in_flight": "leased",
    "backoff": "waiting",
    "key_held": "behind",
}


class Seen:
    """What this run of the tests has come across."""

    verdicts = 0
    granted = 0
    times: ClassVar[dict[str, int]] = {}
    codes: ClassVar[set[str]] = set()


class WhyMachine(QueueMachine):
    @rule(group=st.integers(1, 2), limit=st.integers(1, 3), delay=small)
    def keep(self, group: int, limit: int, delay: int) -> None:
        """A consumer that is slow, or has its messages come again later."""
        before = len(self.receipts)
        self.receive(group, limit, SLOW, hold=False)
        flying = [(delivery, [offset]) for _, delivery, offset in self.receipts[before:]]
        if delay < len(BACKOFFS_MS):
            self.apply_ops(Settled(group, NACK, flying, "later", BACKOFFS_MS[delay]))

    @rule(number=many)
    def ask(self, number: int) -> None:
        """Once the leader has noted all that time has brought about."""
        self.apply_ops()
        self.apply(EntryKind.QUEUE, encode_ops([]))
        for id_, found in list(self.leader.queue.groups.items()):
            self.apply_ops(Expired(id_, found.leases.overdue(self.now_ms, DELIVERED_MAX)))
        for id_, model in self.model.groups.items():
            group = self.leader.queue.groups[id_]
            verdicts = {offset: self.why(group, offset) for offset in range(self.model.end + 2)}
            for offset, verdict in verdicts.items():
                self.check(model, offset, verdict)
            deliverable = {o for o, verdict in verdicts.items() if verdict.deliverable}
            assert deliverable == self.would_get(id_)
            Seen.verdicts += len(verdicts)
            Seen.granted += len(deliverable)
            timed = [
                (offset, reason)
                for offset, verdict in verdicts.items()
                for reason in verdict.reasons
                if reason.until_ms > self.now_ms and not self.expires_by(offset, reason.until_ms)
            ]
            for code in {reason.code for _, reason in timed}:
                alike = [one for one in timed if one[1].code == code]
                self.check_time(id_, *alike[number % len(alike)])
            self.check_aging(group, list(verdicts.values()))

    # -- what is asked

    def why(
        self, group: GroupState, offset: int, state: PartitionState | None = None, now_ms: int = 0
    ) -> Verdict:
        message = self.model.messages.get(offset)
        known = (0, 0) if message is None else (message.due_ms or 0, message.expires_ms or 0)
        subject = Subject(offset, *known)
        queue = (state or self.leader).queue
        return why(queue, group, subject, now_ms or self.now_ms, Around(waiting=True))

    def would_get(self, id_: int) -> set[int]:
        """What a receive of who may would be granted now, if it took everything."""
        fork = self.fork()
        dispatcher: Dispatcher[object] = Dispatcher(fork)
        owner = fork.queue.groups[id_].owner
        want = Want(id_, owner.member or "m", TAKEN_MAX, 100, 0, owner.generation)
        if not owner.member:
            want = Want(id_, "m", TAKEN_MAX, 100, 0)
        dispatcher.receive(want, object(), wait=False)
        proposal = dispatcher.collect(self.now_ms)
        if proposal is None or not proposal.ops:
            return set()
        results = apply(fork, self.now_ms, *proposal.ops)
        return {
            grant.offset
            for op, result in zip(proposal.ops, results, strict=True)
            if isinstance(op, Delivered)
            for grant in result.grants
        }

    def fork(self) -> PartitionState:
        """The same state, to go its own way."""
        found = PartitionState()
        found.restore(self.leader.snapshot())
        return found

    def expires_by(self, offset: int, time_ms: int) -> bool:
        expires_ms = self.model.messages[offset].expires_ms
        return expires_ms is not None and expires_ms <= time_ms

    # -- what must hold

    def check(self, model: GroupModel, offset: int, verdict: Verdict) -> None:
        codes = [reason.code for reason in verdict.reasons]
        Seen.codes.update(codes)
        message, pending = self.model.messages.get(offset), model.pending.get(offset)
        if message is None:
            expected = "unpublished" if offset >= self.model.end else "gone"
        elif offset in model.never:
            expected = "never"
        elif pending is None and offset not in model.dead and not message.hidden:
            expected = message.fate or "acked"
        elif offset in model.dead:
            expected = "dead"
        elif pending is None:
            expected = "delayed" if offset >= model.base else "acked"
        elif pending.place == "leased":
            expected = "in_flight"
        else:
            failed = offset in model.failed and model.failed[offset].count
            expected = "retrying" if failed else "ready"
        assert verdict.state == expected, (offset, pending, message)
        assert codes and codes[0] != "kept"
        for code, place in PLACES.items():
            assert (code in codes) == (pending is not None and pending.place == place)
        unsettled = expected in ("ready", "retrying", "delayed", "in_flight")
        withdrawn = message is not None and bool(message.fate)
        assert ("halted" in codes) == (bool(model.halted) and unsettled and not withdrawn)

    def check_time(self, id_: int, offset: int, reason: Reason) -> None:
        """Until then it holds, and then it does not; its turn comes before where those ahead
        expire, or its lane has waited too long."""
        before = self.reasons_at(id_, offset, reason.until_ms - 1)
        if reason.code == "in_flight_limit" and reason.code not in before:
            assert self.comes_nearer(id_, offset, before, reason.until_ms - 1)
            return
        assert before.get(reason.code) == reason
        then = self.reasons_at(id_, offset, reason.until_ms).get(reason.code)
        if reason.code == "in_flight_limit":
            assert then is None or then.facts["in_flight"] < reason.facts["in_flight"]  # type: ignore[operator]
        else:
            assert then is None or then.until_ms > reason.until_ms
        Seen.times[reason.code] = Seen.times.get(reason.code, 0) + 1

    def comes_nearer(self, id_: int, offset: int, then: dict[str, Reason], time_ms: int) -> bool:
        """Whether fewer are ahead of it then, or its lane has waited too long only then."""
        now = {one.code: one for one in self.why(self.leader.queue.groups[id_], offset).reasons}
        aging_ms = int(now["lane"].facts["aging_ms"]) if "lane" in now else 0  # type: ignore[call-overload]
        return ahead(then) < ahead(now) or self.now_ms < aging_ms <= time_ms

    def reasons_at(self, id_: int, offset: int, now_ms: int) -> dict[str, Reason]:
        """If nothing happened until then but what the leader does by itself."""
        fork = self.fork()
        apply(fork, now_ms, Tick())
        group = fork.queue.groups[id_]
        apply(fork, now_ms, Expired(id_, group.leases.overdue(now_ms, DELIVERED_MAX)))
        return {one.code: one for one in self.why(group, offset, fork, now_ms).reasons}

    def check_aging(self, group: GroupState, verdicts: list[Verdict]) -> None:
        """A lane's share begins when `aging_ms` says."""
        aging = {
            str(reason.facts["lane"]): int(reason.facts["aging_ms"])  # type: ignore[arg-type]
            for verdict in verdicts
            for reason in verdict.reasons
            if reason.code == "lane"
        }
        for name, aging_ms in aging.items():
            lane = LANES.index(name)
            assert group.ready.select(1, self.fairness(group, aging_ms - 1)) != [
                group.ready.heads()[lane]
            ]
            (offset,) = group.ready.select(1, self.fairness(group, aging_ms))
            served = next(n for n in range(5) if group.ready.heads()[n] == offset)
            assert served == lane or aging[LANES[served]] <= aging_ms
            Seen.times["aging"] = Seen.times.get("aging", 0) + 1

    @staticmethod
    def fairness(group: GroupState, now_ms: int) -> Fairness:
        """Where it is the turn of what has waited too long."""
        found = group.fairness(now_ms)
        return Fairness(
            now_ms,
            found.max_wait_ms,
            found.share,
            found.share - 1,
            found.since,
            found.stored,
            found.later,
        )


def ahead(reasons: dict[str, Reason]) -> int:
    """How many messages come before it, in its lane and in higher ones."""
    return sum(
        int(reasons[code].facts["ahead"])  # type: ignore[call-overload]
        for code in ("lane", "behind")
        if code in reasons
    )


def apply(state: PartitionState, now_ms: int, *ops: Op) -> list[Any]:
    entry = make_entry(
        index=state.applied_index + 1,
        term=1,
        time_ms=now_ms,
        kind=EntryKind.QUEUE,
        body=encode_ops(ops),
    )
    return cast("list[Any]", state.apply(entry))


def test_why_is_right_in_every_state_that_the_model_comes_to() -> None:
    walk(WhyMachine, runs=RUNS, steps=STEPS)

    assert Seen.verdicts >= ASKED_LEAST
    assert sum(Seen.times.values()) >= TIMES_LEAST
    assert set(Seen.times) == {"delayed", "backoff", "in_flight", "in_flight_limit", "aging"}
    assert {"dead", "expired", "gone", "halted", "key_held", "owned", "lane"} <= Seen.codes
