"""Judges what clients did with topics: whether each behaved like one object behind one lock (M1).

    call      `client` begins `action` (create, alter, describe or delete) on `topic`; `op` names
              the call, `value` is the setting it writes
    answered  how the call `op` ended: `outcome` is ok, absent (there is no such topic), exists,
              unsent (it never reached a node), or unknown; `value` is the setting that a describe
              showed

Other events are not looked at. A call that has no end counts as unknown. A topic that clients name
must not exist before.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.check.history import Event, load
from tests.check.linearizable import Operation, contradiction
from tests.check.verdict import Findings, Violation

RULES = ("M1",)
ABSENT = -1
"""The state of a topic that is not there; of others it is their setting."""
UNSEEN = -2
"""Any setting that no describe showed: which of them it is makes no difference."""
_SHOWN = 5


@dataclass
class Verdict(Findings):
    """What was counted, and what was broken."""

    calls: int = 0
    unknown: int = 0

    def lines(self) -> Iterator[str]:
        return self.lines_of(RULES)


def check(events: Iterable[Event]) -> Verdict:
    """Raises `KeyError` where an event lacks a field."""
    verdict = Verdict([])
    for topic, operations in _by_topic(events).items():
        verdict.calls += len(operations)
        verdict.unknown += sum(one.is_open for one in operations)
        stuck = contradiction(_reduced(operations), ABSENT, after)
        if stuck is not None:
            whole = {(one.client, one.began): one for one in operations}
            told = "; ".join(_text(whole[one.client, one.began]) for one in stuck[:_SHOWN])
            verdict.violations.append(Violation("M1", f"{topic}: no order explains {told}"))
    return verdict


def after(state: int, call: Operation) -> int | None:
    """The topic after a call, if the call's answer fits the topic before it."""
    is_there = state != ABSENT
    match call.action, call.answer:
        case "describe", "unknown":
            return state
        case "describe", ("ok", shown):
            return state if state == shown else None
        case "create", "ok":
            return None if is_there else int(call.argument)
        case "create", "unknown":
            return state if is_there else int(call.argument)
        case "alter", "ok":
            return int(call.argument) if is_there else None
        case "alter", "unknown":
            return int(call.argument) if is_there else state
        case "delete", "ok":
            return ABSENT if is_there else None
        case "delete", "unknown":
            return ABSENT
        case "create", "exists":
            return state if is_there else None
        case (("describe" | "alter" | "delete"), "absent"):
            return None if is_there else state
        case _:
            raise ValueError(f"{call.action} can't be answered {call.answer}")


def main(path: str) -> int:
    verdict = check(load(Path(path)))
    print(f"calls {verdict.calls}  of unknown end {verdict.unknown}")
    for line in verdict.lines():
        print(line)
    return 0 if verdict.is_clean else 1


def _by_topic(events: Iterable[Event]) -> dict[str, list[Operation]]:
    begun: dict[int, Event] = {}
    found: dict[str, list[Operation]] = defaultdict(list)
    for event in events:
        if event["type"] == "call":
            begun[event["op"]] = event
        elif event["type"] == "answered":
            call = begun.pop(event["op"])
            outcome = event["outcome"]
            if outcome == "unknown":
                begun[event["op"]] = call
            if outcome in ("unknown", "unsent"):
                continue
            is_shown = call["action"] == "describe" and outcome == "ok"
            answer = ("ok", int(event["value"])) if is_shown else outcome
            found[call["topic"]].append(_operation(call, answer, event["time"]))
    for call in begun.values():
        found[call["topic"]].append(_operation(call, "unknown", math.inf))
    return found


def _reduced(calls: list[Operation]) -> list[Operation]:
    """The same question with less to try: settings that nobody saw are one, and calls of unknown
    end go that explain nothing (they saw nothing, or wrote what nobody saw to a topic that was
    there before and after)."""
    seen = {one.answer[1] for one in calls if isinstance(one.answer, tuple)}
    reduced = [
        one
        if one.argument in seen
        else replace(one, argument=UNSEEN if one.action in ("create", "alter") else None)
        for one in calls
    ]
    return [
        one
        for one in reduced
        if not one.is_open
        or one.action in ("create", "delete")
        or (one.action == "alter" and one.argument != UNSEEN)
    ]


def _operation(call: Event, answer: object, ended: float) -> Operation:
    return Operation(call["client"], call["action"], call.get("value"), answer, call["time"], ended)


def _text(one: Operation) -> str:
    written = "" if one.argument is None else f" {one.argument}"
    answer = f"shows {one.answer[1]}" if isinstance(one.answer, tuple) else one.answer
    span = f"{one.began:.3f} to {'?' if one.is_open else format(one.ended, '.3f')}"
    return f"{one.client}: {one.action}{written}: {answer} ({span})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
