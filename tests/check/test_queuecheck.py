"""The checker itself: clean histories pass, and a fault planted for any rule is named."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.check.history import Event, load
from tests.check.queuecheck import Verdict, check
from tests.check.queuehistory import QueueHistory
from tests.check.queuerules import RULES, TIMED_OUT, Limits
from tests.steps import steps

SETTINGS = {"visibility_ms": 2000, "max_attempts": 3, "lane_max_wait_ms": 60_000}
GROUPS = {"plain": SETTINGS | {"ordering": "none"}, "keyed": SETTINGS | {"ordering": "key"}}
EVENT_STEPS_MAX = 200
"""Of judging one event of many; 88 today."""
LIMITS = Limits(clock_s=0.0, late_s=30.0, calm_s=1.0)


@dataclass
class Stored:
    """A message of the model's log, and where it stands for each group."""

    value: str
    lane: int
    key: str | None
    due: float
    is_delayed: bool
    attempts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GROUPS, 0))
    reason: dict[str, str] = field(default_factory=lambda: dict.fromkeys(GROUPS, ""))
    ends: dict[str, float] = field(default_factory=dict)
    """Of leases."""
    done: set[str] = field(default_factory=set)
    cancelled: bool = False


class Model:
    """One partition's queue that keeps every promise, and its history, on a clock of its own."""

    def __init__(self, seed: int = 1, steps: int = 300) -> None:
        self.rng = random.Random(seed)
        self.clock = 0.0
        self.history = QueueHistory(clock=self.tick)
        self.log: list[Stored] = []
        self.ids: dict[str, int] = {}
        self.receipts: list[tuple[str, int, str]] = []
        self.dead: list[tuple[str, int, str, int]] = []
        for group, settings in GROUPS.items():
            self.history.group(group, **settings)
        for _ in range(steps):
            self.rng.choice((self.publish, self.publish, self.receive, self.receive, self.settle,
                             self.settle, self.cancel))()  # fmt: skip
        self.drain()

    @property
    def events(self) -> list[Event]:
        return self.history.events

    def tick(self) -> float:
        self.clock += 0.01
        return self.clock

    def publish(self) -> None:
        rng, number = self.rng, len(self.history.events)
        message_id = f"id{rng.randrange(40)}" if rng.random() < 0.3 else None
        value = f"v{number}" if message_id is None else f"v-{message_id}"
        lane, key = rng.randrange(5), rng.choice((None, "a", "b"))
        delay_ms = rng.choice((0, 0, 400, 1500))
        if message_id is not None:
            lane, key, delay_ms = 2, None, 0
        op = self.history.publish(
            value, partition=0, lane=lane, key=key, message_id=message_id, delay_ms=delay_ms
        )
        chance = rng.random()
        if chance < 0.05:
            self.history.unpublished(op, in_doubt=False)
            return
        known = self.ids.get(message_id or "")
        if known is None:
            known = len(self.log)
            self.log.append(Stored(value, lane, key, self.clock + delay_ms / 1000, delay_ms > 0))
            if message_id:
                self.ids[message_id] = known
            duplicate = False
        else:
            duplicate = True
        if chance < 0.1:
            self.history.unpublished(op, in_doubt=True)
        else:
            self.history.published(op, 0, known, duplicate=duplicate)

    def receive(self) -> None:
        self.receive_for(self.rng.choice(list(GROUPS)), self.rng.randrange(1, 4))

    def receive_for(self, group: str, limit: int) -> int:
        sent = self.tick()
        self.expire(group)
        ready = [o for o in range(len(self.log)) if self.is_ready(group, o)]
        ready.sort(key=lambda o: (self.log[o].lane, o))
        keys: set[str] = set()
        count = 0
        for offset in ready:
            stored = self.log[offset]
            if group == "keyed" and stored.key is not None:
                if stored.key in keys or self.is_behind(group, offset):
                    continue
                keys.add(stored.key)
            stored.attempts[group] += 1
            attempt = stored.attempts[group]
            receipt = f"{group}.{offset}.{attempt}"
            stored.ends[group] = self.clock + SETTINGS["visibility_ms"] / 1000
            self.history.received(
                group, sent=sent, partition=0, offset=offset, value=stored.value,
                lane=stored.lane, key=stored.key, attempt=attempt, reason=stored.reason[group],
                redrives=0, receipt=receipt, log_ms=None,
            )  # fmt: skip
            self.receipts.append((group, offset, receipt))
            count += 1
            if count == limit:
                break
        return count

    def is_ready(self, group: str, offset: int) -> bool:
        stored = self.log[offset]
        free = group not in stored.ends and group not in stored.done
        return free and not stored.cancelled and stored.due <= self.clock

    def is_behind(self, group: str, offset: int) -> bool:
        """Whether another of its key is in flight, or before it."""
        for other, stored in enumerate(self.log):
            if stored.key != self.log[offset].key or other == offset or group in stored.done:
                continue
            if group in stored.ends:
                return True
            if other < offset and self.is_ready(group, other):
                return True
        return False

    def expire(self, group: str) -> None:
        for offset, stored in enumerate(self.log):
            if stored.ends.get(group, self.clock) < self.clock:
                self.fail(group, offset, TIMED_OUT)

    def fail(self, group: str, offset: int, reason: str, *, rejected: bool = False) -> str:
        stored = self.log[offset]
        del stored.ends[group]
        stored.reason[group] = reason
        if rejected or stored.attempts[group] == SETTINGS["max_attempts"]:
            stored.done.add(group)
            self.dead.append((group, offset, reason, stored.attempts[group]))
            return "dead"
        return "requeued"

    def settle(self) -> None:
        if self.receipts:
            chosen = self.receipts.pop(self.rng.randrange(len(self.receipts)))
            if self.rng.random() < 0.9:
                self.settle_by(*chosen)

    def settle_by(self, group: str, offset: int, receipt: str, action: str = "") -> None:
        action = action or self.rng.choice(("ack", "ack", "nack", "nack", "reject", "extend"))
        reason = f"r{len(self.events)}" if action in ("nack", "reject") else ""
        op = self.history.settle(group, receipt, action, reason)
        self.expire(group)
        stored = self.log[offset]
        if group not in stored.ends or not receipt.endswith(f".{stored.attempts[group]}"):
            self.history.settled(op, "refused", "receipt_expired")
            return
        if action == "ack":
            del stored.ends[group]
            stored.done.add(group)
            outcome = "acked"
        elif action == "extend":
            stored.ends[group] = self.clock + 2.0
            outcome = "extended"
        else:
            outcome = self.fail(group, offset, reason, rejected=action == "reject")
        self.history.settled(op, "unknown" if self.rng.random() < 0.05 else outcome)

    def cancel(self) -> None:
        waiting = [o for o, stored in enumerate(self.log) if stored.is_delayed]
        if not waiting or self.rng.random() < 0.5:
            return
        offset = waiting[-1]
        op = self.history.cancel(0, offset)
        stored = self.log[offset]
        if stored.due > self.clock:
            stored.cancelled = True
        self.history.cancelled(op, "cancelled" if stored.cancelled else "refused")

    def drain(self) -> None:
        self.history.trouble("load ends")
        for group in GROUPS:
            for _ in range(4):
                self.clock += 2.0
                while self.receive_for(group, 100):
                    for receipt in [r for r in self.receipts if r[0] == group]:
                        self.settle_by(*receipt, action="ack")
                    self.receipts = [r for r in self.receipts if r[0] != group]
        for group, offset, reason, attempts in self.dead:
            self.history.dead(group, 0, offset, reason=reason, attempts=attempts, redrives=0)
        self.history.drained(list(GROUPS))


