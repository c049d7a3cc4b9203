"""The figures of the analytics once more, by loops over the same messages and events: slower, and
with nothing of the queries in them. Names of tables and columns are those of the queries."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

LANES = ("critical", "high", "normal", "low", "background")
DONE = ("ACKNOWLEDGED", "DEAD_LETTERED", "SKIPPED")
HOUR_MS = 3_600_000
Row = dict[str, Any]
Id = tuple[int, int]
"""Partition and offset: all is of one topic."""


@dataclass
class Facts:
    """What there is to compute from. `events` have index, seq, offset, partition, ms, type, group
    and attributes; `messages` partition, offset, ms, key, value, lane, headers, message_id."""

    messages: list[Row]
    events: list[Row]
    groups: dict[str, Row]
    bounds: dict[int, tuple[int, int]]
    lives: dict[tuple[Id, str], list[Row]] = field(default_factory=lambda: defaultdict(list))
    """The events of a message in a group, in order."""
    by_id: dict[Id, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.events.sort(key=lambda e: (e["partition"], e["index"], e["offset"], e["seq"]))
        self.by_id = {(m["partition"], m["offset"]): dict(m) for m in self.messages}
        for message in self.by_id.values():
            message.update(deliver_at=None, due=message["ms"])
        for event in self.events:
            id_ = event["partition"], event["offset"]
            if event["type"] == "DELAYED":
                due = int(event["attributes"]["deliver_at_ms"])
                self.by_id[id_].update(deliver_at=due, due=max(due, self.by_id[id_]["ms"]))
            if event["group"] is not None and event["type"] != "EXTENDED":
                self.lives[id_, event["group"]].append(event)


def narrowed(facts: Facts, group: str, from_ms: int, to_ms: int) -> Facts:
    """What there is of one group in messages of log times from one up to another."""
    bounds: dict[int, tuple[int, int]] = {}
    for partition, (_, end) in facts.bounds.items():
        times = [(m["offset"], m["ms"]) for m in facts.messages if m["partition"] == partition]
        low, high = (
            min([o for o, ms in times if ms >= at], default=end) for at in (from_ms, to_ms)
        )
        bounds[partition] = low, high

    def within(row: Row) -> bool:
        low, high = bounds[row["partition"]]
        return bool(low <= row["offset"] < high)

    events = [e for e in facts.events if within(e) and e["group"] in (None, group)]
    messages = list(filter(within, facts.messages))
    return Facts(messages, events, {group: facts.groups[group]}, bounds)


def percentiles(numbers: Iterable[float]) -> Row:
    """p50, p95, p99 and max: between two neighbours in proportion."""
    found = sorted(numbers)

    def at(part: float) -> float:
        place = (len(found) - 1) * part
        low = math.floor(place)
        high = min(low + 1, len(found) - 1)
        return found[low] + (found[high] - found[low]) * (place - low)

    return {"p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99), "max_ms": found[-1]}


def deliveries(facts: Facts) -> list[Row]:
    """Each delivery, with the events before and after it."""
    found = []
    for (id_, group), life in facts.lives.items():
        number = 0
        for at, event in enumerate(life):
            if event["type"] == "DELIVERED":
                number += 1
                before = life[at - 1] if at else None
                after = life[at + 1] if at + 1 < len(life) else None
                found.append(
                    {"id": id_, "group": group, "number": number, "event": event,
                     "before": before, "after": after, "message": facts.by_id[id_]}
                )  # fmt: skip
    return found


def latency(facts: Facts) -> list[Row]:
    took: dict[tuple[Any, ...], list[float]] = defaultdict(list)

    def note(stage: str, group: str, consumer: str | None, lane: str, ms: float) -> None:
        who = consumer or "(none)"
        for by, key in (
            ("group", (None, None)),
            ("consumer", (who, None)),
            ("lane", (None, lane)),
            ("consumer and lane", (who, lane)),
        ):
            took[stage, by, group, *key].append(ms)

    for (id_, group), life in facts.lives.items():
        message = facts.by_id[id_]
        for stage, kind in (("publish_to_delivery", "DELIVERED"), ("end_to_end", "ACKNOWLEDGED")):
            first = next((event for event in life if event["type"] == kind), None)
            if first:
                ms = first["ms"] - message["due"]
                note(stage, group, first["consumer"], message["lane"], ms)
    for one in deliveries(facts):
        if one["after"] and one["after"]["type"] == "ACKNOWLEDGED":
            ms = one["after"]["ms"] - one["event"]["ms"]
            lane = one["message"]["lane"]
            note("delivery_to_ack", one["group"], one["event"]["consumer"], lane, ms)
    names = ("stage", "by", "group", "consumer", "lane")
    return [
        {**dict(zip(names, key, strict=True)), "count": len(ms), **percentiles(ms)}
        for key, ms in took.items()
    ]


def attempts(facts: Facts) -> list[Row]:
    counted: Counter[tuple[str, int]] = Counter()
    for (_, group), life in facts.lives.items():
        kinds = Counter(event["type"] for event in life)
        if kinds["DELIVERED"]:
            counted[group, kinds["DELIVERED"] - kinds["RELEASED"]] += 1
    totals: Counter[str] = Counter()
    for (group, _), count in counted.items():
        totals[group] += count
    return [
        {"group": g, "deliveries": n, "messages": count, "share": count / totals[g]}
        for (g, n), count in counted.items()
    ]


def redeliveries(facts: Facts) -> list[Row]:
    found: dict[tuple[Any, ...], list[Id]] = defaultdict(list)
    totals: Counter[str] = Counter()
    for one in deliveries(facts):
        totals[one["group"]] += 1
        if one["number"] > 1:
            cause = one["before"]
            found[one["group"], cause["type"], cause["reason"]].append(one["id"])
    return [
        {"group": group, "cause": cause, "reason": reason, "redeliveries": len(ids),
         "messages": len(set(ids)), "share": len(ids) / totals[group]}
        for (group, cause, reason), ids in found.items()
    ]  # fmt: skip


def dead_letters(facts: Facts) -> list[Row]:
    found: dict[tuple[Any, ...], list[tuple[Id, int, bool]]] = defaultdict(list)
    for (id_, group), life in facts.lives.items():
        last = [e["type"] for e in life if e["type"] in (*DONE, "REDRIVEN", "PURGED", "REPLAYED")]
        for event in life:
            if event["type"] == "DEAD_LETTERED":
                key = group, event["reason"], facts.by_id[id_]["key"]
                found[key].append((id_, event["ms"], last[-1] == "DEAD_LETTERED"))
    return [
        {"group": group, "reason": reason, "key": key, "deaths": len(deaths),
         "messages": len({id_ for id_, _, _ in deaths}),
         "still_dead": len({id_ for id_, _, dead in deaths if dead}),
         "first_at": min(ms for _, ms, _ in deaths), "last_at": max(ms for _, ms, _ in deaths)}
        for (group, reason, key), deaths in found.items()
    ]  # fmt: skip


def lag_slo(facts: Facts, objective_ms: int, target: float) -> list[Row]:
    """By walking over all moments at which anything changes."""
    end = max(event["ms"] for event in facts.events)
    rows = []
    for group in sorted({group for _, group in facts.lives}):
        mine = {id_: life for (id_, name), life in facts.lives.items() if name == group}
        begun = min(life[0]["ms"] for life in mine.values())
        first = {p: min(o for q, o in mine if q == p) for p in {p for p, _ in mine}}
        waiting = []
        for id_, message in facts.by_id.items():
            if id_[1] < first.get(id_[0], 0) or (id_[0] not in first and message["ms"] < begun):
                continue
            ends = [e["ms"] for e in mine.get(id_, []) if e["type"] in DONE]
            waiting.append((message["due"], min([*ends, end])))
        hours: dict[int, Row] = {}
        for hour in range(begun // HOUR_MS, end // HOUR_MS + 1):
            since, until = max(begun, hour * HOUR_MS), min(end, (hour + 1) * HOUR_MS)
            if until > since:
                hours[hour] = _hour(group, hour, since, until, waiting, objective_ms, target)
        rows += hours.values()
    return rows


def _hour(
    group: str,
    hour: int,
    since: int,
    until: int,
    waiting: Sequence[tuple[int, int]],
    objective_ms: int,
    target: float,
) -> Row:
    moments = sorted({since, until, *(m for pair in waiting for m in pair if since < m < until)})
    over, highest = 0, 0
    for at, following in pairwise(moments):
        due = [due for due, done in waiting if due <= at and done >= following and done > due]
        if due:
            highest = max(highest, following - min(due))
            over += max(0, following - max(at, min(due) + objective_ms))
    observed = until - since
    return {"group": group, "hour": hour * HOUR_MS, "observed_s": observed / 1000,
            "over_s": over / 1000, "attainment": 1 - over / observed,
            "burn": over / observed / (1 - target), "lag_max_s": highest / 1000}  # fmt: skip


def delay_accuracy(facts: Facts) -> list[Row]:
    late: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for event in facts.events:
        if event["type"] == "DUE":
            asked = facts.by_id[event["partition"], event["offset"]]["deliver_at"]
            late["due", None].append(event["ms"] - asked)
    for one in deliveries(facts):
        if one["number"] == 1 and one["message"]["deliver_at"] is not None:
            ms = one["event"]["ms"] - one["message"]["deliver_at"]
            late["delivery", one["group"]].append(ms)
    return [
        {"stage": stage, "group": group, "count": len(ms), "early": sum(n < 0 for n in ms),
         **percentiles(ms)}
        for (stage, group), ms in late.items()
    ]  # fmt: skip


def lane_waits(facts: Facts) -> list[Row]:
    waits = _waits(facts)
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for wait in waits:
        same = [w for w in waits if (w["group"], w["id"][0]) == (wait["group"], wait["id"][0])]
        place = wait["ready"], wait["id"][1], wait["number"]
        lower = [w for w in same if w["lane"] != "critical"]
        ahead = sum(
            (w["ready"], w["id"][1], w["number"]) < place and w["delivered"] >= wait["ready"]
            for w in lower
        ) - (wait["lane"] == "critical")
        ahead += sum(
            (w["number"] > 1 or w["delayed"]) and wait["ready"] < w["ready"] <= wait["delivered"]
            for w in same
        )
        group = facts.groups[wait["group"]]
        aged = wait["ready"] + group["lane_max_wait_ms"]
        wait["turns"] = group["lane_share"] * (max(0, ahead) + 1)
        wait["late"] = sum(aged < w["delivered"] < wait["delivered"] for w in same)
        found[wait["group"], wait["lane"]].append(wait)
    rows = []
    for (name, lane), of_lane in found.items():
        bounded = lane != "critical"
        rows.append(
            {"group": name, "lane": lane, "count": len(of_lane),
             **percentiles(w["delivered"] - w["ready"] for w in of_lane),
             "lane_max_wait_ms": facts.groups[name]["lane_max_wait_ms"],
             "share_of_bound": max(w["late"] / w["turns"] for w in of_lane) if bounded else None,
             "over_bound": sum(bounded and w["late"] > w["turns"] for w in of_lane)}
        )  # fmt: skip
    return rows


def _waits(facts: Facts) -> list[Row]:
    """From when to when each delivery's message was ready."""
    found = []
    begun: dict[tuple[str, int], int] = {}
    for one in deliveries(facts):
        place = one["group"], one["id"][0]
        begun[place] = min(begun.get(place, one["event"]["ms"]), one["event"]["ms"])
    for one in deliveries(facts):
        id_, group, delivered = one["id"], one["group"], one["event"]["ms"]
        if one["number"] > 1:
            retry = one["before"]["attributes"].get("retry_at_ms")
            ready = int(retry) if retry else one["before"]["ms"]
        else:
            created = facts.groups[group]["created_ms"]
            ready = max(one["message"]["due"], created, begun[group, id_[0]])
            key = one["message"]["key"]
            if facts.groups[group]["ordering"] == "key" and key is not None:
                for other, message in facts.by_id.items():
                    if message["key"] == key and other[0] == id_[0] and other[1] < id_[1]:
                        life = facts.lives.get((other, group), [])
                        done = [e["ms"] for e in life if e["type"] in DONE]
                        ready = max([ready, *done[:1]])
        found.append({"id": id_, "group": group, "number": one["number"],
                      "lane": one["message"]["lane"], "ready": min(ready, delivered),
                      "delayed": one["message"]["due"] > one["message"]["ms"],
                      "delivered": delivered})  # fmt: skip
    return found


