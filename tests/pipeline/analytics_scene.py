"""What a topic goes through in the tests of analytics: real lines, two groups, and every trouble.

`ship` has two members, one after the other, failures and dead letters; `audit` takes everything
without a member, late and in lanes. What is to be found is counted by who makes it, in `Made`.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.restore import marks
from tests.cluster.group_members import Member, ok
from tests.cluster.processes import Cluster, eventually, publish
from tests.cluster.test_real_lines import sample_files

LINES = 240
LINES_AT_ONCE = 60
"""So that there are several log times."""
PARTITIONS = 3
LANES = ("critical", "high", "normal", "low", "background")
LANE_MAX_WAIT_MS = 50
TWICE = "line-once-only"
"""A producer's id that is in two partitions: each of them knows only its own."""
HOSTILE = "</script><b onload=alert(1)> $x_1$ \u0001 \u202e"
REPLAY = "replay-2025-01"


@dataclass(slots=True)
class Made:
    """What was done, by who did it."""

    topic: str
    ship: str
    audit: str
    published: int = 0
    delayed: int = 0
    acked: Counter[str] = field(default_factory=Counter[str])
    nacked: Counter[str] = field(default_factory=Counter[str])
    dead: Counter[str] = field(default_factory=Counter[str])
    keys: Counter[str] = field(default_factory=Counter[str])


def make_scene(cluster: Cluster, folder: Path, name: str = "analytics") -> Made:
    """The topic's life, over: nothing happens to it any more but by time."""
    made = Made(name, f"{name}-ship", f"{name}-audit")
    node = cluster[0]
    told = node.ask("POST", "/topics", {"name": name, "num_partitions": PARTITIONS})
    assert told.status == 201, told.content
    for group, settings in (
        (made.ship, {"max_attempts": 2, "visibility_timeout": "30s", "ordering": "key"}),
        (made.audit, {"lane_max_wait": f"{LANE_MAX_WAIT_MS}ms", "lane_share": 4}),
    ):
        answer = node.ask("PUT", f"/groups/{group}", settings)
        assert answer.status in (200, 201), answer.content
    first = Member(cluster, made.ship, "packer-1")
    first.join([name])
    eventually("the first has all", lambda: _has(first, PARTITIONS))
    _publish(cluster, made, folder)
    _ship_some(first, made)
    second = Member(cluster, made.ship, "packer-2")
    second.join([name])
    eventually("both have their share", lambda: _shared(first, second))
    _ship_all([first, second], made)
    _audit(cluster, made)
    for member in (first, second):
        member.leave()
    return made


def lines(folder: Path, count: int) -> list[dict[str, Any]]:
    """Real lines as messages, a few of each file."""
    found: list[dict[str, Any]] = []
    files = sample_files(folder)
    for path in files:
        with path.open() as rows:
            for row, _ in zip(rows, range(-(-count // len(files))), strict=False):
                message = json.loads(row)
                value = message["value"]
                text = value if isinstance(value, str) else json.dumps(value)
                found.append({"key": message["key"], "value": text})
    return found[:count]


def _publish(cluster: Cluster, made: Made, folder: Path) -> None:
    messages = lines(folder, LINES)
    for number, message in enumerate(messages):
        message["priority"] = LANES[number * 7 % 5]
        message["partition"] = sum(message["key"].encode()) % PARTITIONS
        if number % 30 == 7:
            message["delay"] = f"{300 + number}ms"
            made.delayed += 1
    for partition in (0, 1):
        messages.append({"value": "again", "partition": partition, "message_id": TWICE})
    messages.append({"key": HOSTILE, "value": "x", "partition": 2})
    originals: list[dict[str, Any]] = []
    for at in range(0, len(messages), LINES_AT_ONCE):
        originals += publish(cluster[0], made.topic, messages[at : at + LINES_AT_ONCE])
    again: list[dict[str, Any]] = []
    for message, result in list(zip(messages, originals, strict=True))[10:16]:
        again.append(
            {
                "key": message["key"],
                "value": message["value"] + (" (changed)" if len(again) == 2 else ""),
                "partition": result["partition"],
                "headers": _origin(made.topic, result),
            }
        )
    publish(cluster[1], made.topic, again)
    made.published = len(messages) + len(again)
    made.keys.update(message["key"] for message in [*messages, *again] if "key" in message)


def _origin(topic: str, result: dict[str, Any]) -> dict[str, str]:
    return {
        marks.ID: REPLAY,
        marks.ORIGIN: f"{topic}:{result['partition']}:{result['offset']}",
    }


def _has(member: Member, count: int) -> bool:
    member.hear()
    return len(member.assigned) == count


def _shared(first: Member, second: Member) -> bool:
    """Each lets go of what it is asked for."""
    for member in (first, second):
        member.hear()
        if member.revoking:
            member.let_go(member.revoking)
    return bool(first.assigned and second.assigned) and (
        len(first.assigned) + len(second.assigned) == PARTITIONS
    )


def _ship_some(member: Member, made: Made) -> None:
    """A first batch; three of it fail and come again, two are refused for good."""
    found = ok(member.receive(limit=60, wait="5s"))["messages"]
    for at, message in enumerate(found):
        if at in (3, 9, 15):
            _settle(member, made, message, "nack", "downstream 503")
        elif at in (20, 21):
            _settle(member, made, message, "reject", ("no such user", HOSTILE)[at - 20])
        else:
            _settle(member, made, message, "ack")


def _ship_all(members: list[Member], made: Made) -> None:
    """The rest, until all is settled; what is hot fails twice, and is dead."""
    end = time.monotonic() + 30
    done = sum((made.acked + made.dead)[made.ship] for _ in (0,)) if made.acked else 0
    while done < made.published and time.monotonic() < end:
        for member in members:
            member.hear()
            found = ok(member.receive(limit=50, wait="200ms"))["messages"]
            acks = []
            for message in found:
                if message["offset"] % 41 == 5:
                    _settle(member, made, message, "nack", "schema: 'pid' is missing")
                else:
                    acks.append(message)
            if acks:
                ok(member.settle(acks))
                made.acked[made.ship] += len(acks)
        done = made.acked[made.ship] + made.dead[made.ship]
    assert done == made.published, (done, made)


def _settle(
    member: Member, made: Made, message: dict[str, Any], action: str, why: str = ""
) -> None:
    body = {"settles": [{"receipt": message["receipt"], "action": action, "reason": why}]}
    told = ok(member.ask("POST", "settle", body))["results"][0]
    assert told["success"], told
    if told["state"] == "dead":
        made.dead[made.ship] += 1
    if action == "nack":
        made.nacked[made.ship] += 1
    elif action == "ack":
        made.acked[made.ship] += 1


def _audit(cluster: Cluster, made: Made) -> None:
    """All of it, by nobody in particular; one delivery runs out, one is extended."""
    path = f"/groups/{made.audit}"
    body = {"topic": made.topic, "limit": 1, "wait": "5s", "visibility_timeout": "1ms"}
    assert ok(cluster[0].ask("POST", f"{path}/receive", body))["messages"]
    while made.acked[made.audit] < made.published:
        body = {"topic": made.topic, "limit": 40, "wait": "5s"}
        found = ok(cluster[1].ask("POST", f"{path}/receive", body))["messages"]
        assert found, made
        settles = [{"receipt": one["receipt"], "action": "ack"} for one in found]
        ok(cluster[1].ask("POST", f"{path}/settle", {"settles": settles}))
        made.acked[made.audit] += len(found)
        time.sleep(LANE_MAX_WAIT_MS / 2000)  # until what is behind lives from shares
