"""The checker itself: clean histories pass, and a fault planted for any rule is named."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.check.history import Event, History, load
from tests.check.logcheck import RULES, Verdict, check

PARTITIONS = 2
NODES = ("node-1", "node-2", "node-3")


class Model:
    """A log that keeps every promise, and its history, with made-up times."""

    def __init__(self, seed: int = 1, publishes: int = 120) -> None:
        self.rng = random.Random(seed)
        self.events: list[Event] = []
        self.logs: list[list[tuple[str, str]]] = [[] for _ in range(PARTITIONS)]
        self.clock = 0.0
        for op in range(1, publishes + 1):
            self._publish(op)
        for node in NODES:
            for partition, log in enumerate(self.logs):
                self.read(node, partition, 0, len(log) // 2, final=True)
                self.read(node, partition, len(log) // 2, len(log), final=True)

    def _publish(self, op: int) -> None:
        publisher = f"p{self.rng.randrange(3)}"
        partition = self.rng.randrange(PARTITIONS)
        key = f"{publisher}-k{self.rng.randrange(2)}"
        values = [f"{op}.{n}" for n in range(self.rng.randrange(1, 4))]
        self.add("invoke", op=op, publisher=publisher, partition=partition, key=key, values=values)
        log, chance = self.logs[partition], self.rng.random()
        if chance < 0.1:
            self.add("fail", op=op, error="disk_full")
            return
        if chance < 0.8 or self.rng.random() < 0.5:
            offsets = list(range(len(log), len(log) + len(values)))
            log += [(key, value) for value in values]
            if chance < 0.8:
                self.add("ok", op=op, offsets=offsets, sent=self.clock, duplicate=False)
                return
        self.add("info", op=op, error="timeout")

    def add(self, kind: str, **fields: object) -> None:
        self.clock += 1
        self.events.append({"type": kind, "time": self.clock, "wall": self.clock, **fields})

    def read(self, node: str, partition: int, first: int, end: int, *, final: bool) -> None:
        log = self.logs[partition][first:end]
        self.add(
            "read",
            node=node,
            partition=partition,
            offsets=list(range(first, end)),
            keys=[key for key, _ in log],
            values=[value for _, value in log],
            final=final,
        )


def events_of(kind: str, events: list[Event]) -> list[Event]:
    return [event for event in events if event["type"] == kind]


@pytest.mark.parametrize("seed", range(20))
def test_history_of_a_good_log_is_clean(seed: int) -> None:
    model = Model(seed)

    verdict = check(model.events)

    assert list(verdict.lines()) == []
    assert verdict.is_clean
    assert verdict.acked > 50
    assert verdict.refused > 0 and verdict.in_doubt > 0
    assert verdict.read == sum(map(len, model.logs))


def lose_the_tail(events: list[Event]) -> None:
    for read in events_of("read", events):
        if read["partition"] == 0 and read["offsets"] and read["offsets"][0] > 0:
            for column in ("offsets", "keys", "values"):
                read[column] = read[column][:-4]


def lose_the_tail_on_one_node(events: list[Event]) -> None:
    for read in events_of("read", events):
        if read["node"] == "node-2" and read["offsets"][0] > 0:
            for column in ("offsets", "keys", "values"):
                read[column] = read[column][:-4]


def lose_everything(events: list[Event]) -> None:
    events[:] = [event for event in events if event["type"] != "read"]


def overwrite(events: list[Event]) -> None:
    """A node gives its slot to a value left in doubt."""
    doubt = next(e for e in events_of("info", events))
    invoke = next(e for e in events_of("invoke", events) if e["op"] == doubt["op"])
    acked = next(
        e
        for e in events_of("ok", events)
        if next(i for i in events_of("invoke", events) if i["op"] == e["op"])["partition"]
        == invoke["partition"]
    )
    for read in events_of("read", events):
        if read["partition"] == invoke["partition"] and acked["offsets"][0] in read["offsets"]:
            row = read["offsets"].index(acked["offsets"][0])
            read["values"][row], read["keys"][row] = invoke["values"][0], invoke["key"]


def diverge(events: list[Event]) -> None:
    """One node shows two neighbours the other way round."""
    read = next(e for e in events_of("read", events) if e["node"] == "node-3")
    for column in ("values", "keys"):
        read[column][0], read[column][1] = read[column][1], read[column][0]


def ack_an_offset_twice(events: list[Event]) -> None:
    invokes = {e["op"]: e for e in events_of("invoke", events)}
    first, second = [e for e in events_of("ok", events) if invokes[e["op"]]["partition"] == 1][:2]
    second["offsets"] = [first["offsets"][0] + n for n in range(len(second["offsets"]))]


def leave_a_hole(events: list[Event]) -> None:
    """Every node skips the same offset, of a value left in doubt."""
    doubtful = {e["op"] for e in events_of("info", events)}
    values = {
        value for e in events_of("invoke", events) if e["op"] in doubtful for value in e["values"]
    }
    reads = events_of("read", events)
    hole = next(
        (r["partition"], o)
        for r in reads
        for o, v in zip(r["offsets"], r["values"], strict=False)
        if v in values and o > r["offsets"][0]
    )
    for read in reads:
        if read["partition"] == hole[0] and hole[1] in read["offsets"]:
            row = read["offsets"].index(hole[1])
            for column in ("offsets", "keys", "values"):
                del read[column][row]


def ack_with_a_gap(events: list[Event]) -> None:
    ack = next(e for e in events_of("ok", events) if len(e["offsets"]) > 1)
    ack["offsets"][-1] += 1


def swap(events: list[Event], same_key: bool) -> None:
    """Two publishes, one wholly before the other, change places in the log and in their acks."""
    invokes = {e["op"]: e for e in events_of("invoke", events)}
    acks = [e for e in events_of("ok", events) if len(e["offsets"]) == 1]
    first, second = next(
        (a, b)
        for a in acks
        for b in acks
        if a["op"] < b["op"]
        and invokes[a["op"]]["partition"] == invokes[b["op"]]["partition"]
        and (invokes[a["op"]]["key"] == invokes[b["op"]]["key"]) is same_key
    )
    first["offsets"], second["offsets"] = second["offsets"], first["offsets"]
    swapped = {}
    for ack in (first, second):
        invoke = invokes[ack["op"]]
        swapped[invoke["partition"], ack["offsets"][0]] = (invoke["key"], invoke["values"][0])
    for read in events_of("read", events):
        for row, offset in enumerate(read["offsets"]):
            if (read["partition"], offset) in swapped:
                read["keys"][row], read["values"][row] = swapped[read["partition"], offset]


def append_to_all(events: list[Event], partition: int, key: str, value: str) -> None:
    for node in NODES:
        ends = [
            e
            for e in events_of("read", events)
            if e["node"] == node and e["partition"] == partition
        ]
        ends[-1]["offsets"].append(ends[-1]["offsets"][-1] + 1)
        ends[-1]["keys"].append(key)
        ends[-1]["values"].append(value)


def show_a_phantom(events: list[Event]) -> None:
    append_to_all(events, 0, "k", "nobody sent this")


def show_what_was_refused(events: list[Event]) -> None:
    failed = events_of("fail", events)[0]
    invoke = next(e for e in events_of("invoke", events) if e["op"] == failed["op"])
    append_to_all(events, invoke["partition"], invoke["key"], invoke["values"][0])


def show_it_in_another_partition(events: list[Event]) -> None:
    """A value left in doubt turns up, once, where it was not sent."""
    shown = {value for e in events_of("read", events) for value in e["values"]}
    doubtful = {e["op"] for e in events_of("info", events)}
    invoke = next(
        e
        for e in events_of("invoke", events)
        if e["op"] in doubtful and e["values"][0] not in shown
    )
    append_to_all(events, 1 - invoke["partition"], invoke["key"], invoke["values"][0])


def change_a_key(events: list[Event]) -> None:
    for read in events_of("read", events):
        if read["partition"] == 0 and read["offsets"][0] == 0:
            read["keys"][2] = "another key"


def store_twice(events: list[Event]) -> None:
    ack = events_of("ok", events)[0]
    invoke = next(e for e in events_of("invoke", events) if e["op"] == ack["op"])
    append_to_all(events, invoke["partition"], invoke["key"], invoke["values"][0])


def store_what_is_in_doubt_twice(events: list[Event]) -> None:
    shown = {value for e in events_of("read", events) for value in e["values"]}
    doubtful = {e["op"] for e in events_of("info", events)}
    invoke = next(
        e for e in events_of("invoke", events) if e["op"] in doubtful and e["values"][0] in shown
    )
    append_to_all(events, invoke["partition"], invoke["key"], invoke["values"][0])


FAULTS: list[tuple[Callable[[list[Event]], None], str]] = [
    (lose_the_tail, "L1"),
    (lose_the_tail_on_one_node, "L1"),
    (lose_everything, "L1"),
    (overwrite, "L1"),
    (overwrite, "L2"),
    (diverge, "L2"),
    (ack_an_offset_twice, "L2"),
    (leave_a_hole, "L3"),
    (ack_with_a_gap, "L3"),
    (lose_the_tail_on_one_node, "L3"),
    (lambda events: swap(events, same_key=True), "L4"),
    (lambda events: swap(events, same_key=False), "L5"),
    (show_a_phantom, "L6"),
    (show_what_was_refused, "L6"),
    (show_it_in_another_partition, "L6"),
    (change_a_key, "L6"),
    (store_twice, "L8"),
    (store_what_is_in_doubt_twice, "L8"),
]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("plant", "rule"), FAULTS)
def test_planted_fault_is_named(plant: Callable[[list[Event]], None], rule: str, seed: int) -> None:
    events = copy.deepcopy(Model(seed, publishes=250).events)

    plant(events)

    assert rule in check(events).rules()


def test_every_rule_has_a_planted_fault() -> None:
    assert {rule for _, rule in FAULTS} == set(RULES)


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        (show_a_phantom, "L6"),
        (change_a_key, "L6"),
        (leave_a_hole, "L3"),
        (store_what_is_in_doubt_twice, "L8"),
    ],
)
def test_fault_of_one_rule_breaks_no_other(plant: Callable[[list[Event]], None], rule: str) -> None:
    events = copy.deepcopy(Model(3, publishes=250).events)

    plant(events)

    assert check(events).rules() == {rule}


def test_lost_and_doubled_values_are_counted() -> None:
    model = Model(4)
    store_twice(model.events)
    assert check(model.events).twice == 1

    model = Model(4)
    lose_everything(model.events)
    verdict = check(model.events)
    assert verdict.lost == verdict.acked


def test_history_that_sends_a_value_twice_is_unusable() -> None:
    model = Model(5)
    model.events.insert(1, {**model.events[0], "op": 9999})

    with pytest.raises(ValueError, match="twice"):
        check(model.events)


def test_history_is_judged_the_same_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with History(path) as history:
        op = history.invoke("p", 0, "k", ["a", "b"])
        history.ok(op, [0, 1], sent=time.monotonic())
        doubt = history.invoke("p", 0, "k", ["c"])
        history.info(doubt, "timeout")
        refused = history.invoke("p", 0, None, ["d"])
        history.fail(refused, "disk_full")
        history.kill("node-1", [0], time.monotonic())
        history.note("healthy", after_s=1.0)
        history.read("node-2", 0, [0, 1], ["k", "k"], ["a", "b"], final=True)
    with path.open("a") as file:
        file.write('{"type":"invo')

    events = load(path)

    assert events == history.events
    assert check(events) == check(history) == Verdict([], acked=2, in_doubt=1, refused=1, read=2)