def hot_keys(facts: Facts, top: int) -> list[Row]:
    keys = Counter(m["key"] for m in facts.messages if m["key"] is not None)
    total, so_far, rows = keys.total(), 0, []
    for rank, (key, count) in enumerate(sorted(keys.items(), key=lambda k: (-k[1], k[0])), 1):
        so_far += count
        of_key = [m for m in facts.messages if m["key"] == key]
        rows.append(
            {"rank": rank, "key": key, "messages": count, "share": count / total,
             "cumulative_share": so_far / total,
             "value_bytes": sum(len(m["value"]) for m in of_key),
             "partitions": len({m["partition"] for m in of_key})}
        )  # fmt: skip
    return rows[:top]


def key_spread(facts: Facts, topic: str, top: int) -> list[Row]:
    """Gini by its definition: the mean difference of two keys, by twice the mean."""
    counts = list(Counter(m["key"] for m in facts.messages if m["key"] is not None).values())
    differences = sum(abs(a - b) for a in counts for b in counts) / len(counts) ** 2
    total = sum(counts)
    return [
        {"topic": topic, "keys": len(counts), "messages": total,
         "without_key": sum(m["key"] is None for m in facts.messages),
         "gini": differences / (2 * total / len(counts)),
         "top_share": sum(sorted(counts)[-top:]) / total, "busiest_share": max(counts) / total}
    ]  # fmt: skip