def judge(events: list[Event]) -> Verdict:
    return check(events, LIMITS)


@pytest.mark.parametrize("seed", range(20))
def test_history_of_a_good_queue_is_clean(seed: int) -> None:
    verdict = judge(Model(seed).events)

    assert list(verdict.lines()) == []
    assert verdict.published > 60 and verdict.deliveries > 100
    assert verdict.redeliveries and verdict.duplicates and verdict.cancelled
    assert set(verdict.dead) == set(GROUPS)
    assert {"acked", "requeued", "dead", "extended", "refused", "unknown"} == set(verdict.settles)


# -- faults


def of(events: list[Event], kind: str, **fields: Any) -> list[Event]:
    return [
        e for e in events if e["type"] == kind and all(e[name] == v for name, v in fields.items())
    ]


def settled_as(events: list[Event], outcome: str, group: str = "plain") -> tuple[Event, Event]:
    """The first delivery that ended so, and its settle."""
    for done in of(events, "settled", outcome=outcome):
        settle = of(events, "settle", op=done["op"])[0]
        if settle["group"] == group:
            return of(events, "received", receipt=settle["receipt"])[0], done
    raise AssertionError(outcome)


def again(events: list[Event], received: Event, **changes: Any) -> None:
    """The message is received once more, at the very end."""
    end = events[-1]["time"]
    fresh = {"receipt": "new", "sent": end + 1, "time": end + 2, "attempt": received["attempt"] + 1}
    events.append(received | fresh | changes)


