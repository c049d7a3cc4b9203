"""Stories of groups on a real cluster: commands after `> `, what is seen beneath.

Nothing in them depends on time: partitions and members have names, and what is seen is seen once
nothing can move any further by itself. `python -m tests.cluster.stories FILE...` writes the files
anew with what is true now.

    topic NAME COUNT          a topic with so many partitions
    publish NAME COUNT        messages NAME-0, NAME-1, ...: to partition 0, 1, ..., and again
    join WHO TOPICS           with instance=ID, session=2s, rebalance=1s, or patterns=a.*,b.*
    restart WHO               its process starts again, and joins with the instance id that it had
    let-go WHO [TOPIC P...]   of all that it is asked for, or of these
    leave WHO; crash WHO      a crashed one is silent until it is out of the group
    receive WHO               all there is of what it has, as far as it knows
    ack WHO MESSAGES          by their receipts
    until WHO has PLACES      what happens by itself takes its time
    rebalances                the receipts of those that are over and were not told yet
    lag                       how far the group has come
    kill coordinator; start   the broker that leads the cluster group, by kill -9
"""

from __future__ import annotations

import http.client
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.cluster.group_members import Member, Place, Pulse, ok, places
from tests.cluster.processes import Answer, Cluster, Node, eventually, publish

SESSION = "60s"
RECEIVE_WAIT = "5s"
MORE_WAIT = "200ms"
"""For the first message, and for more: whoever leads a partition may have begun to just now."""
SETTINGS = {"visibility_timeout": "10m", "max_attempts": 10}


def play(text: str, story: str, cluster: Cluster) -> str:
    """The transcript as its commands come out now; comments and blank lines stay.

    Raises AssertionError, with the transcript so far, where a command can't be carried out.
    """
    lines: list[str] = []
    with Pulse(cluster) as pulse:
        player = Player(cluster, story, pulse)
        for line in text.splitlines():
            if line.startswith("> "):
                lines += [line, *_run(player, line[2:], lines)]
            elif line.startswith("#") or not line.strip():
                lines.append(line)
    return "\n".join(lines) + "\n"


def _run(player: Player, command: str, before: Sequence[str]) -> list[str]:
    try:
        return player.run(command)
    except Exception as error:
        told = "\n".join([*before, f"> {command}"])
        raise AssertionError(f"{error!r} after\n{told}") from error