def partition_skew(facts: Facts, topic: str) -> list[Row]:
    rows = []
    counts = Counter(m["partition"] for m in facts.messages)
    for partition, count in counts.items():
        of_it = [m for m in facts.messages if m["partition"] == partition]
        rows.append(
            {"topic": topic, "partition": partition, "messages": count,
             "value_bytes": sum(len(m["value"]) for m in of_it),
             "keys": len({m["key"] for m in of_it} - {None}),
             "share": count / len(facts.messages), "skew": count * len(counts) / counts.total()}
        )  # fmt: skip
    return rows


def audit(facts: Facts) -> dict[tuple[str, str | None], int]:
    """How many findings each check has, of those that have any."""
    found: Counter[tuple[str, str | None]] = Counter()
    for partition, (first, end) in facts.bounds.items():
        there = {o for p, o in facts.by_id if p == partition}
        holes = [o for o in range(first, end) if o not in there]
        found["offset_gap", None] += sum(o - 1 not in holes for o in holes)
    found["duplicate_offset", None] = len(facts.messages) - len(facts.by_id)
    ids = Counter(m["message_id"] for m in facts.messages if m["message_id"])
    found["duplicate_message_id", None] = sum(count > 1 for count in ids.values())
    before: dict[tuple[str, int, str], list[Id]] = defaultdict(list)
    in_order = sorted(deliveries(facts), key=lambda d: (d["event"]["index"], d["id"][1]))
    for one in in_order:
        message, group, event = one["message"], one["group"], one["event"]
        if one["number"] == 1 and message["key"] is not None:
            others = before[group, one["id"][0], message["key"]]
            later = [id_ for id_ in others if id_[1] > one["id"][1]]
            found["key_order", group] += bool(later) and message["deliver_at"] is None
            open_ = [id_ for id_ in others if _done(facts, id_, group) > event["index"]]
            found["key_not_settled", group] += bool(open_)
            others.append(one["id"])
        kind = one["before"]["type"] if one["before"] else None
        found["delivered_while_leased", group] += kind == "DELIVERED"
        found["delivered_when_done", group] += kind in (*DONE, "PURGED")
        found["delivered_early", group] += event["ms"] < (message["deliver_at"] or 0)
    return {key: count for key, count in found.items() if count}