def deliver_after_ack(events: list[Event]) -> None:
    again(events, settled_as(events, "acked")[0])


def deliver_after_ack_as_the_same_attempt(events: list[Event]) -> None:
    received = settled_as(events, "acked")[0]
    again(events, received, attempt=received["attempt"])


def lose_a_message(events: list[Event]) -> None:
    """An acked message comes to one of the groups only."""
    lost = settled_as(events, "acked")[0]
    receipts = [e["receipt"] for e in of(events, "received", group="plain", offset=lost["offset"])]
    ops = [e["op"] for e in of(events, "settle") if e["receipt"] in receipts]
    events[:] = [e for e in events if e.get("receipt") not in receipts and e.get("op") not in ops]


def leave_a_message_unsettled(events: list[Event]) -> None:
    """The last delivery of an acked message was never settled: its lease is over, it waits."""
    _, done = settled_as(events, "acked")
    events[:] = [e for e in events if e.get("op") != done["op"]]


def never_drain(events: list[Event]) -> None:
    events[:] = [e for e in events if e["type"] != "drained" or e["group"] != "keyed"]


def two_leases_of_one_attempt(events: list[Event]) -> None:
    received = settled_as(events, "requeued")[0]
    at = events.index(received)
    events.insert(at + 1, received | {"receipt": "twin"})


def attempt_not_counted(events: list[Event]) -> None:
    """A retry comes as the attempt before."""
    received = of(events, "received", group="plain", attempt=2)[0]
    received["attempt"] = 1


def expired_lease_settles(events: list[Event]) -> None:
    """A settle is accepted after the next attempt came."""
    refused = next(
        e
        for e in of(events, "settled", outcome="refused")
        for s in of(events, "settle", op=e["op"])
        for r in of(events, "received", offset=offset_of(s), group=s["group"])
        if r["attempt"] > int(s["receipt"].split(".")[2]) and r["time"] < s["time"]
    )
    refused["outcome"] = "extended"


def offset_of(settle: Event) -> int:
    return int(settle["receipt"].split(".")[1])


def lease_ends_early(events: list[Event]) -> None:
    retry = next(e for e in of(events, "received", reason=TIMED_OUT))
    first = of(events, "received", group=retry["group"], offset=retry["offset"])
    before = next(e for e in first if e["attempt"] == retry["attempt"] - 1)
    retry["sent"], retry["time"] = before["time"] + 0.5, before["time"] + 0.6