class Player:
    """One group. Topics have the story's name before their own, so that many share a cluster."""

    def __init__(self, cluster: Cluster, story: str, pulse: Pulse) -> None:
        self._cluster = cluster
        self._story = story
        self._pulse = pulse
        self._members: dict[str, Member] = {}
        self._joined: dict[str, tuple[Sequence[str], dict[str, Any]]] = {}
        self._names: dict[str, str] = {}
        """By member id."""
        self._partitions: dict[str, int] = {}
        self._published: dict[str, int] = defaultdict(int)
        self._receipts: dict[tuple[str, str], dict[str, Any]] = {}
        """Messages by (who, value), the newest."""
        self._told: set[int] = set()
        self._down: Node | None = None
        answer = cluster[0].ask("PUT", f"/groups/{story}", SETTINGS)
        assert answer.status in (200, 201), answer.content

    def run(self, command: str) -> list[str]:
        """What a command prints."""
        verb, *words = command.split()
        run: Callable[[list[str]], list[str]] = getattr(self, f"_{verb.replace('-', '_')}")
        return run(words)

    # -- what is done

    def _topic(self, words: list[str]) -> list[str]:
        name, count = words[0], int(words[1])
        body = {"name": self._topic_of(name), "num_partitions": count}
        answer = self._cluster[1].ask("POST", "/topics", body)
        assert answer.status == 201, answer.content
        self._partitions[name] = count
        eventually("all nodes know the topic", lambda: self._is_known(name))
        return self._everybody() if self._members else []

    def _publish(self, words: list[str]) -> list[str]:
        name, count = words[0], int(words[1])
        first = self._published[name]
        self._published[name] += count
        rows: list[dict[str, object]] = [
            {"value": f"{name}-{n}", "partition": n % self._partitions[name]}
            for n in range(first, first + count)
        ]
        publish(self._running()[0], self._topic_of(name), rows)
        return []

    def _join(self, words: list[str]) -> list[str]:
        name, *rest = words
        given = dict(word.split("=", 1) for word in rest if "=" in word)
        topics = [self._topic_of(word) for word in rest if "=" not in word]
        how: dict[str, Any] = {"session_timeout": given.get("session", SESSION)}
        if "instance" in given:
            how["instance_id"] = given["instance"]
        if "rebalance" in given:
            how["rebalance_timeout"] = given["rebalance"]
        if "patterns" in given:
            how["patterns"] = [self._topic_of(one) for one in given["patterns"].split(",")]
        self._joined[name] = (topics, how)
        return self._restart([name])

    def _restart(self, words: list[str]) -> list[str]:
        (name,) = words
        topics, how = self._joined[name]
        member = Member(self._cluster, self._story, name)
        member.join(topics, **how)
        if name in self._members:
            self._pulse.drop(self._members[name])
        self._members[name] = member
        self._names[member.id] = name
        if how["session_timeout"] != SESSION:
            self._pulse.keep(member)
        eventually(f"{name} is a member", lambda: member.id in self._listed())
        return self._everybody()

    def _let_go(self, words: list[str]) -> list[str]:
        member = self._members[words[0]]
        found = [(self._topic_of(words[1]), int(p)) for p in words[2:]] if words[1:] else None
        member.hear()
        asked = member.revoking if found is None else found
        member.let_go(asked)
        eventually(
            f"{member.name} has let go of {asked}",
            lambda: not set(asked) & set(places(self._listed()[member.id]["revoking"])),
        )
        return self._everybody()

    def _leave(self, words: list[str]) -> list[str]:
        member = self._members.pop(words[0])
        self._pulse.drop(member)
        member.leave()
        return self._gone(member)

    def _crash(self, words: list[str]) -> list[str]:
        member = self._members[words[0]]
        self._pulse.drop(member)
        return self._gone(member)

    def _receive(self, words: list[str]) -> list[str]:
        member = self._members[words[0]]
        if member.id in self._listed():
            member.hear()
        if not member.assigned:
            return ["has no partition"]
        found: list[dict[str, Any]] = []
        while True:
            answer = member.receive(wait=MORE_WAIT if found else RECEIVE_WAIT)
            if answer.status != 200:
                return [*self._messages(found), self._refusal(answer)]
            if not answer.body["messages"]:
                return self._messages(found) or ["nothing"]
            for message in answer.body["messages"]:
                self._receipts[member.name, message["value"]] = message
                found.append(message)

    def _ack(self, words: list[str]) -> list[str]:
        name, *values = words
        member = self._members[name]
        answer = ok(member.settle([self._receipts[name, value] for value in values]))
        ends = [one.get("state") if one["success"] else one["code"] for one in answer["results"]]
        found = zip(values, ends, strict=True)
        return [
            f"{end}: {' '.join(value for value, _ in ended)}"
            for end, ended in groupby(sorted(found, key=lambda one: one[1]), lambda one: one[1])
        ]

    def _until(self, words: list[str]) -> list[str]:
        member = self._members[words[0]]
        wanted = [(self._topic_of(words[2]), int(p)) for p in words[3:]]
        eventually(
            f"{member.name} has {wanted}",
            lambda: places(self._listed()[member.id]["assignment"]) == wanted,
        )
        return self._everybody()

    def _kill(self, words: list[str]) -> list[str]:
        assert words == ["coordinator"]
        self._down = eventually("a coordinator", self._coordinator)
        self._down.kill()
        eventually("another coordinator", self._coordinator, deadline_s=30)
        return []

    def _start(self, _words: list[str]) -> list[str]:
        assert self._down is not None
        self._down.start()
        self._cluster.wait_until_ready()
        self._down = None
        eventually("all are well", self._is_well, deadline_s=60)
        return []

    # -- what is seen

    def _rebalances(self, _words: list[str]) -> list[str]:
        answer = ok(self._ask("rebalances?limit=100"))
        lines: list[str] = []
        for one in reversed(answer["rebalances"]):
            if one["state"] == "done" and one["id"] not in self._told:
                self._told.add(one["id"])
                lines += self._receipt(one)
        return lines or ["none"]

    def _receipt(self, one: dict[str, Any]) -> list[str]:
        who = " ".join(sorted(self._name(id) for id in one["members"]))
        lines = [f"{one['cause']} of {who}" if who else one["cause"]]
        by_way: dict[tuple[str, str, bool], list[dict[str, Any]]] = defaultdict(list)
        for move in one["moves"]:
            way = (self._name(move["from"]), self._name(move["to"]), move["fenced"])
            by_way[way].append(move)
        for (former, member, fenced), moves in sorted(by_way.items()):
            told = self._places((move["topic"], move["partition"]) for move in moves)
            line = f"  {told}: {former or 'nobody'} to {member or 'nobody'}"
            in_flight = sum(move["in_flight"] for move in moves)
            line += f", {in_flight} in flight" if in_flight else ""
            lines.append(line + (", fenced" if fenced else ""))
        return lines

    def _lag(self, _words: list[str]) -> list[str]:
        answer = ok(self._ask("lag"))
        return [
            f"{self._short(row['topic'])} {row['partition']}: {row['committed_offset']} of "
            f"{row['end_offset']} done, {row['lag']} left, {row['in_flight']} in flight"
            for row in sorted(answer["partitions"], key=lambda r: (r["topic"], r["partition"]))
        ]

    def _everybody(self) -> list[str]:
        """Who has what, once nothing can move by itself."""
        group = eventually("nothing moves by itself", self._at_rest, deadline_s=30)
        lines = [f"generation {group['generation']}, {group['state']}"]
        by_id = {one["id"]: one for one in group["members"]}
        for name, member in sorted(self._members.items()):
            one = by_id.get(member.id)
            if one is None:
                continue
            line = f"{name}: {self._places(places(one['assignment'])) or 'nothing'}"
            if one["revoking"]:
                line += f"; is to let go of {self._places(places(one['revoking']))}"
            lines.append(line)
        return lines

    def _at_rest(self) -> dict[str, Any] | None:
        """Each partition is somebody's: owned, or kept by a member that is asked to let go."""
        group = ok(self._ask("members"))
        members = group["members"]
        wanted = sum(
            count
            for name, count in self._partitions.items()
            if any(_subscribes(one, self._topic_of(name)) for one in members)
        )
        held = [p for one in members for p in places(one["assignment"] + one["revoking"])]
        asked = any(one["revoking"] for one in members)
        is_over = asked or group["state"] in ("stable", "empty")
        return group if is_over and len(held) >= wanted else None

    def _gone(self, member: Member) -> list[str]:
        eventually(f"{member.name} is gone", lambda: member.id not in self._listed())
        return self._everybody()

    def _messages(self, found: Iterable[dict[str, Any]]) -> list[str]:
        ordered = sorted(found, key=lambda m: (m["topic"], m["partition"], m["offset"]))
        lines: list[str] = []
        for (topic, partition), part in groupby(ordered, lambda m: (m["topic"], m["partition"])):
            told = [_message(one) for one in part]
            lines.append(f"{self._short(topic)} {partition}: {', '.join(told)}")
        return lines

    def _refusal(self, answer: Answer) -> str:
        body = answer.body
        told = [str(one).rpartition(":") for one in body.get("partitions", [])]
        where = self._places((topic, int(partition)) for topic, _, partition in told)
        return f"{answer.status} {body['code']}: {where}, generation {body.get('generation')}"

    def _places(self, found: Iterable[Place]) -> str:
        ordered = sorted((self._short(topic), partition) for topic, partition in found)
        return ", ".join(
            f"{topic} {' '.join(str(partition) for _, partition in part)}"
            for topic, part in groupby(ordered, lambda place: place[0])
        )

    # -- beneath

    def _listed(self) -> dict[str, dict[str, Any]]:
        """The members by id, as the node says that all tables are made from."""
        return {one["id"]: one for one in ok(self._ask("members"))["members"]}

    def _ask(self, what: str) -> Answer:
        return self._running()[0].ask("GET", f"/groups/{self._story}/{what}")

    def _running(self) -> list[Node]:
        return [node for node in self._cluster.nodes if node.is_running()]

    def _coordinator(self) -> Node | None:
        """The running node that leads the cluster group, as all that run say."""
        try:
            said = {ok(node.ask("GET", "/cluster"))["controller"] for node in self._running()}
        except (OSError, http.client.HTTPException, AssertionError):
            return None
        found = [node for node in self._running() if said == {node.id}]
        return found[0] if found else None

    def _is_well(self) -> bool:
        """As each node says: every partition is led, with all replicas in step."""
        said = [ok(node.ask("GET", "/cluster/health")) for node in self._running()]
        return all(one["status"] == "healthy" for one in said)

    def _is_known(self, name: str) -> bool:
        asked = [node.ask("GET", f"/topics/{self._topic_of(name)}") for node in self._running()]
        return all(answer.status == 200 for answer in asked)

    def _topic_of(self, name: str) -> str:
        return f"{self._story}.{name}"

    def _short(self, topic: str) -> str:
        return topic.removeprefix(f"{self._story}.")

    def _name(self, id: str) -> str:
        return self._names.get(id, id)


def _subscribes(member: dict[str, Any], topic: str) -> bool:
    return topic in member["topics"] or any(fnmatchcase(topic, p) for p in member["patterns"])


def _message(message: dict[str, Any]) -> str:
    told = str(message["value"])
    if message["attempt"] > 1:
        told += f" (attempt {message['attempt']}, {message['last_reason']})"
    return told


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Cluster(Path(folder)) as started:
        started.start()
        for argument in sys.argv[1:]:
            path = Path(argument)
            path.write_text(play(path.read_text(), path.stem, started))