def _done(facts: Facts, id_: Id, group: str) -> float:
    """The entry that settled a message for the group."""
    ends = [event["index"] for event in facts.lives[id_, group] if event["type"] in DONE]
    return min(ends, default=math.inf)


def replays(facts: Facts, id_header: str, origin_header: str) -> tuple[Row, list[Row]]:
    """The one replay's figures, and what it changed."""
    restored = [m for m in facts.messages if id_header in m["headers"]]
    originals = {f"{m['partition']}:{m['offset']}": m for m in facts.messages}
    changes, unknown = [], 0
    for message in restored:
        origin = message["headers"][origin_header]
        original = originals.get(origin.split(":", 1)[1])
        if original is None:
            unknown += 1
        elif _hash(original) != _hash(message):
            changes.append({"origin": origin, "offset": message["offset"], "change": "value",
                            "value_bytes": len(message["value"]),
                            "original_bytes": len(original["value"])})  # fmt: skip
    figures = {
        "replay_id": restored[0]["headers"][id_header],
        "messages": len(restored),
        "keys": len({m["key"] for m in restored}),
        "originals": len({m["headers"][origin_header] for m in restored}),
        "repeated": 0,
        "changed": len(changes),
        "rekeyed": 0,
        "unknown": unknown,
    }
    return figures, changes


def summary(facts: Facts) -> Row:
    kinds = Counter(event["type"] for event in facts.events)
    acked = [k for k, life in facts.lives.items() if any(e["type"] == "ACKNOWLEDGED" for e in life)]
    return {
        "messages": len(facts.messages),
        "stored": len(facts.messages),
        "value_bytes": sum(len(m["value"]) for m in facts.messages),
        "keys": len({m["key"] for m in facts.messages} - {None}),
        "delayed": kinds["DELAYED"],
        "events": len(facts.events),
        "groups": len({group for _, group in facts.lives}),
        "deliveries": kinds["DELIVERED"],
        "acknowledged": len(acked),
        "dead": sum(row["still_dead"] for row in dead_letters(facts)),
    }


def ms_of(value: Any) -> Any:
    """A time of a table as Unix ms; anything else as it is."""
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def _hash(message: Row) -> str:
    return hashlib.sha256(message["value"]).hexdigest()