def wrong_reason(events: list[Event]) -> None:
    nacked = next(e for e in of(events, "received", attempt=2) if e["reason"].startswith("r"))
    nacked["reason"] = "another"


def dead_twice(events: list[Event]) -> None:
    events.append(of(events, "dead")[0])


def dead_not_listed(events: list[Event]) -> None:
    rejected = settled_as(events, "dead")[0]
    (letter,) = of(events, "dead", group="plain", offset=rejected["offset"])
    events.remove(letter)


def dead_and_delivered(events: list[Event]) -> None:
    again(events, settled_as(events, "dead")[0])


def dead_too_soon(events: list[Event]) -> None:
    received, _ = settled_as(events, "requeued")
    assert received["attempt"] < 3
    event = {"type": "dead", "time": 0.0, "group": "plain", "partition": 0, "redrives": 0}
    event |= {"offset": received["offset"], "reason": TIMED_OUT, "attempts": received["attempt"]}
    events.append(event)


def dead_too_late(events: list[Event]) -> None:
    received, _ = settled_as(events, "dead")
    received["attempt"] = 4


def dead_for_another_reason(events: list[Event]) -> None:
    rejected = settled_as(events, "dead")[0]
    of(events, "dead", group="plain", offset=rejected["offset"])[0]["reason"] = "another"


def nack_of_the_last_attempt_requeues(events: list[Event]) -> None:
    for done in of(events, "settled", outcome="dead"):
        settle = of(events, "settle", op=done["op"])[0]
        if settle["action"] == "nack":
            done["outcome"] = "requeued"
            return
    raise AssertionError


def delayed_publish(events: list[Event]) -> Event:
    """A delayed publish that was received."""
    values = {e["value"] for e in of(events, "received", group="plain")}
    return next(e for e in of(events, "publish") if e["delay_ms"] and e["value"] in values)


def deliver_early(events: list[Event]) -> None:
    publish = delayed_publish(events)
    received = of(events, "received", group="plain", value=publish["value"])[0]
    received["sent"] = publish["time"] + 0.05
    received["time"] = publish["time"] + publish["delay_ms"] / 1000 - 0.1


def deliver_early_by_log_time(events: list[Event]) -> None:
    publish = delayed_publish(events)
    of(events, "published", op=publish["op"])[0]["deliver_at_ms"] = 5000
    of(events, "received", group="plain", value=publish["value"])[0]["log_ms"] = 4999


def deliver_late(events: list[Event]) -> None:
    publish = delayed_publish(events)
    received = of(events, "received", group="plain", value=publish["value"])[0]
    received["time"] += 100
    received["sent"] = received["time"] - 0.1
    events[:] = [e for e in events if e["type"] != "trouble"]


def deliver_expired(events: list[Event]) -> None:
    received = of(events, "received", group="plain")[-1]
    publish = of(events, "publish", value=received["value"])[0]
    acked = of(events, "published", op=publish["op"])[0]
    publish["ttl_ms"] = 1
    received["sent"] = acked["time"] + 1


def deliver_cancelled(events: list[Event]) -> None:
    cancelled = of(events, "cancelled", outcome="cancelled")[0]
    offset = of(events, "cancel", op=cancelled["op"])[0]["offset"]
    op = of(events, "published", offset=offset)[0]["op"]
    value = of(events, "publish", op=op)[0]["value"]
    again(events, of(events, "received")[0], offset=offset, value=value, attempt=1)


def plain_first(events: list[Event]) -> tuple[Event, Event]:
    """The first request that brought two messages without a delay, from two lanes."""
    delayed = {e["value"] for e in of(events, "publish") if e["delay_ms"]}
    found = [
        e
        for e in of(events, "received", group="plain", attempt=1)
        if e["value"] not in delayed and published_at(events, e["value"]) < e["sent"]
    ]
    for one in found:
        for other in found:
            if one["sent"] == other["sent"] and one["lane"] < other["lane"]:
                return one, other
    raise AssertionError


def published_at(events: list[Event], value: str) -> float:
    ops = [e["op"] for e in of(events, "publish", value=value)]
    return min((e["time"] for e in events if e["type"] == "published" and e["op"] in ops),
               default=1e9)  # fmt: skip


def skip_a_lane(events: list[Event]) -> None:
    """The higher lane's message comes a request later than the lower lane's."""
    one, other = plain_first(events)
    one["sent"], one["time"] = other["time"] + 0.001, other["time"] + 0.002


def swap_in_a_lane(events: list[Event]) -> None:
    for one in of(events, "received", group="plain", attempt=1):
        for other in of(events, "received", group="plain", attempt=1, lane=one["lane"]):
            apart = one["offset"] < other["offset"] and one["time"] < other["sent"]
            values = one["value"], other["value"]
            delayed = any(e["delay_ms"] for v in values for e in of(events, "publish", value=v))
            if apart and not delayed:
                one["sent"], one["time"], other["sent"], other["time"] = (
                    other["sent"], other["time"], one["sent"], one["time"],
                )  # fmt: skip
                return
    raise AssertionError


def store_an_id_twice(events: list[Event]) -> None:
    duplicate = of(events, "published", duplicate=True)[0]
    duplicate["offset"] = 10**6


def deliver_an_id_from_two_places(events: list[Event]) -> None:
    received = next(e for e in of(events, "received") if e["value"].startswith("v-"))
    again(events, received, offset=10**6, attempt=1)


def keyed_pair(events: list[Event]) -> tuple[Event, Event]:
    """Two first deliveries of one key without a delay, one after the other."""
    delayed = {e["value"] for e in of(events, "publish") if e["delay_ms"]}
    found = [
        e
        for e in of(events, "received", group="keyed", attempt=1, key="a")
        if e["value"] not in delayed
    ]
    found.sort(key=lambda e: e["offset"])
    return next((a, b) for a, b in pairwise(found) if a["time"] < b["sent"])


def two_of_a_key_in_flight(events: list[Event]) -> None:
    one, other = keyed_pair(events)
    other["sent"], other["time"] = one["time"] + 0.001, one["time"] + 0.002


def key_out_of_order(events: list[Event]) -> None:
    one, other = keyed_pair(events)
    other["sent"], other["time"] = one["sent"] - 0.002, one["sent"] - 0.001


def deliver_what_was_refused(events: list[Event]) -> None:
    refused = of(events, "unpublished", in_doubt=False)[0]
    value = of(events, "publish", op=refused["op"])[0]["value"]
    again(events, of(events, "received")[0], value=value, offset=10**6, attempt=1)


def make_a_message_up(events: list[Event]) -> None:
    again(events, of(events, "received")[0], value="nothing", offset=10**6, attempt=1)


def settle_a_strangers_receipt(events: list[Event]) -> None:
    of(events, "settle")[0]["receipt"] = "foreign"


FAULTS: list[tuple[Callable[[list[Event]], None], str]] = [
    (deliver_after_ack, "G3"),
    (deliver_after_ack_as_the_same_attempt, "G3"),
    (lose_a_message, "G3"),
    (leave_a_message_unsettled, "G3"),
    (never_drain, "G3"),
    (two_leases_of_one_attempt, "Q1"),
    (attempt_not_counted, "Q1"),
    (expired_lease_settles, "Q1"),
    (lease_ends_early, "Q1"),
    (wrong_reason, "Q1"),
    (dead_twice, "Q2"),
    (dead_not_listed, "Q2"),
    (dead_and_delivered, "Q2"),
    (dead_too_soon, "Q2"),
    (dead_too_late, "Q2"),
    (dead_for_another_reason, "Q2"),
    (nack_of_the_last_attempt_requeues, "Q2"),
    (deliver_early, "Q3"),
    (deliver_early_by_log_time, "Q3"),
    (deliver_late, "Q3"),
    (deliver_expired, "Q3"),
    (deliver_cancelled, "Q3"),
    (skip_a_lane, "Q4"),
    (swap_in_a_lane, "Q4"),
    (store_an_id_twice, "Q5"),
    (deliver_an_id_from_two_places, "Q5"),
    (two_of_a_key_in_flight, "KEY"),
    (key_out_of_order, "KEY"),
    (deliver_what_was_refused, "L6"),
    (make_a_message_up, "L6"),
    (settle_a_strangers_receipt, "L6"),
]


@pytest.mark.parametrize(
    ("fault", "rule"), FAULTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_planted_fault_is_named(fault: Callable[[list[Event]], None], rule: str) -> None:
    events = copy.deepcopy(Model(seed=3, steps=500).events)
    fault(events)

    assert rule in judge(events).rules()


def test_every_rule_has_a_fault_that_it_finds() -> None:
    assert {rule for _, rule in FAULTS} == set(RULES)


def test_a_receive_without_an_answer_excuses_what_it_may_have_held() -> None:
    """It was released, and comes later as the same attempt: no lane was skipped."""
    events = Model(seed=3, steps=500).events
    skip_a_lane(events)
    assert "Q4" in judge(events).rules()
    first = min(e["time"] for e in events)
    last = max(e["time"] for e in events)

    events.insert(0, {"type": "unreceived", "group": "plain", "sent": first, "time": last})

    assert "Q4" not in judge(events).rules()


def test_a_receive_answered_in_part_excuses_only_those_partitions_and_that_time() -> None:
    events = Model(seed=3, steps=500).events
    swap_in_a_lane(events)
    (partition,) = {planted_place(broken.text)[0] for broken in judge(events).violations}
    first = min(e["time"] for e in events)
    last = max(e["time"] for e in events)

    def told(began: float, ended: float, *partitions: int) -> Event:
        lost = {"type": "unreceived", "group": "plain", "sent": began, "time": ended}
        return lost | {"partitions": list(partitions)}

    assert "Q4" in judge([told(first, last, partition + 1), *events]).rules()
    assert "Q4" in judge([told(first - 99, first - 98, partition), *events]).rules()
    assert "Q4" not in judge([told(first, last, partition), *events]).rules()


def test_a_message_that_nobody_was_given_may_have_died_in_lost_receives_and_been_purged() -> None:
    """Only where as many receives were lost as it had attempts, and the purge came after them."""
    with QueueHistory(clock=iter(range(99)).__next__) as history:
        history.group("g", max_attempts=2)
        op = history.publish("v", partition=0)
        history.published(op, 0, 0)

        def rules(lost: int, *, purged: bool) -> set[str]:
            events = [*history.events]
            times = range(10, 10 + lost)
            events += [{"type": "unreceived", "group": "g", "sent": t, "time": t} for t in times]
            events += [{"type": "purge", "group": "g", "time": 20}] * purged
            return judge([*events, {"type": "drained", "group": "g", "time": 30}]).rules()

        assert "G3" in rules(0, purged=True)
        assert "G3" in rules(1, purged=True)
        assert "G3" in rules(2, purged=False)
        assert "G3" not in rules(2, purged=True)


def planted_place(text: str) -> tuple[int, int]:
    """The (partition, offset) that a violation names first."""
    found = re.search(r"\((\d+), (\d+)\)", text)
    assert found is not None
    return int(found[1]), int(found[2])


def test_a_history_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with QueueHistory(path) as history:
        history.group("g", max_attempts=3)
        op = history.publish("v", partition=0, delay_ms=5)
        history.published(op, 0, 0, deliver_at_ms=5)

    assert load(path) == history.events


def test_many_deliveries_take_so_many_steps_each() -> None:
    events = Model(seed=1, steps=3000).events

    assert steps(lambda: judge(events)) < len(events) * EVENT_STEPS_MAX
